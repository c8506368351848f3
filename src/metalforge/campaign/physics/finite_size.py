r"""Several volumes: how the peak moves and grows with N_s, and beta_c of infinite volume when two of them scale.

At a first-order transition

    beta_c(N_s) = beta_c - h (N_t / N_s)^3,     height ~ N_s^3

(M. Fukugita, M. Okawa and A. Ukawa, Nucl. Phys. B 337 (1990) 181; QCDPAX, Phys. Rev. D 46 (1992) 4657, with
h = 0.122(54) at N_t = 4). It holds for N_s well above 2 N_t: on 8^3 x 4 the peak of chi lies above the line. Volumes up
to there take no part in the line, however few are left.

Nor are larger ones exactly on it: the next term is q x^2, x = (N_t / N_s)^3. What is known of it is its size, about h x
at x = 1 / 16 (N_s = 2.5 N_t): 6^3, 8^3 and 12^3 at N_t = 2, each to 2e-4, give q = 13 h, and 8^3 x 4 gives 8 h. So q is
taken for a Gaussian number around 0 with the standard deviation 16 h, and the peaks scatter about the line with

    covariance_ij = sigma_i^2 delta_ij + (16 h)^2 x_i^2 x_j^2.

Hence nothing is dropped by a look at the data: a small volume counts for less where the others are known better, and
the doubt is in the error. Of plain lines through 12^3, 16^3 and 24^3 at N_t = 4, each to 1e-4, with q = 8 h, one in
thirty is within its error, and half have nothing against themselves; with q in the covariance 0.69 are within one
error and 0.95 within two.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .series import Dims
from .transition import Transition

SMALLEST_ASPECT = 2
"""N_s / N_t up to which a lattice is not expected on the line."""
FEWEST = 2
"""Volumes for a line: as many as it has parameters. A third can contradict it, and a fourth can be contradicted."""
BEND = 16.0
"""Standard deviation of q in units of h: with it the next term is as large as the first at N_s = 2.5 N_t."""
LARGEST_H = 0.4
"""h beyond which q is not larger: it is 0.33 at N_t = 2, and peaks that contradict each other have any."""
LARGEST_PULL = 3.0
"""Standard errors from the line through all others at which a volume is named: one in 370 by chance."""
STEPS, SETTLED = 50, 1e-6
"""The size of q follows from h, which follows from the size of q: most steps, and the change that is none."""
LARGEST_CHI2 = 4.0
"""chi2 for each degree of freedom above which the peaks are not on one line: one in 22 by chance for one degree."""


class VolumePeak(NamedTuple):
    """Where one volume has its peak, with the error."""

    dims: Dims
    beta_c: float
    error: float

    @property
    def ratio(self) -> float:
        """(N_t / N_s)^3."""
        nx, ny, nz, nt = self.dims
        return nt**3 / (nx * ny * nz)


class FiniteSizeFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line through the peaks: beta_c of infinite volume and h with errors, and how well it fits.

    `volumes` are the lattices used, `variances` what the error of each of them adds to error^2, and `bend` the part of
    the error that is not theirs but the line's. chi2 / dof well above 1 says that the peaks are farther from a line
    than both explain, and with no degree of freedom nothing can say so.
    """

    beta_c: float
    error: float
    h: float
    h_error: float
    chi2: float
    dof: int
    volumes: tuple[Dims, ...]
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
    """The peak of every volume, smallest first, the line if two of them scale, and what to be careful about."""

    peaks: tuple[Transition, ...]
    fit: FiniteSizeFit | None
    cautions: tuple[str, ...]


def scales(dims: Dims) -> bool:
    """Return whether a volume is expected on the line: all spatial extents above 2 N_t."""
    return min(dims[:3]) > SMALLEST_ASPECT * dims[3]


def analyse_volumes(peaks: Sequence[Transition]) -> FiniteSize:
    """Return the peaks of several volumes with one N_t, in order, and the line through those that scale."""
    fit, cautions = extrapolate([VolumePeak(peak.dims, peak.beta_c, peak.error) for peak in peaks])
    ordered = sorted(peaks, key=lambda peak: VolumePeak(peak.dims, 0.0, 0.0).ratio, reverse=True)
    return FiniteSize(peaks=tuple(ordered), fit=fit, cautions=cautions)


