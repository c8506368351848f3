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
from .plasma_report import plasma_comparison, plasma_lines
from .result import CampaignResult, VolumeResult
from .words import chi2_text, interval_text, item_text, lattice_name, lattice_text, say


def verdict_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines for a terminal: the headline first, then every volume with its evidence."""
    if result.transport or result.freezing:
        yield from plasma_lines(result)
        return
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
        interval = interval_text(found.beta_c, found.error)
        said = say("verdict.interval", where=_subject(result), interval=interval)
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
        return say("verdict.infinite", quality=_quality(fit))
    lattice = lattice_text(result.headline.dims)
    return say("verdict.peak", order=ORDERS[result.observable].text, lattice=lattice)


def _of_volume(result: CampaignResult, found: Transition) -> tuple[str, str]:
    """Return what the number of one lattice means, and in one line what it rests on."""
    order, lattice = ORDERS[result.observable].text, lattice_text(found.dims)
    meaning = say("verdict.of-volume", order=order, lattice=lattice, found=found)
    return meaning, say("verdict.volume-rests", found=found, held=len(result.headline.evidence))


def _of_infinite_volume(result: CampaignResult, fit: FiniteSizeFit) -> tuple[str, str]:
    """Return what the extrapolated number means, and in one line what it rests on."""
    meaning = say("verdict.of-infinite", n_t=result.headline.dims[3], quality=_quality(fit))
    return meaning, say("verdict.infinite-rests", volumes=len(fit.volumes))


def comparison(spec: CampaignSpec, result: CampaignResult) -> str:
    """Return one sentence that compares with the published coupling; nothing with sea quarks or an unknown N_t.

    What is published is for infinite volume. One lattice has another beta_c, and the sentence says so.
    """
    if spec.lattice is None:
        return plasma_comparison(spec, result)
    first = result.headline.dims
    known = PUBLISHED.get(first[3])
    if known is None or spec.gauge.has_other_theory:
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
    return f"from {names}; {chi2_text(fit.chi2, fit.dof)}"
