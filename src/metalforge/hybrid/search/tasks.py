r"""Standard tasks to search on: series to fit readouts on, to choose by, and to look at once at the end.

Series are short and many, each from rest, so that one candidate runs them side by side in one native batch. The parts
are drawn apart (NARMA) or cut from one long series in the order of time, with the horizon left out between them.

- narma10: the output of a tenth-order recurrence from its random input (A. Atiya, A. Parlos, 2000).
- mackey-glass: x(t + 84) from x(t), delay 17 (H. Jaeger, H. Haas, Science 304, 2004, use this horizon).
- lorenz: all three coordinates half a time unit ahead from all three now; each coordinate is a head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metalforge.core.arrays import Reals
from metalforge.core.errors import find
from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir.datasets import lorenz, mackey_glass, narma, to_forecasting

WASHOUT = 100
"""Steps at the start of each series that count for nothing: the state comes from rest."""
ROWS = {"training": (8, 250), "validation": (4, 250), "test": (8, 250)}
"""Series and counted steps of each part; of one length, so that parts can run side by side."""
LORENZ_INTERVAL, LORENZ_HORIZON = 0.02, 25
MACKEY_GLASS_HORIZON = 84


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchTask:
    """Three parts that share no data: readouts see `training`, the search `validation`, nobody `test` before the end.

    Inputs and targets are float32 and standardised by what training shows. `heads` name the outputs.
    """

    name: str
    seed: int
    training: Task
    validation: Task
    test: Task
    heads: tuple[str, ...]

    @property
    def inputs(self) -> int:
        """Size of an input."""
        return int(self.training.inputs.shape[2])

    @property
    def outputs(self) -> int:
        """Size of a target."""
        return int(self.training.targets.shape[2])


def search_task(name: str, *, seed: int = 1) -> SearchTask:
    """Return a task by name; the same name and seed give the same numbers."""
    inputs, targets, heads = find("search task", name, TASKS)(seed)
    centre = [x["training"].mean(axis=(0, 1)) for x in (inputs, targets)]
    size = [x["training"].std(axis=(0, 1)) for x in (inputs, targets)]
    parts = {
        part: Task(
            inputs=((inputs[part] - centre[0]) / size[0]).astype(np.float32),
            targets=((targets[part] - centre[1]) / size[1]).astype(np.float32),
            washout=WASHOUT,
        )
        for part in ROWS
    }
    return SearchTask(name=name, seed=seed, heads=heads, **parts)


Parts = dict[str, Reals]


def _narma(seed: int) -> tuple[Parts, Parts, tuple[str, ...]]:
    pairs = {}
    for number, (part, (series, steps)) in enumerate(ROWS.items()):
        drawn = [narma(WASHOUT + steps, seed=10_000 * seed + 1000 * number + i) for i in range(series)]
        pairs[part] = np.stack([u for u, _ in drawn]), np.stack([y for _, y in drawn])
    return {k: u for k, (u, _) in pairs.items()}, {k: y for k, (_, y) in pairs.items()}, ("y",)


def _forecast(
    flow: Callable[..., Reals], horizon: int, heads: tuple[str, ...], **options: Any
) -> tuple[Parts, Parts, tuple[str, ...]]:
    """Return the parts of one long series of a flow, in the order of time, to tell what comes `horizon` steps later."""
    length = sum(count * (WASHOUT + steps) + horizon for count, steps in ROWS.values()) + horizon
    u, y = to_forecasting(flow(length, **options), horizon)
    inputs, targets, start = {}, {}, 0
    for part, (count, steps) in ROWS.items():
        rows = slice(start, start + count * (WASHOUT + steps))
        inputs[part] = u[rows].reshape(count, WASHOUT + steps, -1)
        targets[part] = y[rows].reshape(count, WASHOUT + steps, -1)
        start = rows.stop + horizon  # else a target of one part would be an input of the next
    return inputs, targets, heads


TASKS: dict[str, Callable[[int], tuple[Parts, Parts, tuple[str, ...]]]] = {
    "narma10": _narma,
    "mackey-glass": lambda seed: _forecast(mackey_glass, MACKEY_GLASS_HORIZON, ("x",), seed=seed),
    "lorenz": lambda seed: _forecast(lorenz, LORENZ_HORIZON, ("x", "y", "z"), interval=LORENZ_INTERVAL, seed=seed),
}
