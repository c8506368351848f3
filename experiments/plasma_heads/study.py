"""Heads that say the transport coefficients of a plasma, for the commands: docs/protocols/plasma_heads.md."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from metalforge.conductor.plasma import HEADS
from metalforge.core.pages import Paragraphs, TextTable
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.weights import EsnWeights

from .corpus import PLASMA_GRIDS as GRIDS
from .corpus import PlasmaCorpus, PlasmaRecord
from .corpus import plasma_entries as entries
from .corpus import record_plasma as record
from .evaluation import TransportEvaluation, evaluate_transport, parts_of
from .training import heads_of, train_transport

__all__ = ["GRIDS", "KIND", "TITLE", "UNIT", "corpus", "entries", "judge", "record", "train"]

TITLE, UNIT, KIND = "Transport heads on held-out state points", "atom_steps", PlasmaCorpus
_notes = Paragraphs(Path(__file__).with_name("notes.toml"))


def corpus(grid: str, seed: int, runs: Iterable[PlasmaRecord]) -> PlasmaCorpus:
    """Return the runs of a grid as a corpus."""
    return PlasmaCorpus(grid=grid, records=tuple(runs))


def train(made: PlasmaCorpus, layout: HeadLayout, seed: int) -> tuple[EsnWeights, list[dict[str, Any]]]:
    """Return weights with the two transport heads, and how each was fitted."""
    runs = made.part("train")
    weights, fitted = train_transport(runs, seed=seed)
    fits = [
        {"name": name, "ridge": fit.ridge, "share": fit.share, "runs": len(runs), "noise": fit.noise}
        for name, fit in zip(HEADS, fitted, strict=True)
    ]
    return weights, fits


def judge(
    made: PlasmaCorpus, layout: HeadLayout, weights: EsnWeights | None, seed: int
) -> tuple[TransportEvaluation, list[TextTable]]:
    """Return what heads are worth on test runs, and their tables; trained anew without weights."""
    runs, _ = parts_of(made)
    heads = train_transport(runs, seed=seed) if weights is None else heads_of(weights, runs)
    found = evaluate_transport(made, heads, seed=seed)
    return found, transport_tables(found)


def transport_tables(found: TransportEvaluation) -> list[TextTable]:
    """Return all tables."""
    study = found.study
    figures = {"seeds": ", ".join(map(str, found.test_seeds)), "study": study, "on": study.tested_on}
    scores = [
        {
            "task": s.task,
            "head": s.head,
            "route": s.route,
            "off by": _percent(s.rms),
            "strongest baseline": f"{_percent(s.baseline)} ({s.baseline_name})",
            "skill": str(s.skill),
            "points": str(s.points),
            "runs": str(s.runs),
            "trusted": ("yes" if s.trusted else "no") if s.task == "T1" else "",
        }
        for s in study.scores
    ]
    rivals = [
        {"task": b.task, "head": b.head, "baseline": b.baseline, "off by": _percent(b.rms)} for b in study.baselines
    ]
    stops = [
        {
            "target": f"{100 * s.target:g} %",
            "rule": s.rule,
            "runs": str(s.runs),
            "reached": str(s.reached),
            "mean time": f"{s.time:.0f}",
            "atom-steps": f"{s.atom_steps:.3g}",
            "saved": f"{100 * s.saved:.0f} %",
            "within 1 error": f"{s.coverage_68:.2f}",
            "within 2": f"{s.coverage_95:.2f}",
            "off by": _percent(s.rms),
        }
        for s in found.stops
    ]
    parts = (("Heads", "heads", scores), ("Baselines", "baselines", rivals), ("When to stop", "stops", stops))
    return [TextTable.of(title, _notes(f"{group}.note", **figures), rows) for title, group, rows in parts]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
