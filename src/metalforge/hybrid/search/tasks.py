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
from metalforge.core.errors import SpecError, find
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
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

    Inputs and targets are float32 and standardised by what training shows. `heads` name the outputs. `features` and
    `layout` say how: they are written with the network, which raw inputs then go into and raw outputs come out of.
    """

    name: str
    seed: int
    training: Task
    validation: Task
    test: Task
    heads: tuple[str, ...]
    features: FeatureSchema | None = None
    layout: HeadLayout | None = None

    def __post_init__(self) -> None:
        parts = {"training": self.training, "validation": self.validation, "test": self.test}
        for name, part in parts.items():
            if part.classes:
                raise SpecError(
                    f"a search wants real targets for every step; those of `{name}` are classes, one a series"
                    "\nhint: targets of zeros and ones, an output a class, at every step: float, not whole numbers"
                )
            if part.inputs.shape[2] != self.inputs or part.targets.shape[2] != self.outputs:
                raise SpecError(
                    f"all parts must have {self.inputs} inputs and {self.outputs} targets, as training has. "
                    f"Got {part.inputs.shape[2]} and {part.targets.shape[2]} in `{name}`"
                )
        if len(self.heads) != self.outputs or len(set(self.heads)) != len(self.heads):
            raise SpecError(
                f"`heads` must be {self.outputs} different names, one a target. Got {', '.join(self.heads) or 'none'}"
            )
        if self.features is not None and len(self.features) != self.inputs:
            raise SpecError(f"`features` must name {self.inputs} inputs. Got {len(self.features)}")
        if self.layout is not None and self.layout.width != self.outputs:
            raise SpecError(f"`layout` must have {self.outputs} outputs. Got {self.layout.width}")

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
    shown = [(x["training"].mean(axis=(0, 1)), x["training"].std(axis=(0, 1))) for x in (inputs, targets)]
    parts = {
        part: Task(
            inputs=((inputs[part] - shown[0][0]) / shown[0][1]).astype(np.float32),
            targets=((targets[part] - shown[1][0]) / shown[1][1]).astype(np.float32),
            washout=WASHOUT,
        )
        for part in ROWS
    }
    features = [
        Feature(name=f"u{i}", offset=float(c), scale=float(s))
        for i, c, s in zip(range(inputs["training"].shape[2]), *shown[0], strict=True)
    ]
    layout = [HeadSpec(name=head, offset=float(c), scale=float(s)) for head, c, s in zip(heads, *shown[1], strict=True)]
    return SearchTask(
        name=name,
        seed=seed,
        heads=heads,
        features=FeatureSchema(name=name, features=tuple(features)),
        layout=HeadLayout(name=name, heads=tuple(layout)),
        **parts,
    )


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
