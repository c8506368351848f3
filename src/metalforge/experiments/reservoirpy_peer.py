"""reservoirpy beside ours, where it is installed: states of the same weights, or of its own from the same numbers."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir.weights import EsnWeights

from .standard_tasks import UNITS, Network

__all__ = ["installed", "own_features", "same_weights_states"]

Reals = NDArray[np.floating[Any]]


def installed() -> bool:
    """Return whether reservoirpy can be imported."""
    return find_spec("reservoirpy") is not None


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
        sr=made.radius,
        lr=made.leak,
        input_scaling=made.input_scaling,
        rc_connectivity=1.0,
        input_connectivity=1.0,
        W=draw.normal,
        Win=draw.uniform,
        bias=np.random.default_rng([seed, 12]).uniform(-made.bias, made.bias, UNITS),
        seed=seed,
    )
    return [_features(node, task) for task in tasks]


def _features(node: Any, task: Task) -> Reals:
    node.initialize(task.inputs[0])
    rows = []
    for series in task.inputs:
        node.reset()
        states = node.run(series)
        rows.append(states[-1:] if task.classes else states[task.washout :])
    return np.concatenate(rows)
