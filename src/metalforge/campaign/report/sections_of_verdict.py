"""The verdict of a campaign: a number with what it rests on, or an interval with what is lacking, or no peak at all."""

from html import escape

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.physics.finite_size import FiniteSizeFit
from metalforge.campaign.physics.transition import Transition
from metalforge.statistics.estimate import with_error

from .comparison import quality
from .html import Raw, box, link, paragraph
from .result import CampaignResult
from .sections_of_evidence import lacking_list
from .words import interval_text, lattice_text

__all__ = ["verdict"]


def verdict(result: CampaignResult) -> tuple[Raw, list[str]]:
    """Return the title of the page and what stands below it: a number only where it is established."""
    first, fit = result.headline, result.extrapolation
    evidence = first.evidence if fit is None else result.line_evidence
    found = first.transition if fit is None else fit
    if found is None:
        return Raw("&beta;<sub>c</sub> is not located"), [paragraph(f"Why: {first.reason}", "warn")]
    if not all(item.holds for item in evidence):
        where = _subject(result, fit)
        said = (
            f"{where} seems to lie at beta = {interval_text(found.beta_c, found.error)} (one error to either side). "
            "The chains do not show that this can be relied on; what is lacking, with what was found and what would "
            "help:"
        )
        return Raw("&beta;<sub>c</sub> is not established"), [box(paragraph(said), lacking_list(evidence))]
    value = with_error(found.beta_c, found.error)
    meaning, rests = _of_volume(result, found) if isinstance(found, Transition) else _of_infinite_volume(result, found)
    return Raw(f'&beta;<sub>c</sub> = <span class="value">{value}</span>'), [
        paragraph(meaning),
        paragraph(Raw(f"{escape(rests)} {link('All the evidence', '#evidence').html}.")),
    ]


def _subject(result: CampaignResult, fit: FiniteSizeFit | None) -> str:
    if fit is not None:
        return f"The critical coupling of infinite spatial volume, {quality(fit)},"
    order, name = ORDERS[result.observable].text, lattice_text(result.headline.dims)
    return f"The peak of the susceptibility of the Polyakov loop ({order}) on {name}"


def _of_volume(result: CampaignResult, found: Transition) -> tuple[str, str]:
    """Return what the number of one lattice means, and in one line what it rests on."""
    order, name = ORDERS[result.observable].text, lattice_text(found.dims)
    held = sum(item.needed is not None for item in result.headline.evidence)
    return (
        f"The coupling at which the susceptibility of the Polyakov loop ({order}) peaks on {name}, by multi-histogram "
        f"reweighting of {found.chains} chains; the error is statistical, from {found.n_bootstrap} bootstrap "
        "replicas. It belongs to this lattice: it moves with the spatial volume and, far more, with N_t.",
        f"It rests on {found.n_effective:.0f} independent samples in {found.n_blocks:.0f} blocks that carry the peak, "
        f"of {found.samples:,} measured updates; all {held} requirements hold.",
    )


def _of_infinite_volume(result: CampaignResult, fit: FiniteSizeFit) -> tuple[str, str]:
    """Return what the extrapolated number means, and in one line what it rests on."""
    return (
        f"The critical coupling of infinite spatial volume at N_t = {result.headline.dims[3]}, by a line through the "
        f"peaks of the Polyakov loop's susceptibility, {quality(fit)}. The error is statistical.",
        f"It rests on the peaks of {len(fit.volumes)} volumes, each of them established, and on their line.",
    )
