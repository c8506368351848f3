"""Judgements of runs: what a window produced, at what power, and how good it was; and which of several is best.

Energy is a map by (substrate, source). A total, and with it energy per result and quality per joule, exists only when
all sources are of one kind, all measured or all modelled; otherwise the figure is null and the reason is said.

Candidates take turns in short blocks (A B C C B A ...), because clocks and temperatures drift. Every block gives one
score for its candidate, and two candidates are compared round by round, so that a drift which both saw cancels: the
mean of the paired differences, and a bootstrap over rounds for how surely it is positive.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from statistics import fmean
from typing import TYPE_CHECKING, Literal, Self

import msgspec
import numpy as np

from metalforge.core import Measured, MetalforgeError, Quantity

from .graph import StageSpec
from .metrics import scaled

if TYPE_CHECKING:
    from .supervisor import Run
    from .worker import StageWorker


_BOOTSTRAPS = 2000
_SURE = 0.95  # below this a difference is called a tie


class EnergyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The joules of one substrate, or why there are none."""

    substrate: str
    source: Literal["measured", "modelled", "unknown"]
    energy: Quantity | None
    reason: str = ""


class SiliconEfficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One window of a run. `results` counts what its sinks processed (or the stage that was named)."""

    window_s: float
    results: int
    throughput_per_s: float
    energy: tuple[EnergyEntry, ...]
    total_energy: Quantity | None
    total_power: Quantity | None
    energy_per_result: Quantity | None
    utilization: dict[str, float]
    """Busy fraction of the busiest stage on each substrate."""
    quality: float | None
    quality_per_joule: float | None
    reason: str = ""
    """Why a figure is null."""


class EfficiencyWindow:
    """Measures between entering and leaving a ``with`` block; `result` is there afterwards.

    `quality` is a function of nothing that gives a number for the window, such as the effective sample size it added.
    """

    def __init__(self, run: "Run", *, results: str | None = None, quality: Callable[[], float] | None = None) -> None:
        feeding = {e.source for e in run.graph.edges if not e.feedback}
        sinks = tuple(n for n, s in run.graph.stages.items() if n not in feeding and s.config.results)
        self._run, self._quality = run, quality
        self.sinks = sinks if results is None else (results,)
        self._result: SiliconEfficiency | None = None

    def __enter__(self) -> Self:
        self._began = self._run.clock_ns()
        self._before = {n: self._look(w) for n, w in self._run.workers.items()}
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._result = self._measure()

    @property
    def result(self) -> SiliconEfficiency:
        """What was measured."""
        if self._result is None:
            raise MetalforgeError("the window has not ended; read `result` after the with block")
        return self._result

    def _look(self, worker: "StageWorker") -> tuple[int, int, Quantity | None]:
        return worker.meter.items, worker.meter.busy_ns, self._run.readings.energy(worker)

    def _measure(self) -> SiliconEfficiency:
        run = self._run
        window_s = max(1, run.clock_ns() - self._began) * 1e-9
        results = 0
        entries: dict[str, EnergyEntry] = {}
        utilization: dict[str, float] = {}
        for name, worker in run.workers.items():
            items_before, busy_before, joules_before = self._before.get(name, (0, 0, None))
            items, busy, joules = self._look(worker)
            results += items - items_before if name in self.sinks else 0
            where = worker.spec.substrate_name or "host"
            share = min(1.0, (busy - busy_before) * 1e-9 / window_s)
            utilization[where] = max(utilization.get(where, 0.0), share)
            if where not in entries:
                entries[where] = _entry(where, worker.spec, joules_before, joules)
        total, reason = _total(tuple(entries.values()))
        quality = None if self._quality is None else float(self._quality())
        return SiliconEfficiency(
            window_s=window_s,
            results=results,
            throughput_per_s=results / window_s,
            energy=tuple(entries.values()),
            total_energy=total,
            total_power=total and scaled(total, 1 / window_s, "W"),
            energy_per_result=scaled(total, 1 / results, "J") if total and results else None,
            utilization=utilization,
            quality=quality,
            quality_per_joule=quality / total.value if quality is not None and total and total.value else None,
            reason=reason,
        )


def _entry(where: str, spec: StageSpec, before: Quantity | None, now: Quantity | None) -> EnergyEntry:
    if now is None:
        no_meter = "the stage is bound to no substrate with a meter"
        reason = spec.silicon.meter().unavailable() or "the meter stopped" if spec.silicon else no_meter
        return EnergyEntry(substrate=where, source="unknown", energy=None, reason=reason)
    spent = now if before is None else now - before  # type: ignore[operator]  # one meter, one kind
    return EnergyEntry(substrate=where, source="measured" if isinstance(spent, Measured) else "modelled", energy=spent)


def _total(entries: tuple[EnergyEntry, ...]) -> tuple[Quantity | None, str]:
    if unknown := [e for e in entries if e.energy is None]:
        return None, "; ".join(f"energy of {e.substrate} is unknown: {e.reason}" for e in unknown)
    if len({e.source for e in entries}) > 1:
        kinds = ", ".join(f"{e.substrate} {e.source}" for e in entries)
        return None, f"measured and modelled energy do not add up to one figure: {kinds}"
    energies = [e.energy for e in entries if e.energy is not None]
    return (reduce(add, energies), "") if energies else (None, "there is no stage")


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which candidate is best; `ties` cannot be told from it, `gain` is over the runner-up."""

    best: str
    ties: tuple[str, ...]
    gain: float | None
    """(best - next) / |next|, from paired rounds; None with one candidate or a next of 0."""
    confidence: float | None
    """How often the best is really better than the next, in bootstraps over rounds."""
    means: dict[str, float]
    words: str


def take_turns(names: Sequence[str], measure: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """Return the scores that `measure` gave each candidate, one per round, for `judge`."""
    scores: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        # Forward, then backward: a linear drift over a round does not favour those that come first.
        for name in names if turn % 2 == 0 else names[::-1]:
            scores[name].append(measure(name))
    return scores


def judge(scores: Mapping[str, list[float]], seed: int = 0) -> Verdict:
    """Return which candidate is best in a table of scores by round, larger being better, and how surely."""
    means = {name: fmean(values) for name, values in scores.items()}
    best, *others = sorted(means, key=lambda name: -means[name])
    sure = {name: _confidence(scores[best], scores[name], seed) for name in others}
    ties = tuple(name for name, confidence in sure.items() if confidence < _SURE)
    gain = confidence = None
    words = f"`{best}` is the only candidate"
    if others:
        second = others[0]
        confidence = sure[second]
        gain = (means[best] - means[second]) / abs(means[second]) if means[second] else None
        by = "" if gain is None else f" by {gain:.1%}"
        words = f"`{best}` is better than `{second}`{by}, {confidence:.0%} sure"
    if ties:
        words = f"`{best}` and {', '.join(f'`{t}`' for t in ties)} cannot be told apart ({confidence:.0%} sure)"
    return Verdict(best=best, ties=ties, gain=gain, confidence=confidence, means=means, words=words)


def _confidence(best: Sequence[float], other: Sequence[float], seed: int) -> float:
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
