"""The results of `heads evaluate` as tables."""

from collections.abc import Sequence
from pathlib import Path

from metalforge.conductor.scores import HeadScore
from metalforge.core.pages import Paragraphs, TextTable
from metalforge.core.schema import HeadLayout

from .evaluation import NeitherPhase
from .scores import FaultGate, HeadsEvaluation, StopStudy, least_seen

_notes = Paragraphs(Path(__file__).with_name("notes.toml"))


def tables(found: HeadsEvaluation, neither: NeitherPhase | None, layout: HeadLayout) -> list[TextTable]:
    """Return all tables; heads of the layout that no chain has labels for are named as untested."""
    untested = [name for name in layout.names if name not in {score.name for score in found.heads}]
    made = [_heads(found, untested)]
    made += [] if neither is None else [_neither(neither)]
    made += [_peak(found)] if found.peak else []
    made += [stop_table(found.thermalisation_stop)]
    return made if found.gate is None else [*made, _gate(found.gate)]


def _heads(found: HeadsEvaluation, untested: Sequence[str]) -> TextTable:
    notes = _notes("heads.note", seeds=", ".join(map(str, found.test_seeds)))
    notes += _notes("heads.untested", names=", ".join(untested)) if untested else []
    notes += _notes("heads.unknown", names="; ".join(found.unknown)) if found.unknown else []
    return TextTable.of("Heads", notes, [_head_row(score) for score in found.heads])


def _head_row(s: HeadScore) -> dict[str, str]:
    interval = "" if s.skill_low is None else f"{s.skill_low:+.2f} .. {s.skill_high:+.2f}"
    apart = [f"{x:+.2f}" if x is not None else "-" for x in (s.skill_hot, s.skill_cold)]
    return {
        "head": s.name,
        "on": s.of,
        "route": s.route,
        "metric": s.metric,
        "value": f"{s.value:.4g}",
        "95 % interval": f"{s.low:.4g} .. {s.high:.4g}",
        "strongest baseline": f"{s.baseline:.4g} ({s.baseline_name})",
        "skill": f"{s.skill:+.3f}",
        "of skill": interval,
        "hot, cold": ", ".join(apart),
        "clusters": str(s.clusters),
        "trusted": "yes" if s.trusted else "no",
    }


def _neither(found: NeitherPhase) -> TextTable:
    known = found.value is not None and found.baseline is not None
    row = {
        "head": found.name,
        "chains": str(found.chains),
        "accuracy": f"{found.value:.3f}" if known else "",
        "baseline": f"{found.baseline:.3f} ({found.baseline_name})" if known else "",
    }
    return TextTable.of("Chains of neither phase", _notes("neither.note"), [row])


def _peak(found: HeadsEvaluation) -> TextTable:
    rows = [
        {
            "N_t": str(p.n_t),
            "clusters": str(p.clusters),
            "head": f"{p.head:.4f}",
            "transition curve": f"{p.curve:.4f}",
            "two-loop scaling": f"{p.two_loop:.4f}",
        }
        for p in found.peak
    ]
    spread = ", ".join(f"{s.error:.4f} up to {s.x:g}" for s in found.peak_spread)
    return TextTable.of("The peak on an N_t that was left out", _notes("peak.note", spread=spread), rows)


def stop_table(study: StopStudy) -> TextTable:
    """Return the early stop of warm-up: every rule with its length and what it leaves of the start."""
    notes = _notes("stop.note", study=study, seen=least_seen(1 / study.chains))
    rows = [
        {
            "rule": r.rule,
            "mean length": f"{r.length:.0f}",
            "premature": f"{r.premature:.3f}",
            "P, hot": str(r.plaquette_hot),
            "P, cold": str(r.plaquette_cold),
            "|L|, hot": str(r.polyakov_hot),
            "|L|, cold": str(r.polyakov_cold),
            "unbiased": "yes" if r.unbiased else "no",
        }
        for r in study.rules
    ]
    return TextTable.of("Early stop of warm-up", notes, rows)


def _gate(gate: FaultGate) -> TextTable:
    def delay(updates: float | None) -> str:
        return "-" if updates is None else f"{updates:.0f}"

    rows = [
        {
            "fault": f.fault,
            "chains": str(f.chains),
            "found by rules": f"{f.found_by_rules:.2f}",
            "delay": delay(f.delay_by_rules),
            "found with the head": f"{f.found_with_head:.2f}",
            "delay with the head": delay(f.delay_with_head),
        }
        for f in gate.faults
    ]
    rates = [1e5 * n / gate.updates for n in (gate.alarms_by_rules, gate.alarms_with_head)]
    return TextTable.of("Fault gate", _notes("gate.note", gate=gate, rules=rates[0], both=rates[1]), rows)
