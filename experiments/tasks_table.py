"""Experiment tasks: the field's standard tasks in float, on the emulated chip and in reservoirpy, beside simple models.

Every readout is a ridge fit whose penalty is chosen on the training rows (`best_readout`), except where
it says `unchanged`: there the float network's is kept. Intervals are over five instances, each with its own series and
networks: Student's for NRMSE, Wilson's on all cases for accuracy. `standard_tasks` has the tasks, with two networks of
200 units each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import stdtrit

from metalforge.core.arrays import Reals
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, features_of
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.metrics import Interval, Proportion, wilson
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

from .protocol import Cell, Check, Figure, Progress, Result, Settings, experiment, words
from .recorded import installed
from .standard_tasks import LASER, STANDARD_TASKS, UNITS, VOWELS, Network, StandardTask, best_readout, wanted_of

INSTANCES = 5
STATES, STATES_LIMIT = "largest state difference", 1e-6
GOALS = {LASER: ("NMSE (NRMSE squared) at most", 0.006), VOWELS: ("accuracy at least", 0.989)}
"""What is asked of recorded tasks."""
Approach: TypeAlias = tuple[str, str, str]
"""Its name, its precision, and whether the readout was fitted to it ("" where there is nothing to fit)."""
REFERENCE: Approach = ("software", "f32", "refit")
CHIPS: tuple[tuple[str, str, str, Callable[[HybridEsn, NpuDevice], HybridEsn]], ...] = (
    ("random", "host-tanh", "W4A8", lambda esn, device: esn.with_hardware_linear(device, precision="W4A8")),
    ("random", "host-tanh", "W8A8", lambda esn, device: esn.with_hardware_linear(device, precision="W8A8")),
    ("random", "host-tanh", "W12A12", lambda esn, device: esn.with_hardware_linear(device, precision="W12A12")),
    ("ring", "native", "W4A4", lambda esn, device: esn.with_hardware_native(device)),
)
"""Network, approach, precision, and how the network is put on a device."""


def same_weights_states(weights: EsnWeights, u: Reals) -> Reals:
    """Return the states (steps, units) that reservoirpy gives for inputs (steps, inputs) with these weights."""
    node = import_module("reservoirpy.nodes").Reservoir(
        Win=weights.w_in, W=weights.w_res, bias=weights.bias, lr=weights.leak, activation=weights.activation
    )
    return np.asarray(node.run(u))


def own_features(made: Network, seed: int, *tasks: Task) -> list[Reals]:
    """Return, for each task, the rows that a readout sees of a reservoir that reservoirpy itself made."""
    draw = import_module("reservoirpy.mat_gen")
    node = import_module("reservoirpy.nodes").Reservoir(
        UNITS,
        sr=made.spectral_radius,
        lr=made.leak,
        input_scaling=made.input_scaling,
        rc_connectivity=1.0,
        input_connectivity=1.0,
        W=draw.normal,
        Win=draw.uniform,
        bias=np.random.default_rng([seed, 12]).uniform(-made.bias_scaling, made.bias_scaling, UNITS),
        seed=seed,
    )

    def features(task: Task) -> Reals:
        node.initialize(task.inputs[0])
        rows = []
        for series in task.inputs:
            node.reset()
            rows.append(node.run(series)[-1 if task.classes else task.washout :])
        return np.concatenate(rows)

    return [features(task) for task in tasks]


class Row(NamedTuple):
    """What one approach gave on a task; `gap` is how much worse than float it is."""

    task: str
    approach: str
    precision: str
    readout: str
    metric: str
    figure: Interval
    gap: float = 0.0

    @property
    def is_baseline(self) -> bool:
        """Whether it is a simple model."""
        return self.approach.startswith("baseline")


@experiment("tasks", "How do standard reservoir tasks come out in float, on an int4 chip and in reservoirpy?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return a score for every approach on every task, with the baselines and reservoirpy's."""
    rows = rows_of(settings, progress)
    return Result(list(_table(rows)), [*_findings(rows), *words("tasks.legend")], list(_checks(rows)))


def rows_of(settings: Settings, progress: Progress) -> list[Row]:
    """Return what every approach gave on every task, all instances together."""
    instances = 1 if settings.quick else INSTANCES
    rows: list[Row] = []
    for n, (name, make) in enumerate(STANDARD_TASKS.items()):
        scores: dict[Approach, list[Proportion]] = {}
        apart: list[float] = []
        for i in range(instances):
            progress(n * instances + i, len(STANDARD_TASKS) * instances, f"{name}, instance {i + 1}")
            task = make(settings.seed + i, settings.quick)
            for approach, score in _instance(task, make.network, settings.seed + i, settings.profile).items():
                scores.setdefault(approach, []).append(score)
            if installed("reservoirpy"):
                apart.append(_apart(task))
        usual, sign = _pooled(scores[REFERENCE]), -1 if task.metric == "accuracy" else 1
        for approach, found in scores.items():
            figure = _figure(found, task.metric, shared_test=bool(make.package))
            rows.append(Row(name, *approach, task.metric, figure, sign * (figure.value - usual)))
        if apart:
            differences = Interval(max(apart), min(apart), max(apart))
            rows.append(Row(name, "reservoirpy, same weights", "f64", "", STATES, differences))
    return rows


