"""Experiment tasks: the field's standard tasks in float, on the emulated chip and in reservoirpy, by simple models.

Every readout is a ridge fit whose penalty is chosen on the training rows (`standard_tasks.best_readout`), except where
it says `unchanged`: there the float network's is kept. Intervals are over five instances, each with its own series and
networks: Student's for NRMSE, Wilson's on all cases for accuracy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, features_of
from metalforge.reservoir.engine import Engine
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

from .protocol import Check, Figure, Progress, Result, ResultRow, Settings, exactly, experiment, row_of, rows_of, shown
from .reservoirpy_peer import installed, own_features, same_weights_states
from .scores import Score, figure_of, pooled
from .standard_tasks import STANDARD_TASKS, StandardTask, best_readout

__all__ = ["WORDS", "run"]

INSTANCES = 5
STATES, STATES_LIMIT = "largest state difference", 1e-6
WORDS = (
    "NRMSE is the root mean square error over the standard deviation of the target; 1 is predicting the mean.",
    "software f32 is the reference; a gap above 0 is worse.",
    "host-tanh: the product on the chip, tanh on the host. native: the chip's bounded ReLU, four-bit states; it runs a "
    "ring network, since random weights do not survive there, and its float twin stands beside it.",
    "reservoirpy: its own random weights from the same numbers, its own states, the same readout.",
    "Networks have 200 units. Chips are emulated: integers are exact, no time is claimed here.",
    "A figure from the literature is comparable only as far as its protocol is the same, which is said beside it.",
)
Reals = NDArray[np.floating[Any]]
Build = Callable[[HybridEsn, NpuDevice], HybridEsn]


def _linear(precision: str) -> Build:
    return lambda esn, device: esn.with_hardware_linear(device, "last-layer", precision)


CHIPS: tuple[tuple[str, str, str, Build], ...] = (
    ("host-tanh", "W4A8", "random", _linear("W4A8")),
    ("host-tanh", "W8A8", "random", _linear("W8A8")),
    ("host-tanh", "W12A12", "random", _linear("W12A12")),
    ("native", "W4A4", "ring", lambda esn, device: esn.with_hardware_native(device)),
)
"""Approach, precision, network and how it is put on a device."""
Scores = dict[tuple[str, str, bool], list[Score]]
"""(approach, precision, readout refitted) to the scores of the instances."""


@experiment("tasks", "How do standard reservoir tasks come out in float, on an int4 chip and in reservoirpy?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return a score for every approach on every task, with the baselines and reservoirpy's."""
    instances = 1 if settings.quick else INSTANCES
    rows: list[ResultRow] = []
    notes: dict[str, str] = {}
    for n, (name, make) in enumerate(STANDARD_TASKS.items()):
        scores: Scores = {}
        apart: list[float] = []
        for i in range(instances):
            progress(n * instances + i, len(STANDARD_TASKS) * instances, f"{name}, instance {i + 1}")
            task = make(settings.seed + i, settings.quick)
            for key, score in _instance(task, settings.seed + i, settings.profile).items():
                scores.setdefault(key, []).append(score)
            if installed():
                apart.append(_apart(task))
        notes[name] = task.literature
        rows += _rows(task, scores)
        if apart:
            differences = Figure(max(apart), min(apart), max(apart))
            rows.append(row_of(name, "reservoirpy, same weights", STATES, differences, precision="f64"))
    return Result.of(rows, _table(rows, notes), (*_findings(rows), *WORDS), _checks(rows))


