"""What a campaign looks at: the order parameter of a scan in beta, the rows it is made of, and how it is written.

The deconfinement transition of the quenched theory breaks Z3, and L falls into one of three equivalent sectors: |L| is
its order parameter. Sea quarks break Z3 themselves and prefer Re L > 0, so with them it is Re L.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

OrderName: TypeAlias = Literal["abs_loop", "re_loop"]
Floats = NDArray[np.float64]


class OrderParameter(NamedTuple):
    """An order parameter as it is written in text and, with its square, in figures."""

    text: str
    math: str
    square: str


ORDERS: dict[str, OrderParameter] = {
    "abs_loop": OrderParameter("|L|", "|L|", "|L|^2"),
    "re_loop": OrderParameter("Re L", r"\mathrm{Re}\,L", r"(\mathrm{Re}\,L)^2"),
    "transport": OrderParameter("eta*", r"\eta^*", r"\eta^{*2}"),
    "freezing": OrderParameter("|rho_k|", r"|\rho_k|", r"|\rho_k|^2"),
}


def order_of(observable: OrderName, column: Callable[[str], Floats]) -> Floats:
    """Return the order parameter in every row, from the columns of a chain."""
    if observable == "re_loop":
        return column("polyakov_re")
    return np.abs(column("polyakov_re") + 1j * column("polyakov_im"))
