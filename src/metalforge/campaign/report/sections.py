"""The sections of every report: what was found, in words, its evidence, the curves, all chains, where updates went.

A number that is not established does not stand there bare, neither in a terminal nor on a page: an interval does.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from metalforge.campaign.analysis.evidence import Evidence
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import SizeLaw
from metalforge.core import Observable
from metalforge.statistics import with_error

from .html import Raw, box, card, details, heading, items, link, note, paragraph, section, table
from .result import ChainResult, Quoted, Results, SystemResult
from .words import (
    ENDINGS,
    chi2_text,
    duration,
    estimate_text,
    found_text,
    interval_text,
    item_text,
    needed_text,
    number_text,
    remark_text,
    say,
    substrates_text,
    system_name,
    system_text,
)

if TYPE_CHECKING:  # loaded where it is asked for
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


Figures = Mapping[str, str]
YES, NO = Raw("yes"), Raw('<b class="no">no</b>')


def headline(
    shown: Results,
    title: Raw,
    meaning: Sequence[str],
    *,
    theory: str,
    update: str = "",
) -> str:
    """Return the top of the page: the result, what it means, how it stopped; `theory` is the physics in words."""
    state, words, report = shown.state, shown.words, shown.theory.report
    compared = report.comparison(shown)
    rate = state.trajectories / shown.seconds if shown.seconds > 0 else 0.0
    cards = [
        card(system_text(shown.systems[0].system), theory),
        card(f"{state.trajectories:,}", f"{words.update}s{update}, warm-up included"),
        card(duration(shown.seconds), f"wall time, {rate:.{0 if rate >= 10 else 2}f} {words.update}s/s"),
        card(state.ordering, f"ordering, on {substrates_text([s.name for s in state.opened.silicon])}"),
    ]
    return "\n".join([
        f'<header>{paragraph(f"metalforge campaign {state.spec.name}", "kind")}<h1>{title.html}</h1></header>',
        *meaning,
        paragraph(f"{compared[0].upper()}{compared[1:]}.") if compared else "",
        *(paragraph(caution, "warn") for caution in report.cautions(state.spec)),
        paragraph(_ending(state)),
        f'<div class="cards">{"".join(cards)}</div>',
    ])  # fmt: skip


def _ending(state: CampaignState) -> str:
    if state.stopped_by is not None:
        return f"It ended by itself: {ENDINGS[state.stopped_by]}."
    if state.interruption is not None:
        return f"It was interrupted ({state.interruption.reason}) and is not finished: metalforge resume goes on."
    return "It has not finished: these are the numbers so far."


def transition_section(shown: Results, figures: Figures) -> str:
    """Return the physics: the curves, the peak of every system, what was left out, several systems."""
    rows, words, order = [_volume_row(volume) for volume in shown.systems], shown.words, shown.theory.order.text
    columns = (words.system, f">{words.found}", ">peak of chi", ">B4 there", f">{words.chain}s", ">measured")
    left = [
        (system_text(volume.system), f"{out.coordinate:.5g}", out.rows, out.reason)
        for volume in shown.systems
        if volume.transition is not None
        for out in volume.transition.left_out
    ]
    missing = [volume for volume in shown.systems[1:] if volume.transition is None]
    left_out = table((words.system, f">{words.coordinate}", ">rows", "why"), left)
    return section(
        "The transition",
        figures.get("transition", ""),
        table((*columns, ">effective", ">tau_int"), rows),
        *(paragraph(f"{system_text(volume.system)} is not located: {volume.reason}", "warn") for volume in missing),
        note(say("sections.transition", order=order)),
        details(f"{len(left)} {words.chain}s were left out", left_out) if left else "",
        figures.get("systems", ""),
        _finite_size(shown),
    )


def _volume_row(volume: SystemResult) -> tuple[object, ...]:
    name, found, quoted = system_text(volume.system), volume.transition, volume.result
    if found is None or quoted.value is None or quoted.error is None:
        return (name, "not located", "-", "-", volume.chains, volume.measured, "-", "-")
    number = number_text(quoted.value, quoted.error)
    return (
        name,
        number if volume.established else f"not established: {interval_text(quoted.value, quoted.error)}",
        with_error(found.height, found.height_error),
        with_error(found.b4, found.b4_error),
        found.chains,
        found.samples,
        f"{found.n_effective:.0f}",
        f"{found.tau_int:.1f}",
    )


def _finite_size(shown: Results) -> str:
    if shown.finite_size is None:
        return ""
    parts = [paragraph(caution, "warn") for caution in shown.finite_size.cautions]
    if (fit := shown.finite_size.fit) is not None:
        inside = f"within {interval_text(fit.result, fit.error)}, not established"
        number = f"= {with_error(fit.result, fit.error)}" if shown.established else inside
        h, chi2 = with_error(fit.h, fit.h_error), chi2_text(fit.chi2, fit.dof)
        limit = f"{shown.limit_name[0].upper()}{shown.limit_name[1:]}"
        name = shown.words.coordinate
        parts.append(paragraph(say("sections.infinite-volume", limit=limit, name=name, number=number, h=h, chi2=chi2)))
    return "\n".join(parts)


def evidence_section(shown: Results, figures: Figures) -> str:
    """Return the items of every volume, and what they were judged from."""
    parts = [(system_text(volume.system), volume.evidence) for volume in shown.systems]
    if shown.extrapolation is not None:
        parts.insert(0, (shown.limit_name, shown.evidence))
    tables = []
    for name, evidence in parts:
        rows = [
            (item.name, found_text(item), needed_text(item) or "-", YES if item.holds else NO, remark_text(item))
            for item in evidence
        ]
        items = table(("item", ">found", ">needed", "holds", "what was seen, or would help"), rows)
        title = f"{name}: {'established' if all(item.holds for item in evidence) else 'not established'}"
        tables.append(heading(title, items) if len(shown.systems) > 1 else items)
    return section(
        "Evidence",
        paragraph(say("sections.evidence")),
        *tables,
        figures.get("evidence", ""),
        anchor="evidence",
    )


def points_section(shown: Results, downloads: str, said: str = "") -> str:
    """Return the table of chains, and where every row can be had."""
    several, words = len(shown.systems) > 1, shown.words
    names = dict.fromkeys(name for chain in shown.chains for name in chain.values)
    others = [column for name in names if (column := shown.theory.described(name)).label]
    columns = [words.chain, *[words.system] * several, f">{words.coordinate}", f">{shown.theory.order.text}"]
    columns += [">tau_int", ">chi", ">warm-up", ">measured", *(f">{o.label}" for o in others), f">{words.update}s/s"]
    rows = []
    for chain in shown.chains:
        warm = chain.cheap + chain.warmup
        rows.append([
            chain.id,
            *[system_text(chain.system)] * several,
            f"{chain.coordinate:.5f}",
            estimate_text(chain.order),
            "-" if chain.order is None else f"{chain.order.tau_int:.1f}",
            estimate_text(chain.chi),
            warm,
            chain.measured,
            *(_value(chain, observable) for observable in others),
            "-" if chain.seconds <= 0 else f"{(warm + chain.measured) / chain.seconds:.0f}",
        ])  # fmt: skip
    given_up = [
        paragraph(f"{c.id} at {words.coordinate} {c.coordinate:.5g} was given up: {c.abandoned}", "warn")
        for c in shown.chains
        if c.abandoned
    ]
    about = note(say("sections.points") + said) if rows else ""
    return section(f"Every {words.chain}", table(columns, rows), about, *given_up, downloads)


def _value(chain: ChainResult, observable: Observable) -> str:
    found = chain.values.get(observable.name)
    return "-" if found is None else (observable.text or with_error)(found.mean, found.error or 0.0)


def updates_section(shown: Results, figures: Figures) -> str:
    """Return where the updates went and how the error fell."""
    warm = sum(chain.cheap + chain.warmup for chain in shown.chains)
    total = warm + sum(chain.measured for chain in shown.chains)
    said = f"{warm:,} of {total:,} {shown.words.update}s ({warm / total:.0%}) were warm-up." if total else ""
    return section(
        "Where the updates went", paragraph(said) if said else "", figures.get("updates", ""), figures.get("error", "")
    )
