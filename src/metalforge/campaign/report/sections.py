"""The sections of the report about physics: beta_c, its evidence, the curves, all chains, where the updates went."""

from collections.abc import Mapping, Sequence

from metalforge.campaign.advice import known_of, size_cautions
from metalforge.campaign.observables import ORDERS
from metalforge.campaign.spec import Lattice
from metalforge.campaign.state import CampaignState
from metalforge.lattice.registered import Observable, described
from metalforge.statistics.estimate import with_error

from .figure_data import COMPARED, ComparedCampaign, apart
from .figures_of_evidence import FIGURES as EVIDENCE_FIGURES
from .html import Raw, card, details, heading, note, paragraph, section, table
from .points import ChainResult
from .result import CampaignResult, VolumeResult
from .verdict import comparison, verdict
from .words import (
    ENDINGS,
    beta_text,
    chi2_text,
    duration,
    estimate_text,
    found_text,
    interval_text,
    lattice_text,
    needed_text,
    remark_text,
    say,
    substrates_text,
)

Figures = Mapping[str, str]
QUARK_COLUMNS = ("chain", "lattice", ">beta", ">measured", ">Re L", ">condensate", ">chi_disc", ">chi_con")
YES, NO = Raw("yes"), Raw('<b class="no">no</b>')


def headline(state: CampaignState, result: CampaignResult) -> str:
    """Return the top of the page: beta_c, what it means, how it stopped."""
    lattice, first = state.spec.gauge, result.headline
    theory = (
        "quenched SU(3)"
        if not lattice.flavors
        else f"SU(3) with {lattice.flavors} staggered quarks, am = {lattice.mass:g}"
    )
    title, meaning = verdict(result)
    cards = [
        card(lattice_text(first.dims), theory),
        card(f"{state.trajectories:,}", "updates, warm-up included"),
        card(duration(result.seconds), f"wall time, {result.updates_per_second:.0f} updates/s"),
        card(state.ordering, f"ordering, on {substrates_text([s.name for s in state.opened.silicon])}"),
    ]
    return "\n".join([
        f'<header>{paragraph(f"metalforge campaign {state.spec.name}", "kind")}<h1>{title.html}</h1></header>',
        *meaning,
        note(say("sections.recomputed")) if result.recomputed else "",
        paragraph(f"{compared[0].upper()}{compared[1:]}.") if (compared := comparison(state.spec, result)) else "",
        *(paragraph(caution, "warn") for caution in size_cautions(state.spec)),
        paragraph(_ending(state)),
        f'<div class="cards">{"".join(cards)}</div>',
    ])  # fmt: skip


def _ending(state: CampaignState) -> str:
    if state.stopped_by is not None:
        return f"It ended by itself: {ENDINGS[state.stopped_by]}."
    if state.interruption is not None:
        return f"It was interrupted ({state.interruption.reason}) and is not finished: metalforge resume goes on."
    return "It has not finished: these are the numbers so far."


def transition_section(result: CampaignResult, figures: Figures) -> str:
    """Return the physics: the curves, the peak of every volume, what was left out, several volumes."""
    rows = [_volume_row(volume) for volume in result.volumes]
    columns = ("lattice", ">beta_c", ">peak of chi", ">B4 there", ">chains", ">measured", ">effective", ">tau_int")
    left = [
        (lattice_text(volume.dims), f"{out.beta:.5g}", out.rows, out.reason)
        for volume in result.volumes
        if volume.transition is not None
        for out in volume.transition.left_out
    ]
    missing = [volume for volume in result.volumes[1:] if volume.transition is None]
    return section(
        "The transition",
        figures.get("transition", ""),
        table(columns, rows),
        *(paragraph(f"{lattice_text(volume.dims)} is not located: {volume.reason}", "warn") for volume in missing),
        note(say("sections.transition", order=ORDERS[result.observable].text)),
        details(f"{len(left)} chains were left out", table(("lattice", ">beta", ">rows", "why"), left)) if left else "",
        figures.get("volumes", ""),
        _finite_size(result),
        figures.get("plaquette", ""),
    )


def _volume_row(volume: VolumeResult) -> tuple[object, ...]:
    name, found = lattice_text(volume.dims), volume.transition
    if found is None:
        return (name, "not located", "-", "-", volume.chains, volume.measured, "-", "-")
    number = beta_text(found.beta_c, found.error)
    return (
        name,
        number if volume.established else f"not established: {interval_text(found.beta_c, found.error)}",
        with_error(found.height, found.height_error),
        with_error(found.b4, found.b4_error),
        found.chains,
        found.samples,
        f"{found.n_effective:.0f}",
        f"{found.tau_int:.1f}",
    )


