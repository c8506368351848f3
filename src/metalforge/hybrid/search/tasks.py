r"""Standard tasks to search on: series to fit readouts on, to choose by, and to look at once at the end.

Series are short and many, each from rest, so that one candidate runs them side by side in one native batch. The parts
are drawn apart (NARMA) or cut from one long series in the order of time, with the horizon left out between them.

- narma10: the output of a tenth-order recurrence from its random input (A. Atiya, A. Parlos, 2000).
- mackey-glass: x(t + 84) from x(t), delay 17 (H. Jaeger, H. Haas, Science 304, 2004, use this horizon).
- lorenz: all three coordinates half a time unit ahead from all three now; each coordinate is a head.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metalforge.core import Feature, FeatureSchema, HeadLayout, HeadSpec, Reals, SpecError, find
from metalforge.hybrid.esn.tasks import Task
from metalforge.hybrid.evaluation.data import series_task
from metalforge.hybrid.model.inputs import Given, as_series_of
from metalforge.reservoir import lorenz, mackey_glass, narma, to_forecasting

WASHOUT = 100
"""Steps at the start of each series that count for nothing: the state comes from rest."""
ROWS = {"training": (8, 250), "validation": (4, 250), "test": (8, 250)}
"""Series and counted steps of each part; of one length, so that parts can run side by side."""
LORENZ_INTERVAL, LORENZ_HORIZON = 0.02, 25
MACKEY_GLASS_HORIZON = 84


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchTask:
    """Three parts that share no data: readouts see `training`, the search `validation`, nobody `test` before the end.

    Inputs and targets are float32 and standardised by what training shows. `features` and `layout` name them and say
    how: they are written with the network, which raw inputs then go into and raw outputs come out of.
    """

    name: str
    seed: int
    training: Task
    validation: Task
    test: Task
    features: FeatureSchema
    layout: HeadLayout
    labels: tuple[str, ...] | None = None
    """Names of classes, an output of zeros and ones each; None for other targets."""

    def __post_init__(self) -> None:
        for name in SHARES:
            part: Task = getattr(self, name)
            if part.classes:
                raise SpecError(
                    f"a search wants real targets; those of `{name}` are classes"
                    "\nhint: data_task(inputs, targets) makes an output of zeros and ones for each class"
                )
            if part.inputs.shape[2] != len(self.features) or part.targets.shape[-1] != self.layout.width:
                raise SpecError(
                    f"`{name}` must have the {len(self.features)} inputs of `features` and the {self.layout.width} "
                    f"targets of `layout`. Got {part.inputs.shape[2]} and {part.targets.shape[-1]}"
                )

    @property
    def inputs(self) -> int:
        """Size of an input."""
        return int(self.training.inputs.shape[2])

    @property
    def outputs(self) -> int:
        """Size of a target."""
        return int(self.training.targets.shape[-1])


def search_task(name: str, *, seed: int = 1) -> SearchTask:
    """Return a task by name; the same name and seed give the same numbers."""
    heads, parts = find("search task", name, TASKS)
    return _standardised(parts(seed), name, seed, heads)


def _standardised(
    parts: dict[str, Task], name: str, seed: int, heads: tuple[str, ...], labels: tuple[str, ...] | None = None
) -> SearchTask:
    """Return a task in units of what its training part shows; padding stays what it is, unread."""
    training = parts["training"]
    whole = training.lengths is None
    steps = training.inputs if whole else replace(training, targets=training.inputs, washout=0).labels
    shown = []
    for values in (steps, training.targets if whole or not training.each_step else training.labels):
        axes = tuple(range(values.ndim - 1))
        size = values.std(axis=axes)
        shown.append((values.mean(axis=axes), np.where(size > 0, size, 1.0)))
    (centre, size), (middle, spread) = shown
    features = [
        Feature(name=f"u{i}", offset=float(c), scale=float(s))
        for i, (c, s) in enumerate(zip(centre, size, strict=True))
    ]
    layout = [HeadSpec(name=h, offset=float(c), scale=float(s)) for h, c, s in zip(heads, middle, spread, strict=True)]
    return SearchTask(
        name=name,
        seed=seed,
        features=FeatureSchema(name=name, features=tuple(features)),
        layout=HeadLayout(name=name, heads=tuple(layout)),
        labels=labels,
        **{
            part: replace(
                task,
                inputs=((task.inputs - centre) / size).astype(np.float32),
                targets=((task.targets - middle) / spread).astype(np.float32),
            )
            for part, task in parts.items()
        },
    )


SHARES = {"training": 0.5, "validation": 0.2, "test": 0.3}
FEWEST, WINDOW = 10, 100
"""Series that a search wants; fewer are cut into windows of so many steps or more."""


def data_task(
    inputs: Given,
    targets: Given,
    *,
    name: str = "data",
    washout: int = 0,
    labels: Sequence[str] | None = None,
    seed: int = 1,
) -> SearchTask:
    """Return the task of a user's data: series as `model.inputs` has them, targets as `evaluation.data` does.

    Series are divided as a whole, by the seed. Fewer than ten are cut into windows first, in the order of time, each
    of which starts from rest: give a washout. Every class is an output of zeros and ones, and its error their NRMSE.
    """
    series = as_series_of("input", inputs, _width(inputs), np.float64)
    task, names = series_task(series, targets, 0, labels, washout)
    if names:
        task = replace(task, targets=np.eye(len(names))[task.targets])
    if len(task.inputs) < FEWEST:
        parts = _windows(task)
    else:
        order = np.random.default_rng(seed).permutation(len(task.inputs))
        cuts = np.cumsum([round(share * len(order)) for share in SHARES.values()])[:-1]
        parts = {part: task.part(np.sort(rows)) for part, rows in zip(SHARES, np.split(order, cuts), strict=True)}
    digest = hashlib.sha256(task.inputs.tobytes() + task.targets.tobytes()).hexdigest()[:12]
    heads = names or tuple(f"y{i}" for i in range(task.targets.shape[-1]))
    return _standardised(parts, f"{name}-{digest}", seed, heads, names or None)


def _windows(task: Task) -> dict[str, Task]:
    """Return windows of long series in the order of time: the first half of each trains, the last part tests."""
    lengths = task.ends + 1
    steps = min(max(WINDOW, int(lengths.sum()) // 20), int(lengths.min()) // 5)
    if not task.each_step or steps <= task.washout or steps < 5:
        raise SpecError(
            f"{len(lengths)} series of {lengths.min()} steps and more cannot be divided into three parts"
            f"\nhint: {FEWEST} series or more, or long ones with a target for every step"
        )
    found: dict[str, list[tuple[int, int]]] = {part: [] for part in SHARES}
    for i, length in enumerate(lengths):
        starts = range(0, int(length) - steps + 1, steps)
        ends = [0, max(1, round(0.5 * len(starts))), max(2, round(0.7 * len(starts))), len(starts)]
        for part, a, b in zip(SHARES, ends[:-1], ends[1:], strict=True):
            found[part] += [(i, start) for start in starts[a:b]]
    return {
        part: Task(
            inputs=np.stack([task.inputs[i, a : a + steps] for i, a in places]),
            targets=np.stack([task.targets[i, a : a + steps] for i, a in places]),
            washout=task.washout,
        )
        for part, places in found.items()
    }


def _width(inputs: Given) -> int:
    """Return the size of an input, by the form that it comes in: the last axis, or 1 where there is only time."""
    first = (
        inputs
        if isinstance(inputs, np.ndarray)
        else next(iter(inputs.values() if isinstance(inputs, Mapping) else inputs))
    )
    return int(np.shape(first)[-1]) if np.ndim(first) > 1 else 1


def _narma(seed: int) -> dict[str, Task]:
    parts = {}
    for number, (part, (series, steps)) in enumerate(ROWS.items()):
        drawn = [narma(WASHOUT + steps, seed=10_000 * seed + 1000 * number + i) for i in range(series)]
        inputs, targets = (np.stack(values) for values in zip(*drawn, strict=True))
        parts[part] = Task(inputs=inputs, targets=targets, washout=WASHOUT)
    return parts


def _forecast(flow: Callable[..., Reals], horizon: int, **options: Any) -> dict[str, Task]:
    """Return the parts of one long series of a flow, in the order of time, to tell what comes `horizon` steps later."""
    length = sum(count * (WASHOUT + steps) + horizon for count, steps in ROWS.values()) + horizon
    both, parts, start = to_forecasting(flow(length, **options), horizon), {}, 0
    for part, (count, steps) in ROWS.items():
        rows = slice(start, start + count * (WASHOUT + steps))
        inputs, targets = (values[rows].reshape(count, WASHOUT + steps, -1) for values in both)
        parts[part] = Task(inputs=inputs, targets=targets, washout=WASHOUT)
        start = rows.stop + horizon  # else a target of one part would be an input of the next
    return parts


TASKS: dict[str, tuple[tuple[str, ...], Callable[[int], dict[str, Task]]]] = {
    "narma10": (("y",), _narma),
    "mackey-glass": (("x",), lambda seed: _forecast(mackey_glass, MACKEY_GLASS_HORIZON, seed=seed)),
    "lorenz": (("x", "y", "z"), lambda seed: _forecast(lorenz, LORENZ_HORIZON, interval=LORENZ_INTERVAL, seed=seed)),
}
"""Names of the targets, and the parts by seed."""
