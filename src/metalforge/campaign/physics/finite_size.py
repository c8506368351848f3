r"""Several volumes: how the peak moves and grows with N_s, and beta_c of infinite volume when two of them scale.

At a first-order transition

    beta_c(N_s) = beta_c - h (N_t / N_s)^3,     height ~ N_s^3

(M. Fukugita, M. Okawa and A. Ukawa, Nucl. Phys. B 337 (1990) 181; QCDPAX, Phys. Rev. D 46 (1992) 4657, with
h = 0.122(54) at N_t = 4). It holds for N_s well above 2 N_t: on 8^3 x 4 the peak of chi lies above the line. Volumes up
to there take no part in the line, however few are left.
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
LARGEST_PULL = 3.0
"""Standard errors from the line through all others at which a volume is named: one in 370 by chance."""
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

    `volumes` are the lattices used, `variances` what each of them adds to error^2. Errors are those the peaks' own
    errors give; chi2 / dof well above 1 says that the line is not true for these volumes, and with no degree of freedom
    nothing can say so.
    """

    beta_c: float
    error: float
    h: float
    h_error: float
    chi2: float
    dof: int
    volumes: tuple[Dims, ...]
    variances: tuple[float, ...]

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
    found, covariance = _solve(others)
    row = np.array([1.0, -peak.ratio])
    return float((peak.beta_c - row @ found) / np.sqrt(peak.error**2 + row @ covariance @ row))


def _solve(peaks: Sequence[VolumePeak]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (beta_c, h) of the least squares line, weighted by 1 / error^2, and their covariance."""
    design = np.array([[1.0, -peak.ratio] for peak in peaks])
    errors = np.array([peak.error for peak in peaks])
    if np.any(errors <= 0):
        raise SpecError("every peak needs an error > 0 to be weighed\nhint: `locate` gives one")
    covariance = np.linalg.inv(design.T @ (design / errors[:, None] ** 2))
    return covariance @ (design.T @ (np.array([peak.beta_c for peak in peaks]) / errors**2)), covariance


def _line(peaks: Sequence[VolumePeak]) -> FiniteSizeFit:
    """Return the line, and the variance of beta_c = sum_i c_i beta_i by its terms c_i^2 error_i^2."""
    found, covariance = _solve(peaks)
    design = np.array([[1.0, -peak.ratio] for peak in peaks])
    errors = np.array([peak.error for peak in peaks])
    pulls = (np.array([peak.beta_c for peak in peaks]) - design @ found) / errors
    coefficients = covariance[0] @ design.T / errors**2
    deviations = np.sqrt(np.diag(covariance))
    return FiniteSizeFit(
        beta_c=float(found[0]),
        error=float(deviations[0]),
        h=float(found[1]),
        h_error=float(deviations[1]),
        chi2=float(pulls @ pulls),
        dof=len(peaks) - 2,
        volumes=tuple(peak.dims for peak in peaks),
        variances=tuple(float(term) for term in (coefficients * errors) ** 2),
    )


def _name(peak: VolumePeak) -> str:
    return "x".join(map(str, peak.dims))
