"""The headline in words: beta_c of infinite volume from several volumes, and what was published for it."""

from math import hypot

from metalforge.campaign.physics.finite_size import FiniteSizeFit
from metalforge.campaign.physics.published import INDEPENDENT, published_coupling
from metalforge.campaign.spec import CampaignSpec
from metalforge.statistics.estimate import with_error

from .result import CampaignResult
from .words import lattice_name

__all__ = ["comparison", "quality"]


def quality(fit: FiniteSizeFit) -> str:
    """Return from which volumes an extrapolation is, and how well they fit."""
    names = ", ".join(lattice_name(dims) for dims in fit.volumes)
    degrees = f"{fit.dof} degree{'' if fit.dof == 1 else 's'} of freedom"
    return f"from {names}; chi2 = {fit.chi2:.2f} for {degrees}"


def comparison(spec: CampaignSpec, result: CampaignResult) -> str:
    """Return one sentence that compares with the published coupling; nothing with sea quarks or an unknown N_t.

    What is published is for infinite volume. One lattice has another beta_c, and the sentence says so.
    """
    first = result.headline.dims
    known = published_coupling(first[3])
    if known is None or spec.lattice.has_other_theory:
        return ""
    there = f"published for infinite volume, N_t = {first[3]}: {known.printed} ({known.short})"
    if (fit := result.extrapolation) is not None:
        apart = abs(fit.beta_c - known.beta_c) / hypot(fit.error, known.error)
        return f"{there}; the extrapolation is {apart:.1f} standard errors from it"
    elsewhere = INDEPENDENT.get(first)
    found = "" if elsewhere is None else f" ({with_error(*elsewhere)} was found independently)"
    return f"{there}; beta_c of {lattice_name(first)} alone is another number{found}"
