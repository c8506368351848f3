r"""Several volumes: how the peak moves and grows with N_s, and beta_c of infinite volume when there are three.

At a first-order transition

    beta_c(N_s) = beta_c - h (N_t / N_s)^3,     height ~ N_s^3

(M. Fukugita, M. Okawa and A. Ukawa, Nucl. Phys. B 337 (1990) 181; QCDPAX, Phys. Rev. D 46 (1992) 4657, with
h = 0.122(54) at N_t = 4). It holds for N_s well above 2 N_t: on 8^3 x 4 the peak of chi lies above the line.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from metalforge.core.errors import SpecError

from .transition import Transition

__all__ = ["FiniteSize", "FiniteSizeFit", "analyse_volumes"]

SMALLEST_ASPECT = 2.0
"""N_s / N_t up to which a lattice is not expected on the line."""
FEWEST = 3
"""Volumes for a fit: two parameters, and one to contradict them."""


class FiniteSizeFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line through the peaks: beta_c of infinite volume and h with errors, and how well it fits.

    `volumes` are the lattices used. Errors are those the peaks' own errors give; chi2 / dof well above 1 says that
    the line is not true for these volumes.
    """

    beta_c: float
    error: float
    h: float
    h_error: float
    chi2: float
    dof: int
    volumes: tuple[tuple[int, int, int, int], ...]


class FiniteSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of every volume, smallest first, the fit if there are three, and what to be careful about."""

    peaks: tuple[Transition, ...]
    fit: FiniteSizeFit | None
    cautions: tuple[str, ...]


def analyse_volumes(peaks: Sequence[Transition]) -> FiniteSize:
    """Return the peaks of several volumes with one N_t, in order, and the fit when there are three of them.

    Volumes with N_s <= 2 N_t are left out of the fit when three larger ones are there; otherwise they take part, and a
    caution says so.
    """
    if not peaks:
        raise SpecError("`peaks` must hold at least one volume. Got none")
    temporal = {peak.dims[3] for peak in peaks}
    if len(temporal) > 1 or len({peak.dims for peak in peaks}) < len(peaks):
        raise SpecError(
            "the volumes must share one N_t and each appear once. Got "
            + ", ".join("x".join(map(str, peak.dims)) for peak in peaks)
        )
    ordered = sorted(peaks, key=_ratio, reverse=True)
    small = [peak for peak in ordered if _ratio(peak) >= SMALLEST_ASPECT**-3]
    large = [peak for peak in ordered if peak not in small]
    names = ", ".join("x".join(map(str, peak.dims)) for peak in small)
    cautions = []
    used = ordered
    if small and len(large) >= FEWEST:
        used = large
        cautions.append(f"{names} left out of the fit: with N_s <= 2 N_t the peak is not on the line")
    elif small and len(ordered) >= FEWEST:
        cautions.append(f"{names} takes part in the fit, but with N_s <= 2 N_t its peak is not expected on the line")
    if len(used) < FEWEST:
        cautions.append(f"no fit: {len(used)} volumes, wanted {FEWEST}")
        return FiniteSize(peaks=tuple(ordered), fit=None, cautions=tuple(cautions))
    fit = _line(used)
    if fit.chi2 > 4 * fit.dof:
        cautions.append(f"chi2 = {fit.chi2:.1f} for {fit.dof} degrees of freedom: these peaks are not on one line")
    return FiniteSize(peaks=tuple(ordered), fit=fit, cautions=tuple(cautions))


def _ratio(peak: Transition) -> float:
    """Return (N_t / N_s)^3."""
    nx, ny, nz, nt = peak.dims
    return nt**3 / (nx * ny * nz)


def _line(peaks: Sequence[Transition]) -> FiniteSizeFit:
    """Return the least squares line, weighted by 1 / error^2."""
    design = np.array([[1.0, -_ratio(peak)] for peak in peaks])
    values = np.array([peak.beta_c for peak in peaks])
    errors = np.array([peak.error for peak in peaks])
    if np.any(errors <= 0):
        raise SpecError("every peak needs an error > 0 to be weighed\nhint: `locate` gives one")
    covariance = np.linalg.inv(design.T @ (design / errors[:, None] ** 2))
    found = covariance @ (design.T @ (values / errors**2))
    pulls = (values - design @ found) / errors
    deviations = np.sqrt(np.diag(covariance))
    return FiniteSizeFit(
        beta_c=float(found[0]),
        error=float(deviations[0]),
        h=float(found[1]),
        h_error=float(deviations[1]),
        chi2=float(pulls @ pulls),
        dof=len(peaks) - 2,
        volumes=tuple(peak.dims for peak in peaks),
    )
