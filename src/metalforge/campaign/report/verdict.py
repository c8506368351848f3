"""What a campaign found, in words: numbers that are established, intervals with what they lack.

A number that is not established does not stand there bare, neither in a terminal nor on a page: an interval does.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from metalforge.campaign.analysis.evidence import Evidence
from metalforge.campaign.theory import SizeLaw
from metalforge.statistics import with_error

from .html import Raw, box, items, link, paragraph
from .result import CampaignResult, Quoted, Reported, SystemResult
from .words import chi2_text, interval_text, item_text, say, system_name, system_text

if TYPE_CHECKING:
    from metalforge.campaign.analysis.finite_size import FiniteSizeFit


def peak_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines for a terminal: the headline first, then every system with its evidence."""
    if (fit := result.extrapolation) is not None and result.limit is not None:
        yield from _stated(result.limit, result.limit_name, result.line_evidence)
        yield f"  {_quality(fit)}"
    if result.finite_size is not None:
        yield from (f"  {caution}" for caution in result.finite_size.cautions)
    for volume in result.systems:
        yield from _volume(volume)


def found_lines(result: CampaignResult) -> Iterator[str]:
    """Give the lines of a campaign whose systems each say in words what was found."""
    for volume in result.systems:
        verdict = "established" if volume.established else "not established"
        yield f"{system_name(volume.system)}: {volume.said}, {verdict}"
        yield from _items(volume.evidence)


def _volume(volume: SystemResult) -> Iterator[str]:
    if volume.result.value is None:
        yield f"{volume.result.name}({system_name(volume.system)}): not located"
        yield from (f"  lacking: {item_text(item)}" for item in volume.evidence if not item.holds)
        return
    yield from _stated(volume.result, system_name(volume.system), volume.evidence)
    yield from _items(volume.evidence)


def _items(evidence: Sequence[Evidence]) -> Iterator[str]:
    return (f"  {'holds' if item.holds else 'lacks'}: {item_text(item)}" for item in evidence)


def _stated(found: Quoted, where: str, evidence: Sequence[Evidence]) -> Iterator[str]:
    value, error = found.value or 0.0, found.error or 0.0
    if found.established:
        yield f"{found.name}({where}) = {with_error(value, error)}, established"
        return
    lacking = ", ".join(item.name for item in evidence if not item.holds)
    yield f"{found.name}({where}): not established; the data so far point to {interval_text(value, error)} (one error)"
    yield f"  not to be quoted, for lack of: {lacking}"


def verdict(shown: Reported) -> tuple[Raw, list[str]]:
    """Return the title of the page and what stands below it: a number only where it is established."""
    result = shown.result
    found, label = result.quoted, escape(result.words.found)
    if found.value is None or found.error is None:
        return Raw(f"{label} is not located"), [paragraph(f"Why: {result.headline.reason}", "warn")]
    law = shown.spec.theory.size_law
    if not result.established:
        interval = interval_text(found.value, found.error)
        name = result.words.coupling
        said = say("verdict.interval", where=_subject(result, law), coordinate=name, interval=interval)
        lacking = [item_text(item) for item in result.evidence if not item.holds]
        return Raw(f"{label} is not established"), [box(paragraph(said), items(lacking))]
    value = with_error(found.value, found.error)
    peak, fit = result.headline.transition, result.extrapolation
    meaning, rests = "", ""
    if fit is not None and law is not None:
        meaning = say("verdict.of-infinite", limit=law.limit, order=result.order, quality=_quality(fit))
        rests = say("verdict.infinite-rests", systems=len(fit.systems))
    elif peak is not None:
        name, words = system_text(peak.system), result.words
        known = {"coordinate": words.coupling, "kind": words.system, "order": result.order, "system": name}
        meaning = say("verdict.of-volume", found=peak, **known)
        rests = say("verdict.volume-rests", found=peak, held=len(result.headline.evidence))
    return Raw(f'{label} = <span class="value">{value}</span>'), [
        paragraph(meaning),
        paragraph(Raw(f"{escape(rests)} {link('All the evidence', '#evidence').html}.")),
    ]


def _subject(result: CampaignResult, law: SizeLaw | None) -> str:
    if (fit := result.extrapolation) is not None and law is not None:
        return say("verdict.infinite", limit=law.limit, quality=_quality(fit))
    return say("verdict.peak", order=result.order, system=system_text(result.headline.system))


def _quality(fit: "FiniteSizeFit") -> str:
    """Return from which systems an extrapolation is, and how well they fit."""
    names = ", ".join(system_name(system) for system in fit.systems)
    return f"from {names}; {chi2_text(fit.chi2, fit.dof)}"
