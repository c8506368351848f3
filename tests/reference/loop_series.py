"""Series of a chain of links: the plaquette and the Polyakov loop averaged over space, as reweighting takes them."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metalforge.campaign.analysis.selection import PointSeries
from metalforge.campaign.theory import System
from metalforge.lattice import WILSON


def loop_series(
    beta: float, dims: System, plaquette: ArrayLike, polyakov: ArrayLike, start: str = "", **more: Any
) -> PointSeries:
    """Return a series of Wilson's action whose order parameter is |L|; `more` are other fields of it."""
    of_links, loop = np.asarray(plaquette, np.float64), np.abs(np.asarray(polyakov, np.complex128))
    volume = dims[0] * dims[1] * dims[2]
    known: dict[str, Any] = {"order": loop, "order_name": "|L|"} | more
    return PointSeries(beta, dims, WILSON.energy_of(of_links, prod(dims)), volume=volume, start=start, **known)