def _instance(task: StandardTask, seed: int, profile: str) -> dict[tuple[str, str, bool], Score]:
    """Return the scores of one instance."""
    wanted = _wanted(task.train)

    def scored(fit: Reals, test: Reals) -> Score:
        return task.score(best_readout(fit, wanted)(test))

    found: dict[tuple[str, str, bool], Score] = {}
    floats = {}
    for name, weights in (("random", task.weights), ("ring", task.ring)):
        esn = HybridEsn.from_weights(weights.astype(np.float32), calibration=task.train.inputs)
        floats[name] = esn
        approach = "software" if name == "random" else "software, ring with bounded ReLU"
        seen, shown = features_of(esn, task.train), features_of(esn, task.test)
        found[approach, "f32", True] = scored(seen, shown)
        if name == "random":
            kept = best_readout(seen, wanted)
    for approach, precision, name, build in CHIPS:
        with EmulatedDevice(profile) as device:
            esn = build(floats[name], device)
            seen, shown = features_of(esn, task.train), features_of(esn, task.test)
        found[approach, precision, True] = scored(seen, shown)
        if precision == "W8A8":
            found[approach, precision, False] = task.score(kept(shown))
    if installed():
        found["reservoirpy", "f64", True] = scored(*own_features(task.made_with, seed, task.train, task.test))
    cases = found["software", "f32", True].cases
    for baseline, value in task.baselines.items():
        found[f"baseline: {baseline}", "f64", True] = Score(*exactly(value), cases)
    return found


def _wanted(task: Task) -> Reals:
    if task.classes:
        return np.asarray(np.eye(task.classes)[task.targets])
    return np.asarray(task.targets[0, task.washout :])


def _apart(task: StandardTask) -> float:
    """Return the largest difference between reservoirpy's states and ours, same weights, first test series."""
    u = task.test.inputs[0]
    plain = replace(task.ring, activation="relu")  # reservoirpy has no bounded one
    return max(float(np.abs(same_weights_states(w, u) - Engine(w).run(u)).max()) for w in (task.weights, plain))


def _rows(task: StandardTask, scores: Scores) -> Iterator[ResultRow]:
    reference, less = pooled(scores["software", "f32", True]), task.metric != "accuracy"
    for (approach, precision, refitted), found in scores.items():
        figure, where = figure_of(found, task.metric), (task.name, approach, task.metric)
        yield row_of(*where, figure, reference, precision=precision, refit=refitted, less=less)


def _findings(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Give, for each task, how float and each chip stand to the strongest simple model."""
    for task in STANDARD_TASKS:
        own = rows_of(rows, task=task, refit=True)
        simple = min((r for r in own if r.approach.startswith("baseline")), key=lambda r: r.gap)
        told = [
            f"{r.approach} {r.precision} {r.value:.3f} ({'beats' if r.gap < simple.gap else 'does not beat'} it)"
            for r in own
            if r.approach in ("software", "host-tanh", "native")
        ]
        yield f"{task}: best {simple.approach} {simple.value:.3f}; {', '.join(told)}."
    if not installed():
        yield "reservoirpy is not installed here: its rows are missing."


def _table(rows: Sequence[ResultRow], notes: dict[str, str]) -> Iterator[tuple[str, ...]]:
    yield "task", "approach", "precision", "readout", "metric", "value (95 % interval)", "gap to f32", "literature"
    for task, literature in notes.items():
        for n, row in enumerate(rows_of(rows, task=task)):
            if row.metric == STATES:
                readout, value, gap = "", f"{row.value:.1e}", ""
            else:
                readout = "refit" if row.refit else "unchanged"
                # Adding 0 makes a rounded -0 a 0.
                value, gap = shown(row, ".4f"), f"{round(row.gap, 4) + 0.0:+.4f}"
            if row.approach.startswith("baseline"):
                readout = ""
            yield task, row.approach, row.precision, readout, row.metric, value, gap, "" if n else literature


def _checks(rows: Sequence[ResultRow]) -> Iterator[Check]:
    for row in rows_of(rows, metric=STATES):
        asked = f"{row.task}: reservoirpy's states to {STATES_LIMIT:g}"
        yield asked, f"{row.value:.1e}", row.value <= STATES_LIMIT
    for peer in rows_of(rows, approach="reservoirpy"):
        ours = rows_of(rows, task=peer.task, approach="software", precision="f32")[0]
        overlap = peer.low <= ours.high and ours.low <= peer.high
        yield (
            f"{ours.task}: intervals of f32 and of reservoirpy overlap",
            f"{ours.value:.4f}, {peer.value:.4f}",
            overlap,
        )
