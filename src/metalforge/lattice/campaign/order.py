"""The order parameter of a scan in beta, and the rows it is made of.

The deconfinement transition of the quenched theory breaks Z3, and L falls into one of three equivalent sectors: |L| is
its order parameter. Sea quarks break Z3 themselves and prefer Re L > 0, so with them it is Re L.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from metalforge.campaign import Floats, OrderParameter

OrderName: TypeAlias = Literal["abs_loop", "re_loop"]

ORDERS: dict[str, OrderParameter] = {
    "abs_loop": OrderParameter("|L|", "|L|", "|L|^2", "N_s^3"),
    "re_loop": OrderParameter("Re L", r"\mathrm{Re}\,L", r"(\mathrm{Re}\,L)^2", "N_s^3"),
}


def order_of(observable: OrderName, column: Callable[[str], Floats]) -> Floats:
    """Return the order parameter in every row, from the columns of a chain."""
    if observable == "re_loop":
        return column("polyakov_re")
    return np.abs(column("polyakov_re") + 1j * column("polyakov_im"))
