"""The sections of the report about the run: decisions with reasons and trust, energy, efficiency, provenance."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape

from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.store.records import EnergySpent
from metalforge.core import Modelled, Quantity
from metalforge.statistics import with_error

from .decisions import LARGEST_Z, decision_counts, faults_of, warmup_checks, why_not
from .html import Raw, bar, details, listing, note, paragraph, section, table, titled
from .result import Results
from .spec_text import spec_text
from .words import one_line, say, substrate_text, system_text

Figures = Mapping[str, str]


def decisions_section(shown: Results, figures: Figures) -> str:
    """Return what was decided, by whom, whether they were trusted, and every decision in its own words."""
    state, words = shown.state, shown.words
    if not (counts := decision_counts(state)):
        return ""
    fresh, trust = sum(visit.fresh for visit in state.visits), {None: "-", True: "yes", False: "no"}
    visits = [
        (
            visit.visit,
            f"{visit.at - state.opened.at:.1f}",
            f"{visit.coordinate:.5f}",
            system_text(visit.system),
            ("new " if visit.fresh else "") + visit.chain,
            visit.by,
            one_line(visit.reason),
        )
        for visit in state.visits
    ]
    others = [
        (f"{d.at - state.opened.at:.1f}", d.what, d.chain or "-", d.by, trust[d.trusted], one_line(d.reason))
        for d in state.other_decisions
    ]
    visit_columns = (">visit", ">at [s]", f">{words.coordinate}", words.system, "chain", "by", "why")
    other_columns = (">at [s]", "what", "chain", "by", "trusted", "why")
    return section(
        "Decisions",
        paragraph(f"{fresh} new chains, {len(visits) - fresh} visits to chains that were there."),
        figures.get("decisions", ""),
        table(
            ("decision", "by", ">how often", ">decided by a head"),
            [(what, by, count, by_heads or "-") for what, by, count, by_heads in counts],
        ),
        *_tables(shown, figures),
        details(f"All {len(visits)} visits, with reasons", table(visit_columns, visits)),
        details(f"All {len(others)} other decisions, with reasons", table(other_columns, others)),
    )


def _tables(shown: Results, figures: Figures) -> Iterator[str]:
    """Give expected peaks, heads, ends of warm-ups, and blocks that were thrown away."""
    state, words = shown.state, shown.words
    yield titled(
        "Where the peak was expected",
        say("sections.expected"),
        # Reasons are in the coordinate, too, whatever is quoted as the result.
        (words.system, "by", f">{words.coordinate}", ">by the curve", "why"),
        [
            (
                system_text(d.system),
                d.by,
                with_error(d.value, d.width),
                "-" if d.baseline is None else f"{d.baseline:.4f}",
                one_line(d.reason),
            )
            for d in state.decisions
            if d.what == PEAK_PRIOR and d.system and d.value is not None and d.width is not None
        ],
    )
    yield titled(
        "Heads of the conductor",
        say("sections.heads"),
        ("head", "acts", ">skill", "what differs (modelled), or why not", "measured in"),
        [
            (
                name,
                "yes" if found.acts else "no",
                "-" if found.skill is None else f"{found.skill:+.2f}",
                found.effect.text if found.effect else why_not(state.heads[name]),
                found.effect.measured if found.effect else "",
            )
            for name, found in shown.heads.items()
        ],
    )
    yield titled(
        "Had the warm-ups ended?",
        say("sections.warmups", largest=LARGEST_Z),
        ("ended by", ">chains", ">mean length", ">judged", ">over", ">largest |z|"),
        [
            (w.by, w.chains, f"{w.mean_updates:.0f}", w.judged, w.over, f"{w.largest_z:.1f}" if w.judged else "-")
            for w in warmup_checks(state)
        ],
    )
    yield titled(
        "Blocks that were computed again",
        say("sections.faults"),
        ("chain", ">update", "found by", "why", "what was done"),
        [(f.chain, f.step, f.by, one_line(f.reason), f.done) for f in faults_of(state)],
    )


def energy_section(shown: Results) -> str:
    """Return the ledger: every substrate and source in lines of its own, no total."""
    rows = [line for entry in shown.energy for line in energy_lines(entry)]
    columns = ("substrate", "source", "what", ">energy", "how")
    return section("Energy", table(columns, rows), note(say("sections.energy")) if rows else "")


def efficiency_section(shown: Results, figures: Figures) -> str:
    """Return how well the silicon was used, and what orderings gave where they were compared."""
    state = shown.state
    nodes = () if state.topology is None else state.topology.stages
    where = {node.name: host_of(node.substrate) for node in nodes}
    last = next((sample for sample in reversed(state.samples) if sample.stages), None)
    window_s = 0.0 if last is None else last.window_s
    rows = []
    for use in () if last is None else last.stages:
        busy = min(use.busy_s / window_s, 1.0) if window_s else 0.0
        waited = f"{use.waited_get_s:.1f}"
        rows.append((use.stage, where.get(use.stage, ""), use.items, f"{busy:.0%}", bar(busy), waited))
    said = say(
        "sections.efficiency",
        ordering=state.ordering,
        rate=shown.effective_per_second,
        order=shown.theory.order.text,
        per_joule=per_joule(shown),
    )
    return section(
        "Efficiency",
        paragraph(said) if state.trajectories else "",
        paragraph(f"Chosen by measurement: {state.chosen.reason}") if state.chosen else "",
        table(("lane", "device", ">updates", ">share"), updates_by_lane(state)),
        table(("stage", "on", ">items", ">busy", "=", ">waited for input [s]"), rows),
        note(f"Time of this host, over the last {window_s:.1f} s of running.") if rows else "",
        *map(paragraph, device_times(shown)),
        figures.get("pipeline", ""),
        figures.get("silicon", ""),
    )


def updates_by_lane(state: CampaignState) -> list[tuple[str, str, str, str]]:
    """Return which lane, on which device, made how many of the updates."""
    made = sum((chain.made_on for chain in state.chains.values()), Counter[str]())
    devices = {silicon.name: f"{silicon.device}, {silicon.model}" for silicon in state.opened.silicon}
    return [
        (substrate_text(name), devices.get(name, "-"), f"{count:,}", f"{count / made.total():.0%}")
        for name, count in made.most_common()
    ]


def energy_lines(entry: EnergySpent) -> list[tuple[str, str, str, str, str]]:
    """Return the lines of one entry: substrate, source, what it is, how much, and where the number comes from."""
    name = substrate_text(entry.substrate)
    if entry.emulation_s is not None:
        how = "processor time that the emulator took of the host, measured"
        return [(name, entry.source, "emulation", f"{entry.emulation_s:.2f} s", how)]
    if entry.held_s is None:
        return [(name, entry.source, "in all", *_joules(entry.energy, entry.reason))]
    work = "above idle" if entry.idle is not None else "while it worked"
    spent, how = _joules(entry.energy, entry.reason)
    idle, why = _joules(entry.idle, entry.reason)
    took = "" if entry.busy is None else f", {entry.busy.value:.2f} s of device time"
    held = f", {entry.held_s:.1f} s of wall time in which the campaign held the board"
    return [(name, entry.source, work, spent, how + took), (name, entry.source, "idle", idle, why + held)]


def host_of(substrate: str | None) -> str:
    """Return where a stage's measured time was spent: that of an emulated device is the host's."""
    name = substrate_text(substrate)
    return f"host, as {name}" if "emulated" in name else name


def device_times(shown: Results) -> list[str]:
    """Return how long each emulated board would have worked, and apart from it what the emulation took."""
    emulation = sum(e.emulation_s for e in shown.energy if e.emulation_s is not None)
    return [
        say(
            "sections.device",
            name=substrate_text(e.substrate),
            busy=e.busy,
            held=e.held_s,
            share=e.busy.value / e.held_s,
            emulation=emulation,
        )
        for e in shown.energy
        if isinstance(e.busy, Modelled) and e.held_s
    ]


def per_joule(shown: Results) -> str:
    """Return effective samples per joule: of all substrates if one kind of source knows them, else of metered ones."""
    entries = [entry for entry in shown.energy if entry.emulation_s is None]
    kinds = {entry.source for entry in entries}
    joules = sum(part.value for entry in entries for part in (entry.energy, entry.idle) if part is not None)
    if len(kinds) == 1 and kinds <= {"measured", "modelled"} and joules > 0:
        return f"That is {shown.effective_per_second * shown.seconds / joules:.3g} per joule ({kinds.pop()})."
    metered = {e.substrate: e.energy.value for e in entries if e.source == "measured" and e.energy is not None}
    if not sum(metered.values()) > 0:
        return say("sections.no-joules")
    return say(
        "sections.metered-joules",
        per_joule=shown.effective_per_second * shown.seconds / sum(metered.values()),
        on=", ".join(map(substrate_text, metered)),
        others=", ".join(f"{substrate_text(e.substrate)} ({e.source})" for e in entries if e.substrate not in metered),
    )


def _joules(energy: Quantity | None, reason: str) -> tuple[str, str]:
    if energy is None:
        return "unknown", reason
    how = f"modelled: {energy.profile}" if isinstance(energy, Modelled) else f"measured: {energy.how}"
    return f"{energy.value:.4g} {energy.unit}", how


def checks_section(shown: Results) -> str:
    """Return how far configurations were off when they were evaluated again, and whether all that should be were."""
    state = shown.state
    drift = [found for _, found in sorted(state.drift.items())]
    promised = sum(chain.promised for chain in state.chains.values())
    lacking = sum(len(chain.unchecked) for chain in state.chains.values())
    said = f"{promised - lacking:,} of {promised:,} configurations that were to be checked were."
    rows = [(d.precision, d.substrate, d.checks, *(f"{off:.1e}" for off in d.largest.values())) for d in drift]
    measured = drift[0].largest if drift else ()
    return section(
        "Checks in higher precision",
        table(("precision", "on", ">configurations", *(f">largest drift of {name}" for name in measured)), rows),
        paragraph(said, "warn" if lacking else "") if promised else "",
    )


def provenance_section(shown: Results) -> str:
    """Return what one needs to do it again."""
    state, opened = shown.state, shown.state.opened
    command = shlex.join(opened.command) if opened.command else "not recorded"
    versions = ", ".join(f"{name} {number}" for name, number in sorted(opened.versions.items()))
    rows = [
        ("command", Raw(f"<code>{escape(command)}</code>")),
        ("seed", f"{opened.spec.seed}; chain c0000 is stream 0, and so on"),
        ("begun", datetime.fromtimestamp(opened.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")),
        ("processes", f"{1 + len(state.resumed)} (resumed {len(state.resumed)} times), {_moves(state)}"),
        ("host", opened.host or "not recorded"),
        ("metalforge", f"{opened.package_version}, kernels at level {opened.isa}"),
        (
            "commit",
            Raw(f"<code>{escape(opened.commit)}</code>, as checked out; edits after it are not recorded")
            if opened.commit
            else "not recorded: not run from a git checkout",
        ),
        ("Python", f"{opened.python}; {versions}" if versions else opened.python),
        ("spec", Raw(f"<code>sha256 {escape(opened.spec_sha256)}</code>")),
        *(("extended by", Raw(f"<code>{escape(shlex.join(more.command))}</code>")) for more in state.extended),
        ("computed", Raw(f"<code>digest {escape(state.digest())}</code>")),
    ]
    silicon = table(
        ("substrate", "device", "model", "does"),
        [(substrate_text(s.name), s.device, s.model, s.role) for s in opened.silicon],
    )
    return section(
        "Provenance",
        table(("", ""), rows),
        note(say("sections.digest")),
        silicon,
        details("The spec", listing(spec_text(state.spec))),
    )


def _moves(state: CampaignState) -> str:
    """Return how often chains went to another substrate: one chain may go several times."""
    if not state.migrations:
        return "no chain migrated"
    times, chains = len(state.migrations), len({move.chain for move in state.migrations})
    return f"{times} migration{'s' * (times != 1)} of {chains} chain{'s' * (chains != 1)}"
