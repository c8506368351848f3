r"""Tasks from seeds: chaotic flows, NARMA, labelled sequences; time-major float64."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .flows import lorenz, mackey_glass
from .sequences import LabelledSequences, sequence_classification

__all__ = [
    "LabelledSequences",
    "lorenz",
    "mackey_glass",
    "narma",
    "sequence_classification",
    "to_forecasting",
]

Scalar = TypeVar("Scalar", bound=np.generic)

NARMA_10 = (0.3, 0.05, 1.5, 0.1)
"""A. Atiya, A. Parlos, IEEE Transactions on Neural Networks 11, 2000."""
NARMA_30 = (0.2, 0.04, 1.5, 0.001)
"""B. Schrauwen et al., Neurocomputing 71, 2008: the coefficients of order 10 diverge at order 30."""
DIVERGED = 10.0
"""NARMA outputs stay below 1 or so; past the unstable fixed point, a little above 1, they only grow."""
ATTEMPTS = 20
NARMA_DISCARD = 200
"""Steps from the start at zero that are thrown away."""


def narma(
    n: int,
    *,
    seed: int,
    order: int = 10,
    coefficients: tuple[float, float, float, float] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Return inputs u (n, 1), uniform in 0 .. 0.5, and the outputs y (n, 1) they drive.

        y_{t+1} = a y_t + b y_t (y_t + ... + y_{t-order+1}) + c u_{t-order+1} u_t + d

    Row t holds u_t and y_{t+1}: the target follows from the inputs up to its own row. `coefficients` are (a, b, c, d);
    by default those of the literature, one set up to order 10 and one up to order 30. Now and then the inputs make the
    recurrence diverge; then all are drawn again from the seed's next stream.
    (reservoirpy sums from y_{t-1} on and multiplies with u_{t-order}: its series are of another system.)
    """
    if n < 1 or order < 1:
        raise SpecError(f"a NARMA series wants n >= 1 and order >= 1. Got n = {n}, order = {order}")
    if coefficients is None:
        if order > 30:
            raise SpecError(f"no coefficients are known for order {order}, above 30: give `coefficients`")
        coefficients = NARMA_10 if order <= 10 else NARMA_30
    for rng in np.random.default_rng(seed).spawn(ATTEMPTS):
        u = rng.uniform(0, 0.5, order + NARMA_DISCARD + n)
        y = _narma(u.tolist(), order, coefficients)
        if y is not None:
            return u[-n:, np.newaxis], np.array(y[-n:])[:, np.newaxis]
    raise SpecError(
        f"the NARMA recurrence of order {order} diverges with coefficients {coefficients}\nhint: smaller ones"
    )


def _narma(u: list[float], order: int, coefficients: tuple[float, float, float, float]) -> list[float] | None:
    """Return y_{t+1} for every t, from zeros; None when it diverges."""
    a, b, c, d = coefficients
    y = [0.0] * order
    for t in range(order - 1, len(u)):
        now = y[t]
        after = a * now + b * now * sum(y[t - order + 1 : t + 1]) + c * u[t - order + 1] * u[t] + d
        if not abs(after) < DIVERGED:
            return None
        y.append(after)
    return y[1:]


def to_forecasting(x: NDArray[Scalar], horizon: int = 1) -> tuple[NDArray[Scalar], NDArray[Scalar]]:
    """Return inputs x_t and targets x_{t + horizon}, each shorter than x by the horizon; views, time first."""
    if x.ndim < 1 or not 1 <= horizon < len(x):
        raise SpecError(f"`horizon` must be at least 1 and shorter than the series of {x.shape}. Got {horizon}")
    return x[:-horizon], x[horizon:]
