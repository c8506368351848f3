"""What a steerer is told of a chain: the susceptibility of |L| with an error that knows the chain's memory."""

import numpy as np

from metalforge.core.steering import Observation
from metalforge.statistics.memory import pooled_tau

from .selection import measured_chi
from .series import PointSeries, as_point

__all__ = ["observe"]

FEWEST_ROWS = 30
"""Rows below which nothing is said."""
FEWEST_TAU = 6.0
"""Rows, in tau_int, below which nothing is said: three independent samples have no variance worth a name."""


def observe(series: PointSeries, *, id: str, cost: float) -> Observation | None:
    """Return chi of the order parameter of one chain with its error; None while the chain is too short to say.

    `id` names the chain and `cost` is what it took so far, warm-up included, in the campaign's units. The error is
    that of `selection.measured_chi`, from tau_int of the order parameter rather than from the scatter of few squared
    fluctuations, which is small by chance in a short chain.
    """
    point = as_point(series)
    loop = point.order
    if loop.size < FEWEST_ROWS or np.ptp(loop) == 0:
        return None
    tau = float(pooled_tau(np.array([point.beta]), [loop], 1.0)[0])
    if loop.size < FEWEST_TAU * tau:
        return None
    chi, error = measured_chi(loop, point.spatial_volume, tau)
    return Observation(beta=point.beta, value=chi, error=error, cost=cost, id=id)
