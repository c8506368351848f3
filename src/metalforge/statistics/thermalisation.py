"""Where a chain has forgotten its start: the MSER cut, and hot against cold starts. Both can say that it has not.

MSER stops where the transient has sunk to the size of one fluctuation, which is still a bias of several errors of the
mean; an exponential transient needs about as long again to vanish: drop twice the cut.
"""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import SpecError

from .estimate import Floats, as_series
from .gamma import gamma_method

KEPT_BATCHES = 5
"""Batches at the end where MSER is not evaluated: the variance of so few is small by chance (Hoad et al. 2010)."""


class Truncation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number `start` of measurements to drop, the MSER value there, and whether the rule found a cut.

    `found` is false when the minimum lies past the middle: by the rule's own advice the series is then too short.
    """

    start: int
    statistic: float
    batch: int
    found: bool


class HotColdAgreement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether two chains from opposite starts agree, from which measurement on, and by how much they differ there.

    `start` is None, and the numbers are those of the second halves, when the chains do not agree.
    """

    agrees: bool
    start: int | None
    difference: float
    error: float


def mser(series: ArrayLike, batch: int = 1) -> Truncation:
    r"""Return the cut that minimises the marginal standard error; ``batch=5`` is the variant called MSER-5.

    Among the cuts d of m batch means y_j it takes the least value of

        MSER(d) = (1 / (m - d)^2) sum_{j >= d} (y_j - mean_{j >= d})^2,

    the squared error of the mean if the rest were uncorrelated: dropping a biased start lowers the sum, dropping good
    data raises the prefactor (K. P. White, Simulation 69 (1997) 323; batches: White, Cobb and Spratt 2000).
    """
    x = as_series(series)
    if batch < 1 or x.size // batch < 2 * KEPT_BATCHES:
        raise SpecError(
            f"MSER needs at least {2 * KEPT_BATCHES} batches. Got {x.size} measurements in batches of {batch}\n"
            f"hint: use at least {2 * KEPT_BATCHES * max(batch, 1)} measurements"
        )
    m = x.size // batch
    y = x[: m * batch].reshape(m, batch).mean(axis=1)
    y = y - np.mean(y)
    left = m - np.arange(m)
    squares = np.cumsum((y**2)[::-1])[::-1] - np.cumsum(y[::-1])[::-1] ** 2 / left
    statistic = np.maximum(squares, 0.0) / left**2
    cut = int(np.argmin(statistic[: m - KEPT_BATCHES]))
    return Truncation(start=cut * batch, statistic=float(statistic[cut]), batch=batch, found=cut <= m // 2)


def hot_cold_agreement(hot: ArrayLike, cold: ArrayLike, k: float = 2.0) -> HotColdAgreement:
    """Return the earliest cut from which a hot and a cold start agree within `k` standard errors, if there is one.

    The means after every cut up to half of the shorter chain are compared. Errors come from the Gamma method on the
    second half of each chain, where a transient inflates them least, scaled to the length after the cut. A cut counts
    only if all later ones agree too, so that two drifts that happen to cross do not pass. Equilibrated chains fail at
    the 5 % that k = 2 leaves; a transient too small to see beside `k` errors stays in.
    """
    a, b = as_series(hot, "hot"), as_series(cold, "cold")
    half = min(a.size, b.size) // 2
    if half < 5:
        raise SpecError(
            f"a hot/cold comparison needs at least 10 measurements of each chain. Got {a.size} and {b.size}"
        )
    cuts = np.arange(half + 1)
    difference = _means_after(a, cuts) - _means_after(b, cuts)
    error = np.sqrt(_variance_of_mean(a, half, cuts) + _variance_of_mean(b, half, cuts))
    failing = np.flatnonzero(np.abs(difference) > k * error)
    agrees = failing.size == 0 or failing[-1] < half
    at = (0 if failing.size == 0 else int(failing[-1]) + 1) if agrees else half
    return HotColdAgreement(
        agrees=bool(agrees), start=at if agrees else None, difference=float(difference[at]), error=float(error[at])
    )


def _means_after(x: Floats, cuts: np.typing.NDArray[np.intp]) -> Floats:
    # Summed about the final mean, so that a long chain's running sum does not lose its digits.
    centre = float(np.mean(x[x.size // 2 :]))
    sums = np.cumsum((x - centre)[::-1])[::-1]
    return np.asarray(centre + sums[cuts] / (x.size - cuts), dtype=np.float64)


def _variance_of_mean(x: Floats, half: int, cuts: np.typing.NDArray[np.intp]) -> Floats:
    tail = gamma_method(x[half:])
    return np.asarray(tail.error**2 * tail.n / (x.size - cuts), dtype=np.float64)
