r"""Several systems: how the peak moves with their size, and where it is in the infinite one when two of them scale.

Where the theory's `SizeLaw` holds, the peaks of growing systems are on a line in x, which goes to 0:

    result(system) = limit - h x(system)

Systems on which it is not expected take no part, however few are left. Nor are the others exactly on it: the next term
is q x^2. What is known of q is its size: it is taken for a Gaussian number around 0 with the standard deviation
`bend` h, and the peaks scatter about the line with

    covariance_ij = sigma_i^2 delta_ij + (bend h)^2 x_i^2 x_j^2.

Hence nothing is dropped by a look at the data: a small system counts for less where the others are known better, and
the doubt is in the error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.theory import SizeLaw, System

from .transition import Transition

FEWEST = 2
"""Systems for a line: as many as it has parameters. A third can contradict it, and a fourth can be contradicted."""
LARGEST_PULL = 3.0
"""Standard errors from the line through all others at which a system is named: one in 370 by chance."""
STEPS, SETTLED = 50, 1e-6
"""The size of q follows from h, which follows from the size of q: most steps, and the change that is none."""
LARGEST_CHI2 = 4.0
"""chi2 for each degree of freedom above which the peaks are not on one line: one in 22 by chance for one degree."""


class SystemPeak(NamedTuple):
    """Where one system has its peak, with the error."""

    system: System
    result: float
    error: float


class FiniteSizeFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line through the peaks: the limit and h with errors, and how well it fits.

    `systems` are the systems used, `variances` what the error of each of them adds to error^2, and `bend` the part of
    the error that is not theirs but the line's. chi2 / dof well above 1 says that the peaks are farther from a line
    than both explain, and with no degree of freedom nothing can say so.
    """

    result: float
    error: float
    h: float
    h_error: float
    chi2: float
    dof: int
    systems: tuple[System, ...]
    variances: tuple[float, ...]
    bend: float = 0.0

    @property
    def largest_chi2(self) -> float:
        """chi2 above which the peaks are not on one line."""
        return LARGEST_CHI2 * self.dof

    @property
    def consistent(self) -> bool:
        """Whether nothing contradicts the line."""
        return self.dof == 0 or self.chi2 <= self.largest_chi2


class FiniteSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of every system, smallest first, the line if two of them scale, and what to be careful about."""

    peaks: tuple[Transition, ...]
    fit: FiniteSizeFit | None
    cautions: tuple[str, ...]


def analyse_volumes(peaks: Sequence[Transition], law: SizeLaw) -> FiniteSize:
    """Return the peaks of several systems of one family, in order, and the line through those that scale."""
    fit, cautions = extrapolate([SystemPeak(peak.system, peak.result, peak.error) for peak in peaks], law)
    ordered = sorted(peaks, key=lambda peak: law.x(peak.system), reverse=True)
    return FiniteSize(peaks=tuple(ordered), fit=fit, cautions=cautions)


def extrapolate(peaks: Sequence[SystemPeak], law: SizeLaw) -> tuple[FiniteSizeFit | None, tuple[str, ...]]:
    """Return the line through the systems on which it is expected, None for fewer than two, and what to mind.

    The systems are of one family, each once, and every peak has an error > 0.
    """
    ordered = sorted(peaks, key=lambda peak: law.x(peak.system), reverse=True)
    used = [peak for peak in ordered if law.holds(peak.system)]
    where = f" with {law.holds_where}" if law.holds_where else ""
    only = f"only{where}" if where else "on others"
    cautions = []
    if small := [peak for peak in ordered if peak not in used]:
        names = ", ".join(_name(peak) for peak in small)
        cautions.append(f"{names} left out of the extrapolation: the line is expected {only}")
    # Systems of other shapes may be at the same x: they are one point of the line.
    if len({law.x(peak.system) for peak in used}) < FEWEST:
        cautions.append(f"no extrapolation: {len(used)} located systems{where}, wanted {FEWEST}")
        return None, tuple(cautions)
    fit = _line(used, law)
    if fit.dof == 0:
        cautions.append("two systems determine the line: nothing contradicts it, and nothing confirms it")
    elif not fit.consistent:
        cautions.append(
            f"chi2 = {fit.chi2:.1f} for {fit.dof} degree{'s' if fit.dof > 1 else ''} of freedom: "
            "these peaks are not on one line"
        )
    if (odd := _contradicting(used, law)) is not None:
        cautions.append(odd)
    if fit.bend**2 > fit.error**2 / 2:
        cautions.append(
            f"{fit.bend:.2g} of the error is that the line may bend: a larger system says more than more updates"
        )
    return fit, tuple(cautions)


def _contradicting(peaks: Sequence[SystemPeak], law: SizeLaw) -> str | None:
    """Return a sentence about the system that is farthest from the line through all others, where it is too far.

    Of three systems each is as far from the line through the other two, so that none can be named.
    """
    others = [len({law.x(other.system) for other in peaks if other is not peak}) for peak in peaks]
    if len(peaks) < FEWEST + 2 or min(others) < FEWEST:
        return None
    pulls = [_pull(peak, [other for other in peaks if other is not peak], law) for peak in peaks]
    worst = int(np.argmax(np.abs(pulls)))
    if abs(pulls[worst]) <= LARGEST_PULL:
        return None
    return f"{_name(peaks[worst])} contradicts the others: {abs(pulls[worst]):.1f} standard errors from their line"


def _pull(peak: SystemPeak, others: Sequence[SystemPeak], law: SizeLaw) -> float:
    """Return how many standard errors a peak is from what the line through the others says."""
    line, x = _solve(others, law), law.x(peak.system)
    coefficients, bend = np.array([1.0, -x]) @ line.coefficients, line.bend
    off = peak.result - coefficients @ np.array([other.result for other in others])
    own = coefficients @ np.array([law.x(other.system) ** 2 for other in others]) - x**2
    variance = peak.error**2 + np.sum((coefficients * np.array([other.error for other in others])) ** 2)
    return float(off / np.sqrt(variance + (bend * own) ** 2))


class _Line(NamedTuple):
    """(result, h) as `coefficients` of the peaks, their inverse covariance, and the standard deviation of q."""

    coefficients: NDArray[np.float64]
    weight: NDArray[np.float64]
    bend: float


def _solve(peaks: Sequence[SystemPeak], law: SizeLaw) -> _Line:
    """Return the line by least squares, weighed by the errors and by a term q x^2 of the size that h has."""
    ratios = np.array([law.x(peak.system) for peak in peaks])
    errors, values = (np.array([getattr(peak, name) for peak in peaks]) for name in ("error", "result"))
    design = np.stack([np.ones(len(peaks)), -ratios], axis=1)
    # An h that is 0 by chance says little of q: that of the straight line is added with its error.
    straight = np.linalg.inv(design.T @ (design / errors[:, None] ** 2))
    coefficients, weight, bend = straight @ (design.T / errors**2), np.diag(errors**-2.0), 0.0
    for _ in range(STEPS):
        h = float(np.sqrt((coefficients[1] @ values) ** 2 + straight[1, 1]))
        before, bend = bend, law.bend * min(h, law.largest_h)
        weight = np.linalg.inv(np.diag(errors**2) + bend**2 * np.outer(ratios**2, ratios**2)).astype(np.float64)
        coefficients = np.linalg.inv(design.T @ weight @ design) @ design.T @ weight
        if abs(bend - before) <= SETTLED * bend:
            break
    return _Line(np.asarray(coefficients, dtype=np.float64), weight, bend)


def _line(peaks: Sequence[SystemPeak], law: SizeLaw) -> FiniteSizeFit:
    """Return the line; the variance of its limit = sum_i c_i result_i by its terms c_i^2 error_i^2 and that of q."""
    line = _solve(peaks, law)
    ratios = np.array([law.x(peak.system) for peak in peaks])
    errors, values = (np.array([getattr(peak, name) for peak in peaks]) for name in ("error", "result"))
    result, h = line.coefficients @ values
    off = values - (result - h * ratios)
    terms = (line.coefficients * errors) ** 2
    bends = line.bend * (line.coefficients @ ratios**2)
    error, h_error = np.sqrt(terms.sum(axis=1) + bends**2)
    return FiniteSizeFit(
        result=float(result),
        error=float(error),
        h=float(h),
        h_error=float(h_error),
        chi2=float(off @ line.weight @ off),
        dof=len(peaks) - 2,
        systems=tuple(peak.system for peak in peaks),
        variances=tuple(float(term) for term in terms[0]),
        bend=float(abs(bends[0])),
    )


def _name(peak: SystemPeak) -> str:
    return "x".join(map(str, peak.system))
