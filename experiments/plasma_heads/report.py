"""The results for the transport heads as tables."""

from collections.abc import Sequence
from pathlib import Path

from metalforge.conductor.plasma.heads import said_of
from metalforge.conductor.plasma.scores import TransportScore
from metalforge.core.pages import Paragraphs, TextTable

from .corpus import PlasmaCorpus
from .early_stop import VISCOSITY, stop_transport
from .scores import StopScore, TransportEvaluation
from .tasks import judge_transport
from .training import ROUTES, Route, TransportHeads, inputs_of

_notes = Paragraphs(Path(__file__).with_name("notes.toml"))


def evaluate_transport(
    corpus: PlasmaCorpus, heads: TransportHeads, *, seed: int = 1, routes: Sequence[Route] = ROUTES
) -> TransportEvaluation:
    """Return what heads are worth on the test runs of a corpus, and what they save."""
    train, test = corpus.part("train"), corpus.part("test")
    study = judge_transport(corpus, heads, seed=seed, routes=routes)
    said = said_of(heads.weights, [inputs_of(run) for run in test])[:, VISCOSITY]
    return TransportEvaluation(
        study=study,
        stops=stop_transport(train, test, said, heads.fits[VISCOSITY].noise),
        test_seeds=tuple(sorted({run.entry.seed for run in test})),
        corpus_sha256=corpus.sha256,
    )


def transport_tables(found: TransportEvaluation) -> list[TextTable]:
    """Return all tables."""
    study = found.study
    figures = {"seeds": ", ".join(map(str, found.test_seeds)), "study": study, "on": study.tested_on}
    scores = [_score_row(score) for score in study.scores]
    rivals = [
        {"task": b.task, "head": b.head, "baseline": b.baseline, "off by": f"{100 * b.rms:.1f} %"}
        for b in study.baselines
    ]
    stops = [_stop_row(stop) for stop in found.stops]
    return [
        TextTable.of("Heads", _notes("heads.note", **figures), scores),
        TextTable.of("Baselines", _notes("baselines.note", **figures), rivals),
        TextTable.of("When to stop", _notes("stops.note", **figures), stops),
    ]


def _score_row(s: TransportScore) -> dict[str, str]:
    return {
        "task": s.task,
        "head": s.head,
        "route": s.route,
        "off by": f"{100 * s.rms:.1f} %",
        "strongest baseline": f"{100 * s.baseline:.1f} % ({s.baseline_name})",
        "skill": str(s.skill),
        "points": str(s.points),
        "runs": str(s.runs),
        "trusted": ("yes" if s.trusted else "no") if s.task == "T1" else "",
    }


def _stop_row(s: StopScore) -> dict[str, str]:
    return {
        "target": f"{100 * s.target:g} %",
        "rule": s.rule,
        "runs": str(s.runs),
        "reached": str(s.reached),
        "mean time": f"{s.time:.0f}",
        "atom-steps": f"{s.atom_steps:.3g}",
        "saved": f"{100 * s.saved:.0f} %",
        "within 1 error": f"{s.coverage_68:.2f}",
        "within 2": f"{s.coverage_95:.2f}",
        "off by": f"{100 * s.rms:.1f} %",
    }
