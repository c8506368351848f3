"""What a searched network is held against, on the same data: a reservoir with default settings, and a line on lags.

Both choose their ridge on the validation part, as the search does, and are scored on the test part.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir.engine import Engine
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.readout import select_ridge

from .evaluate import Reals, counted
from .tasks import SearchTask

__all__ = ["Baselines", "baselines", "lagged"]

RIDGES = tuple(10.0**k for k in range(-8, 3))
UNITS, INPUT_SCALING, BIAS_SCALING = 200, 0.1, 0.1
"""As large as the largest candidate, so that a search is not praised for size."""
LAGS = 30
"""The present input and so many before it: more than the ten steps that NARMA10 remembers."""


class Baselines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NRMSE on the test part."""

    default_reservoir: float
    """200 units, spectral radius 0.9, leak 1, inputs and bias at 0.1, a tenth of the connections, in float64."""
    linear_on_lags: float
    """Ridge regression on the input now and 30 steps back."""


def lagged(inputs: Reals, lags: int = LAGS) -> Reals:
    """Return (series, steps, inputs * (lags + 1)): each row the input now and at the steps before; zeros before all."""
    series, steps, width = inputs.shape
    out = np.zeros((series, steps, (lags + 1) * width))
    for lag in range(min(lags + 1, steps)):
        out[:, lag:, lag * width : (lag + 1) * width] = inputs[:, : steps - lag]
    return out


def baselines(task: SearchTask, *, seed: int = 1) -> Baselines:
    """Return both on the test part of a task."""
    parts = (task.training, task.validation, task.test)
    with threadpool_limits(1):  # small matrices: BLAS threads would only wait for each other
        engine = Engine(make_esn(UNITS, task.inputs, seed=seed, input_scaling=INPUT_SCALING, bias_scaling=BIAS_SCALING))
        return Baselines(
            default_reservoir=_fitted(parts, [engine.run(part.inputs) for part in parts]),
            linear_on_lags=_fitted(parts, [lagged(part.inputs) for part in parts]),
        )


def _fitted(parts: Sequence[Task], features: Sequence[Reals]) -> float:
    training, validation, (x, y) = [
        (counted(seen, part.washout), counted(part.targets, part.washout))
        for part, seen in zip(parts, features, strict=True)
    ]
    return nrmse(y, select_ridge([training], RIDGES, validation=[validation]).readout(x))
