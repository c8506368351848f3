"""Predictions of a network for chains, on each of the substrates of `routes`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.program import ConductorProgram
from metalforge.core.arrays import Doubles
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import side_by_side
from metalforge.substrates.npu.emulator import EmulatedDevice

from .labels import Example
from .routes import Route, calibration_inputs, outputs_of, states_on_npu, without_memory
from .training import Trained, fit_heads, train_heads

Predictions: TypeAlias = Mapping[str, Sequence[Doubles]]
"""By head, one array (trajectories,) a chain."""


def values_of(trained: Trained, inputs: Doubles) -> dict[str, Doubles]:
    """Return every trained head of one network along a chain; of two classes, the probability of the second."""
    seen = inputs.astype(trained.weights.dtype)
    return _decoded(trained, predict(trained.weights, seen), seen)


def _decoded(trained: Trained, outputs: NDArray[Any], inputs: NDArray[Any]) -> dict[str, Doubles]:
    values = ConductorProgram(weights=trained.weights).decode(outputs, inputs)
    return {name: np.asarray(values[name][:, -1]) for name in trained.fits}


def layout_of(trained: Trained) -> HeadLayout:
    """Return the heads of a network."""
    assert trained.weights.heads is not None
    return trained.weights.heads


def predictions(route: Route, trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> Predictions:
    """Return what a network says of the test chains on a route."""
    if route == "no-memory":
        blind = without_memory(trained.weights)
        trained = train_heads(train, weights=blind, layout=layout_of(trained))
    if route in ("f32-software", "no-memory"):
        answers: list[Mapping[str, Doubles]] = [values_of(trained, example.inputs) for example in test]
    elif route == "npu-w8a8":
        answers = _whole_on_npu(trained, train, test)
    else:
        answers = _refitted(route, trained, train, test)
    return {name: [answer[name] for answer in answers] for name in trained.fits}


def _whole_on_npu(trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> list[Mapping[str, Doubles]]:
    """Return what reservoir and heads say when both are on the emulated NPU, with tanh on the host."""
    layout = layout_of(trained)
    calibration = None if trained.weights.ranges else calibration_inputs([example.inputs for example in train])
    program = ConductorProgram(weights=trained.weights)
    with EmulatedDevice() as device, program.run_on(device, precision="W8A8", calibration=calibration) as running:

        def said(batch: Doubles) -> Doubles:
            running.reset(batch=len(batch))
            steps = range(batch.shape[1])
            return np.stack([running.run_conductor(batch[:, t]).vector for t in steps], axis=1)

        values = side_by_side([example.inputs for example in test], said)
    return [{name: y[:, layout.span(name).stop - 1] for name in trained.fits} for y in values]


def _refitted(
    route: str, trained: Trained, train: Sequence[Example], test: Sequence[Example]
) -> list[Mapping[str, Doubles]]:
    """Return what heads say that were fitted again to the states of the emulated NPU."""
    taught, asked = ([example.inputs for example in part] for part in (train, test))
    with states_on_npu(route, trained.weights, taught, lambda seen: seen.astype(np.float64)) as states:
        again = fit_heads(train, states(taught), weights=trained.weights, layout=layout_of(trained))
        seen = zip(states(asked), asked, strict=True)
        return [_decoded(again, outputs_of(again.weights, x), inputs) for x, inputs in seen]