def _finite_size(result: CampaignResult) -> str:
    if result.finite_size is None:
        return ""
    parts = [paragraph(caution, "warn") for caution in result.finite_size.cautions]
    if (fit := result.finite_size.fit) is not None:
        inside = f"within {interval_text(fit.beta_c, fit.error)}, not established"
        number = f"= {with_error(fit.beta_c, fit.error)}" if result.established else inside
        h = with_error(fit.h, fit.h_error)
        parts.append(paragraph(say("sections.infinite-volume", number=number, h=h, chi2=chi2_text(fit.chi2, fit.dof))))
    return "\n".join(parts)


def compared_section(beside: Sequence[ComparedCampaign], figures: Figures) -> str:
    """Return several campaigns in one figure and one table; empty where none is compared."""
    if not beside:
        return ""
    lines = table(COMPARED, [campaign.line for campaign in beside])
    return section("Compared", figures.get("compared", "") or paragraph(f"There is {apart(beside)}."), lines)


def evidence_section(result: CampaignResult, figures: Figures) -> str:
    """Return the items of every volume, and what they were judged from."""
    parts = [(lattice_text(volume.dims), volume.evidence) for volume in result.volumes]
    if result.extrapolation is not None:
        parts.insert(0, ("infinite volume", result.line_evidence))
    tables = []
    for name, evidence in parts:
        rows = [
            (item.name, found_text(item), needed_text(item) or "-", YES if item.holds else NO, remark_text(item))
            for item in evidence
        ]
        shown = table(("item", ">found", ">needed", "holds", "what was seen, or would help"), rows)
        title = f"{name}: {'established' if all(item.holds for item in evidence) else 'not established'}"
        tables.append(heading(title, shown) if len(result.volumes) > 1 else shown)
    return section(
        "Evidence",
        paragraph(say("sections.evidence")),
        *tables,
        *(figures.get(name, "") for name in EVIDENCE_FIGURES),
        anchor="evidence",
    )


def quarks_section(lattice: Lattice | None, result: CampaignResult, figures: Figures) -> str:
    """Return what only sea quarks have, and what is known of their transition; empty without them."""
    known = known_of(lattice)
    if not known:
        return ""
    rows = [
        (chain.id, lattice_text(chain.dims), f"{chain.beta:.5f}", chain.measured, *map(estimate_text, chain.quarks))
        for chain in result.chains
        if chain.quarks is not None
    ]
    return section(
        "Sea quarks",
        figures.get("quarks", ""),
        table(QUARK_COLUMNS, rows),
        note(say("sections.quarks" if rows else "sections.no-quarks")),
        heading("What is known of this transition", *(paragraph(fact.cited) for fact in known)),
    )


def history_section(figures: Figures) -> str:
    """Return histories, and how HMC ran."""
    return section("Histories", figures.get("histories", ""), figures.get("hmc", ""))


def points_section(result: CampaignResult, downloads: str) -> str:
    """Return the table of chains, and where every row can be had."""
    several = len(result.volumes) > 1
    names = dict.fromkeys(name for chain in result.chains for name in chain.values)
    first, *others = [shown for name in ("plaquette", *names) if (shown := described(name)).label]
    others = [observable for observable in others if observable != first]
    columns = ["chain", *["lattice"] * several, ">beta", f">{first.label}", f">{ORDERS[result.observable].text}"]
    columns += [">tau_int", ">chi", ">warm-up", ">measured", *(f">{o.label}" for o in others), ">updates/s"]
    rows = []
    for chain in result.chains:
        warm = chain.quenched + chain.warmup
        rows.append([
            chain.id,
            *[lattice_text(chain.dims)] * several,
            f"{chain.beta:.5f}",
            _value(chain, first),
            estimate_text(chain.order),
            "-" if chain.order is None else f"{chain.order.tau_int:.1f}",
            estimate_text(chain.chi),
            warm,
            chain.measured,
            *(_value(chain, observable) for observable in others),
            "-" if chain.seconds <= 0 else f"{(warm + chain.measured) / chain.seconds:.0f}",
        ])  # fmt: skip
    said = say("sections.points")
    said += "".join(say(f"sections.{name}") for name in ("delta_h", "cg_iterations") if name in names)
    given_up = [
        paragraph(f"{c.id} at beta {c.beta:.5g} was given up: {c.abandoned}", "warn")
        for c in result.chains
        if c.abandoned
    ]
    return section("Every chain", table(columns, rows), note(said) if rows else "", *given_up, downloads)


def _value(chain: ChainResult, observable: Observable) -> str:
    found = chain.values.get(observable.name)
    return "-" if found is None else observable.text(found.mean, found.error or 0.0)


def updates_section(result: CampaignResult, figures: Figures) -> str:
    """Return where the updates went and how the error fell."""
    warm = sum(chain.quenched + chain.warmup for chain in result.chains)
    total = warm + sum(chain.measured for chain in result.chains)
    said = f"{warm:,} of {total:,} updates ({warm / total:.0%}) were warm-up." if total else ""
    return section(
        "Where the updates went", paragraph(said) if said else "", figures.get("updates", ""), figures.get("error", "")
    )
