"""Trying orderings in turns and keeping the best, with an honest error and ties called ties.

The candidates take turns in short blocks (A B C C B A ...), because clocks and temperatures drift (`take_turns`). On a
running graph (`calibrate`) what was in flight at a switch belongs to the old ordering, and neither that nor the first
result after it is counted. Every block gives one score for its candidate; a candidate's error is the standard error
over its blocks, and two candidates are compared round by round, so that a drift which both saw cancels (`judge`): the
mean of the paired differences, and a bootstrap over rounds for how surely it is positive.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from metalforge.core.errors import SpecError

from .efficiency import EfficiencyWindow, SiliconEfficiency
from .graph import Graph, PipelineGraph

if TYPE_CHECKING:
    from .builder import Pipeline
    from .supervisor import Run

_BOOTSTRAPS = 2000
_SURE = 0.95  # below this a difference is called a tie


class TurnBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may be spent: `rounds` turns of each candidate, each of `results` results and at most `block_s`."""

    rounds: int = 5
    results: int = 10
    block_s: float = 60.0

    def __post_init__(self) -> None:
        if self.rounds < 2 or self.results < 1 or self.block_s <= 0:
            raise SpecError("a calibration needs at least 2 rounds (for an error), 1 result per block and some time")


class Tried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one ordering did: its scores block by block, their mean and standard error."""

    name: str
    scores: tuple[float, ...]
    mean: float
    error: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome. `best` runs now; `ties` are those that cannot be told from it; `gain` is over the runner-up."""

    best: str
    tie: bool
    ties: tuple[str, ...]
    gain: float | None
    """(best - next) / |next|, from paired rounds; None with one candidate or a next of 0."""
    confidence: float | None
    """How often the best is really better than the next, in bootstraps over rounds."""
    candidates: tuple[Tried, ...]
    results: int
    """Results produced during the calibration; all are kept."""
    words: str


def calibrate(
    run: "Run",
    orderings: "Mapping[str, Graph | PipelineGraph | Pipeline]",
    budget: TurnBudget = TurnBudget(),  # noqa: B008 - frozen
    score: Callable[[SiliconEfficiency], float] = lambda e: e.throughput_per_s,
    *,
    quality: Callable[[], float] | None = None,
    results: str | None = None,
    seed: int = 0,
) -> Calibration:
    """Measure each ordering on the running graph, change to the best, and say by how much and how surely.

    `score` turns the efficiency of a block into a number, larger is better: throughput by default;
    ``lambda e: e.quality_per_joule`` for physics per joule.
    """
    if not orderings:
        raise SpecError("`orderings` must have one or more to try. Got none")
    graphs = {name: run.graph_after(ordering) for name, ordering in orderings.items()}
    produced = 0

    def measure(name: str) -> float:
        nonlocal produced
        efficiency, n = _block(run, graphs[name], budget, quality, results)
        produced += n
        return _number(score(efficiency), name, efficiency)

    outcome = judge(take_turns(list(graphs), measure, budget.rounds), produced, seed)
    run.reconfigure(graphs[outcome.best])
    run.note("run.calibrated", outcome.best)
    return outcome


def take_turns(names: Sequence[str], measure: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """Return the scores that `measure` gave each candidate, one per round, for `judge`."""
    scores: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        # Forward, then backward: a linear drift over a round does not favour those that come first.
        for name in names if turn % 2 == 0 else names[::-1]:
            scores[name].append(measure(name))
    return scores


def _block(
    run: "Run", graph: PipelineGraph, budget: TurnBudget, quality: Callable[[], float] | None, results: str | None
) -> tuple[SiliconEfficiency, int]:
    run.reconfigure(graph)
    window = EfficiencyWindow(run, results=results, quality=quality)
    sinks = [run.workers[n] for n in window.sinks]

    def count() -> int:
        return sum(w.meter.items for w in sinks)

    began = count()
    # Items queued or in hand were made by the old ordering: they would flatter the new one.
    old = 1 + sum(len(w.outbox) + sum(lane.queued for lane in list(w.in_lanes)) for w in run.all_workers())
    run.wait_until(lambda: count() >= began + old or run.is_over(), budget.block_s, poll=True)
    with window:
        start = count()
        run.wait_until(lambda: count() >= start + budget.results or run.is_over(), budget.block_s, poll=True)
    return window.result, count() - began


def _number(value: float | None, name: str, efficiency: SiliconEfficiency) -> float:
    if value is None or not math.isfinite(value):
        reason = efficiency.reason or "no result came within the block"
        raise SpecError(f"ordering `{name}` has no score: {reason}")
    return float(value)


def judge(scores: Mapping[str, list[float]], produced: int = 0, seed: int = 0) -> Calibration:
    """Return who is best in a table of scores by round, and whether that is more than luck."""
    candidates = tuple(_candidate(name, values) for name, values in scores.items())
    best, *others = sorted(candidates, key=lambda c: -c.mean)
    sure = {c.name: _confidence(best.scores, c.scores, seed) for c in others}
    ties = tuple(name for name, confidence in sure.items() if confidence < _SURE)
    gain = confidence = None
    words = f"`{best.name}` is the only candidate"
    if others:
        second = others[0]
        confidence = sure[second.name]
        gain = (best.mean - second.mean) / abs(second.mean) if second.mean else None
        by = "" if gain is None else f" by {gain:.1%}"
        words = f"`{best.name}` is better than `{second.name}`{by}, {confidence:.0%} sure"
    if ties:
        words = f"`{best.name}` and {', '.join(f'`{t}`' for t in ties)} cannot be told apart ({confidence:.0%} sure)"
    return Calibration(
        best=best.name,
        tie=bool(ties),
        ties=ties,
        gain=gain,
        confidence=confidence,
        candidates=candidates,
        results=produced,
        words=words,
    )


def _candidate(name: str, values: list[float]) -> Tried:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Tried(name=name, scores=tuple(values), mean=fmean(values), error=error)


def _confidence(best: tuple[float, ...], other: tuple[float, ...], seed: int) -> float:
    """Return the fraction of bootstraps over rounds in which the mean paired difference is positive.

    A bootstrap of few rounds is too sure of itself: its spread is sqrt((n - 1) / n) of the true one. The resampled
    means are therefore stretched around the mean by sqrt(n / (n - 1)).
    """
    differences = [a - b for a, b in zip(best, other, strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    if all(d == mean for d in differences):
        return 1.0 if mean > 0 else 0.5
    resampled = np.random.default_rng(seed).choice(differences, (_BOOTSTRAPS, n)).mean(axis=1)
    return float(np.mean(mean + (resampled - mean) * math.sqrt(n / (n - 1)) > 0))