def _figure(scores: Sequence[Proportion], metric: str, *, shared_test: bool) -> Interval:
    """Return the figure of scores from several instances.

    Accuracies are pooled, with Wilson's interval for all cases, or for one instance's where they share their cases.
    NRMSEs are averaged, with Student's interval over the instances, or the only instance's own.
    """
    if metric == "accuracy":
        value = _pooled(scores)
        cases = scores[0].n if shared_test else sum(s.n for s in scores)
        return Interval(value, *wilson(round(value * cases), cases)[1:3])
    if len(scores) == 1:
        return Interval(*scores[0][:3])
    values = [score.value for score in scores]
    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval.around(float(np.mean(values)), half)


def _pooled(scores: Sequence[Proportion]) -> float:
    """Return the mean weighted by cases; of one score exactly its value."""
    cases = sum(s.n for s in scores)
    return float(sum(s.value * (s.n / cases) for s in scores))


def _instance(task: StandardTask, made: Network, seed: int, profile: str) -> dict[Approach, Proportion]:
    """Return the scores of one instance."""
    wanted = wanted_of(task.train)
    floats = {
        name: HybridEsn.from_weights(weights.astype(np.float32), calibration=task.train.inputs)
        for name, weights in (("random", task.weights), ("ring", task.ring))
    }
    found: dict[Approach, Proportion] = {}
    readouts = {}
    for name, approach in (("random", "software"), ("ring", "software, ring with bounded ReLU")):
        readouts[name] = best_readout(features_of(floats[name], task.train), wanted)
        found[approach, "f32", "refit"] = task.score(readouts[name](features_of(floats[name], task.test)))
    for network, approach, precision, build in CHIPS:
        with EmulatedDevice(profile) as device:
            esn = build(floats[network], device)
            seen, shown = features_of(esn, task.train), features_of(esn, task.test)
        found[approach, precision, "refit"] = task.score(best_readout(seen, wanted)(shown))
        if precision == "W8A8":
            found[approach, precision, "unchanged"] = task.score(readouts[network](shown))
    if installed("reservoirpy"):
        seen, shown = own_features(made, seed, task.train, task.test)
        found["reservoirpy", "f64", "refit"] = task.score(best_readout(seen, wanted)(shown))
    cases = found[REFERENCE].n
    simple = {name: Proportion(value, value, value, cases) for name, value in task.baselines.items()}
    return found | {(f"baseline: {name}", "f64", ""): score for name, score in simple.items()}


def _apart(task: StandardTask) -> float:
    """Return the largest difference between reservoirpy's states and ours, same weights, first test series."""
    u = task.test.inputs[0]
    plain = replace(task.ring, activation="relu")  # reservoirpy has no bounded one
    return max(float(np.abs(same_weights_states(w, u) - EsnEngine(w).run(u)).max()) for w in (task.weights, plain))


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    """Give, for each task, how float and each chip stand to the strongest simple model."""
    for task in STANDARD_TASKS:
        own = [row for row in rows if row.task == task]
        simple = min((row for row in own if row.is_baseline), key=lambda row: row.gap)
        told = [
            f"{r.approach} {r.precision} {r.figure.value:.3f} ({'beats' if r.gap < simple.gap else 'does not beat'} it)"
            for r in own
            if r.approach in ("software", "host-tanh", "native") and r.readout == "refit"
        ]
        yield from words("tasks.finding", task=task, simple=simple, told=", ".join(told))
    if not installed("reservoirpy"):
        yield from words("tasks.no_peer")


def _table(rows: Sequence[Row]) -> Iterator[dict[str, Cell]]:
    for n, row in enumerate(rows):
        begins = not n or row.task != rows[n - 1].task
        states = row.metric == STATES
        yield {
            "task": row.task,
            "approach": row.approach,
            "precision": row.precision,
            "readout": row.readout,
            "metric": row.metric,
            "value (95 % interval)": Figure(row.figure.value, ".1e") if states else Figure.of(row.figure, ".4f"),
            # Adding 0 makes a rounded -0 a 0.
            "gap to f32": "" if states else Figure(round(row.gap, 4) + 0.0, "+.4f"),
            "literature": STANDARD_TASKS[row.task].literature if begins else "",
        }


def _checks(rows: Sequence[Row]) -> Iterator[Check]:
    software = {row.task: row.figure for row in rows if (row.approach, row.precision, row.readout) == REFERENCE}
    for row in rows:
        if row.metric == STATES:
            apart = row.figure.value
            yield f"{row.task}: reservoirpy's states to {STATES_LIMIT:g}", f"{apart:.1e}", apart <= STATES_LIMIT
    for task, (asked, goal) in GOALS.items():
        if task in software:
            value = software[task].value
            reached, holds = (value**2, value**2 <= goal) if task == LASER else (value, value >= goal)
            yield f"{task}: {asked} {goal:g}", f"{reached:.4f}", holds
    for peer in (row for row in rows if row.approach == "reservoirpy"):
        ours, theirs = software[peer.task], peer.figure
        overlap = theirs.low <= ours.high and ours.low <= theirs.high
        asked = f"{peer.task}: intervals of f32 and of reservoirpy overlap"
        yield asked, f"{ours.value:.4f}, {theirs.value:.4f}", overlap
