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
from .result import Quoted, Results, SystemResult
from .words import chi2_text, interval_text, item_text, say, system_name, system_text

if TYPE_CHECKING:
    from metalforge.campaign.analysis.finite_size import FiniteSizeFit


def peak_lines(shown: Results) -> Iterator[str]:
    """Give the lines for a terminal: the headline first, then every system with its evidence."""
    if (fit := shown.extrapolation) is not None:
        yield from _stated(shown.quoted, shown.limit_name, shown.evidence)
        yield f"  {_quality(fit)}"
    if shown.finite_size is not None:
        yield from (f"  {caution}" for caution in shown.finite_size.cautions)
    for volume in shown.systems:
        yield from _volume(volume)


def found_lines(shown: Results) -> Iterator[str]:
    """Give the lines of a campaign whose systems each say in words what was found."""
    for volume in shown.systems:
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


def verdict(shown: Results) -> tuple[Raw, list[str]]:
    """Return the title of the page and what stands below it: a number only where it is established."""
    found, label = shown.quoted, escape(shown.words.found)
    if found.value is None or found.error is None:
        return Raw(f"{label} is not located"), [paragraph(f"Why: {shown.systems[0].reason}", "warn")]
    law = shown.theory.size_law
    if not shown.established:
        interval = interval_text(found.value, found.error)
        name = shown.words.coupling
        said = say("verdict.interval", where=_subject(shown, law), coordinate=name, interval=interval)
        lacking = [item_text(item) for item in shown.evidence if not item.holds]
        return Raw(f"{label} is not established"), [box(paragraph(said), items(lacking))]
    value = with_error(found.value, found.error)
    peak, fit = shown.systems[0].transition, shown.extrapolation
    meaning, rests = "", ""
    if fit is not None and law is not None:
        meaning = say("verdict.of-infinite", limit=law.limit, order=shown.theory.order.text, quality=_quality(fit))
        rests = say("verdict.infinite-rests", systems=len(fit.systems))
    elif peak is not None:
        name, words = system_text(peak.system), shown.words
        known = {"coordinate": words.coupling, "kind": words.system, "order": shown.theory.order.text, "system": name}
        meaning = say("verdict.of-volume", found=peak, **known)
        rests = say("verdict.volume-rests", found=peak, held=len(shown.systems[0].evidence))
    return Raw(f'{label} = <span class="value">{value}</span>'), [
        paragraph(meaning),
        paragraph(Raw(f"{escape(rests)} {link('All the evidence', '#evidence').html}.")),
    ]


def _subject(shown: Results, law: SizeLaw | None) -> str:
    if (fit := shown.extrapolation) is not None and law is not None:
        return say("verdict.infinite", limit=law.limit, quality=_quality(fit))
    return say("verdict.peak", order=shown.theory.order.text, system=system_text(shown.systems[0].system))


def _quality(fit: "FiniteSizeFit") -> str:
    """Return from which systems an extrapolation is, and how well they fit."""
    names = ", ".join(system_name(system) for system in fit.systems)
    return f"from {names}; {chi2_text(fit.chi2, fit.dof)}"