def extrapolate(peaks: Sequence[VolumePeak]) -> tuple[FiniteSizeFit | None, tuple[str, ...]]:
    """Return the line through the volumes with N_s > 2 N_t, None for fewer than two, and what to be careful about."""
    if not peaks:
        raise SpecError("`peaks` must hold at least one volume. Got none")
    temporal = {peak.dims[3] for peak in peaks}
    if len(temporal) > 1 or len({peak.dims for peak in peaks}) < len(peaks):
        raise SpecError(
            "the volumes must share one N_t and each appear once. Got " + ", ".join(_name(peak) for peak in peaks)
        )
    ordered = sorted(peaks, key=lambda peak: peak.ratio, reverse=True)
    used = [peak for peak in ordered if scales(peak.dims)]
    cautions = []
    if small := [peak for peak in ordered if peak not in used]:
        names = ", ".join(_name(peak) for peak in small)
        cautions.append(f"{names} left out of the extrapolation: with N_s <= 2 N_t the peak is not on the line")
    # Lattices of other shapes may have the same N_s^3: they are one point of the line.
    if len({peak.ratio for peak in used}) < FEWEST:
        cautions.append(f"no extrapolation: {len(used)} located volumes with N_s > 2 N_t, wanted {FEWEST}")
        return None, tuple(cautions)
    fit = _line(used)
    if fit.dof == 0:
        cautions.append("two volumes determine the line: nothing contradicts it, and nothing confirms it")
    elif not fit.consistent:
        cautions.append(
            f"chi2 = {fit.chi2:.1f} for {fit.dof} degree{'s' if fit.dof > 1 else ''} of freedom: "
            "these peaks are not on one line"
        )
    if (odd := _contradicting(used)) is not None:
        cautions.append(odd)
    if fit.bend**2 > fit.error**2 / 2:
        cautions.append(
            f"{fit.bend:.2g} of the error is that the line may bend: a larger volume says more than more updates"
        )
    return fit, tuple(cautions)


def _contradicting(peaks: Sequence[VolumePeak]) -> str | None:
    """Return a sentence about the volume that is farthest from the line through all others, where it is too far.

    Of three volumes each is as far from the line through the other two, so that none can be named.
    """
    others = [len({other.ratio for other in peaks if other is not peak}) for peak in peaks]
    if len(peaks) < FEWEST + 2 or min(others) < FEWEST:
        return None
    pulls = [_pull(peak, [other for other in peaks if other is not peak]) for peak in peaks]
    worst = int(np.argmax(np.abs(pulls)))
    if abs(pulls[worst]) <= LARGEST_PULL:
        return None
    return f"{_name(peaks[worst])} contradicts the others: {abs(pulls[worst]):.1f} standard errors from their line"


def _pull(peak: VolumePeak, others: Sequence[VolumePeak]) -> float:
    """Return how many standard errors a peak is from what the line through the others says."""
    line = _solve(others)
    coefficients, bend = np.array([1.0, -peak.ratio]) @ line.coefficients, line.bend
    off = peak.beta_c - coefficients @ np.array([other.beta_c for other in others])
    own = coefficients @ np.array([other.ratio**2 for other in others]) - peak.ratio**2
    variance = peak.error**2 + np.sum((coefficients * np.array([other.error for other in others])) ** 2)
    return float(off / np.sqrt(variance + (bend * own) ** 2))


class _Line(NamedTuple):
    """(beta_c, h) as `coefficients` of the peaks, their inverse covariance, and the standard deviation of q."""

    coefficients: NDArray[np.float64]
    weight: NDArray[np.float64]
    bend: float


def _solve(peaks: Sequence[VolumePeak]) -> _Line:
    """Return the line by least squares, weighed by the errors and by a term q x^2 of the size that h has."""
    ratios, errors, values = (
        np.array([getattr(peak, name) for peak in peaks]) for name in ("ratio", "error", "beta_c")
    )
    if np.any(errors <= 0):
        raise SpecError("every peak needs an error > 0 to be weighed\nhint: `locate` gives one")
    design = np.stack([np.ones(len(peaks)), -ratios], axis=1)
    # An h that is 0 by chance says little of q: that of the straight line is added with its error.
    straight = np.linalg.inv(design.T @ (design / errors[:, None] ** 2))
    coefficients, weight, bend = straight @ (design.T / errors**2), np.diag(errors**-2.0), 0.0
    for _ in range(STEPS):
        h = float(np.sqrt((coefficients[1] @ values) ** 2 + straight[1, 1]))
        before, bend = bend, BEND * min(h, LARGEST_H)
        weight = np.linalg.inv(np.diag(errors**2) + bend**2 * np.outer(ratios**2, ratios**2)).astype(np.float64)
        coefficients = np.linalg.inv(design.T @ weight @ design) @ design.T @ weight
        if abs(bend - before) <= SETTLED * bend:
            break
    return _Line(np.asarray(coefficients, dtype=np.float64), weight, bend)


def _line(peaks: Sequence[VolumePeak]) -> FiniteSizeFit:
    """Return the line, and the variance of beta_c = sum_i c_i beta_i by its terms c_i^2 error_i^2 and that of q."""
    line = _solve(peaks)
    ratios, errors, values = (
        np.array([getattr(peak, name) for peak in peaks]) for name in ("ratio", "error", "beta_c")
    )
    beta_c, h = line.coefficients @ values
    off = values - (beta_c - h * ratios)
    terms = (line.coefficients * errors) ** 2
    bends = line.bend * (line.coefficients @ ratios**2)
    error, h_error = np.sqrt(terms.sum(axis=1) + bends**2)
    return FiniteSizeFit(
        beta_c=float(beta_c),
        error=float(error),
        h=float(h),
        h_error=float(h_error),
        chi2=float(off @ line.weight @ off),
        dof=len(peaks) - 2,
        volumes=tuple(peak.dims for peak in peaks),
        variances=tuple(float(term) for term in terms[0]),
        bend=float(abs(bends[0])),
    )


def _name(peak: VolumePeak) -> str:
    return "x".join(map(str, peak.dims))
