"""What a campaign found, in words: numbers that are established, intervals with what they lack, what was published.

A number that is not established does not stand there bare, neither in a terminal nor on a page: an interval does.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import hypot

from metalforge.campaign.observables import ORDERS
from metalforge.campaign.physics.evidence import Evidence
from metalforge.campaign.physics.finite_size import FiniteSizeFit
from metalforge.campaign.physics.published import INDEPENDENT, PUBLISHED
from metalforge.campaign.physics.transition import Transition
from metalforge.campaign.spec import CampaignSpec
from metalforge.statistics.estimate import with_error

from .html import Raw, box, items, link, paragraph
from .result import CampaignResult, VolumeResult
from .words import interval_text, item_text, lattice_name, lattice_text


def verdict_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines for a terminal: the headline first, then every volume with its evidence."""
    if (fit := result.extrapolation) is not None:
        yield from _stated("infinite volume", fit.beta_c, fit.error, result.line_evidence)
        yield f"  {_quality(fit)}"
    if result.finite_size is not None:
        yield from (f"  {caution}" for caution in result.finite_size.cautions)
    for volume in result.volumes:
        yield from _volume(volume)
    if result.recomputed:
        yield "the journal is from before evidence was asked for: this verdict was computed now, by the rules of now"


def _volume(volume: VolumeResult) -> Iterator[str]:
    name, found = lattice_name(volume.dims), volume.transition
    if found is None:
        yield f"beta_c({name}): not located"
        yield from (f"  lacking: {item_text(item)}" for item in volume.evidence if not item.holds)
        return
    yield from _stated(name, found.beta_c, found.error, volume.evidence)
    yield from (f"  {'holds' if item.holds else 'lacks'}: {item_text(item)}" for item in volume.evidence)


def _stated(name: str, value: float, error: float, evidence: Sequence[Evidence]) -> Iterator[str]:
    if all(item.holds for item in evidence):
        yield f"beta_c({name}) = {with_error(value, error)}, established"
        return
    lacking = ", ".join(item.name for item in evidence if not item.holds)
    yield f"beta_c({name}): not established; the data so far point to {interval_text(value, error)} (one error)"
    yield f"  not to be quoted, for lack of: {lacking}"


def verdict(result: CampaignResult) -> tuple[Raw, list[str]]:
    """Return the title of the page and what stands below it: a number only where it is established."""
    if (found := result.quoted) is None:
        return Raw("&beta;<sub>c</sub> is not located"), [paragraph(f"Why: {result.headline.reason}", "warn")]
    if not result.established:
        where = _subject(result)
        said = (
            f"{where} seems to lie at beta = {interval_text(found.beta_c, found.error)} (one error to either side). "
            "The chains do not show that this can be relied on; what is lacking, with what was found and what would "
            "help:"
        )
        lacking = [item_text(item) for item in result.evidence if not item.holds]
        return Raw("&beta;<sub>c</sub> is not established"), [box(paragraph(said), items(lacking))]
    value = with_error(found.beta_c, found.error)
    meaning, rests = _of_volume(result, found) if isinstance(found, Transition) else _of_infinite_volume(result, found)
    return Raw(f'&beta;<sub>c</sub> = <span class="value">{value}</span>'), [
        paragraph(meaning),
        paragraph(Raw(f"{escape(rests)} {link('All the evidence', '#evidence').html}.")),
    ]


def _subject(result: CampaignResult) -> str:
    if (fit := result.extrapolation) is not None:
        return f"The critical coupling of infinite spatial volume, {_quality(fit)},"
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
        f"peaks of the Polyakov loop's susceptibility, {_quality(fit)}. The error is statistical.",
        f"It rests on the peaks of {len(fit.volumes)} volumes, each of them established, and on their line.",
    )


def comparison(spec: CampaignSpec, result: CampaignResult) -> str:
    """Return one sentence that compares with the published coupling; nothing with sea quarks or an unknown N_t.

    What is published is for infinite volume. One lattice has another beta_c, and the sentence says so.
    """
    first = result.headline.dims
    known = PUBLISHED.get(first[3])
    if known is None or spec.lattice.has_other_theory:
        return ""
    there = f"published for infinite volume, N_t = {first[3]}: {known.printed} ({known.short})"
    if (fit := result.extrapolation) is not None:
        apart = abs(fit.beta_c - known.beta_c) / hypot(fit.error, known.error)
        return f"{there}; the extrapolation is {apart:.1f} standard errors from it"
    elsewhere = INDEPENDENT.get(first)
    found = "" if elsewhere is None else f" ({with_error(*elsewhere)} was found independently)"
    return f"{there}; beta_c of {lattice_name(first)} alone is another number{found}"


def _quality(fit: FiniteSizeFit) -> str:
    """Return from which volumes an extrapolation is, and how well they fit."""
    names = ", ".join(lattice_name(dims) for dims in fit.volumes)
    degrees = f"{fit.dof} degree{'' if fit.dof == 1 else 's'} of freedom"
    return f"from {names}; chi2 = {fit.chi2:.2f} for {degrees}"
