"""Where a chain has forgotten its start: the MSER cut, hot against cold starts, and a verdict in plain words.

Every test here can say no. A chain that still drifts, that is too short for its own autocorrelation time, or that
never moves is refused, with the reason.
"""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError

from .estimate import Floats, as_series
from .gamma import gamma_method

__all__ = ["HotColdAgreement", "Thermalisation", "Truncation", "hot_cold_agreement", "is_thermalised", "mser"]

KEPT_BATCHES = 5
"""Batches at the end where MSER is not evaluated: the variance of so few is small by chance (Hoad et al. 2010)."""

CUT_FACTOR = 2
"""How many times the MSER cut is dropped: MSER stops where the transient has sunk to the size of one fluctuation,
which is still a bias of several errors of the mean; an exponential transient needs about as long again to vanish."""

MIN_TAU = 30
"""Length after the cut, in tau_int, below which nothing is concluded: each third then holds ten tau_int."""


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


class Thermalisation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on a chain: use it from measurement `start` on, or do not; `reason` says why."""

    thermalised: bool
    start: int
    reason: str


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


def is_thermalised(series: ArrayLike, opposite: ArrayLike | None = None, k: float = 3.0) -> Thermalisation:
    """Return whether, and from where on, `series` can be averaged; `opposite` is a chain from the other start.

    In this order, the first failure being the reason: the chain moves; twice the MSER-5 cut leaves at least half of
    it; that half or more is at least 30 tau_int; its first and last thirds agree within `k` tau_int-aware standard
    errors (Geweke's test, with thirds because they see a steady drift best); and it agrees with `opposite`, if given.
    """
    x = as_series(series)
    cut = mser(x, batch=5)
    start = min(CUT_FACTOR * cut.start, x.size)
    reason = _objection(x, start, k)
    if reason is not None:
        return Thermalisation(thermalised=False, start=start, reason=reason)
    notes = [f"twice the MSER-5 cut drops {start} of {x.size} measurements and the rest shows no drift"]
    if opposite is not None:
        match = hot_cold_agreement(x, opposite, k)
        if match.start is None:
            pull = abs(match.difference) / match.error if match.error else np.inf
            reason = (
                f"the chains from opposite starts still differ by {pull:.1f} standard errors in their second halves; "
                "run both for longer, or suspect two phases that do not mix"
            )
            return Thermalisation(thermalised=False, start=start, reason=reason)
        start = max(start, match.start)
        notes.append(f"hot and cold agree from measurement {match.start} on")
    return Thermalisation(thermalised=True, start=start, reason="; ".join(notes))


def _objection(x: Floats, start: int, k: float) -> str | None:
    """Return why this chain alone cannot be averaged from `start` on, or None."""
    if np.ptp(x) == 0:
        return "every measurement is the same: the chain is stuck (nothing accepted?) or the wrong quantity was saved"
    if start > x.size // 2:
        return (
            f"the start still dominates: twice the MSER-5 cut would drop {start} of {x.size} measurements, "
            "more than half; run for longer"
        )
    rest = x[start:]
    tau = gamma_method(rest).tau_int
    if rest.size < MIN_TAU * tau:
        return (
            f"too short to tell: {rest.size / tau:.0f} tau_int remain after the cut (tau_int = {tau:.3g}), "
            f"wanted {MIN_TAU}: a drift would look like a slow fluctuation; run for longer"
        )
    third = rest.size // 3
    first, last = gamma_method(rest[:third]), gamma_method(rest[-third:])
    error = float(np.hypot(first.error, last.error))
    if abs(first.mean - last.mean) > k * error:
        return (
            f"still drifting: the first and last third after the cut differ by {first.mean - last.mean:.3g}, "
            f"allowed {k:g} x {error:.3g}; run for longer"
        )
    return None


def _means_after(x: Floats, cuts: np.typing.NDArray[np.intp]) -> Floats:
    # Summed about the final mean, so that a long chain's running sum does not lose its digits.
    centre = float(np.mean(x[x.size // 2 :]))
    sums = np.cumsum((x - centre)[::-1])[::-1]
    return np.asarray(centre + sums[cuts] / (x.size - cuts), dtype=np.float64)


def _variance_of_mean(x: Floats, half: int, cuts: np.typing.NDArray[np.intp]) -> Floats:
    tail = gamma_method(x[half:])
    return np.asarray(tail.error**2 * tail.n / (x.size - cuts), dtype=np.float64)
