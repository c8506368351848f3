r"""Predictions of a network for chains on each of the substrates that heads are judged on.

- `f32-software`: the network as it was trained.
- `npu-w4a8-refit`: four-bit weights on the NPU, tanh on the host, heads fitted again to the states that come out.
- `npu-w8a8`: reservoir and heads on the NPU as they are, tanh on the host.
- `npu-native`: the NPU's own bounded ReLU in place of tanh, four bits throughout, heads fitted again.
- `no-memory`: software without recurrence, to measure the value of memory; heads fitted again.

Training chains alone are used wherever something is fitted or calibrated again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.program import ConductorProgram
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.heads import head_values
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import side_by_side
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

from .labels import Example
from .training import fit_heads, train_heads

Route: TypeAlias = Literal["f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory"]
ROUTES: tuple[Route, ...] = ("f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory")
REFITTED: Mapping[str, Callable[[HybridEsn, NpuDevice], HybridEsn]] = {
    "npu-w4a8-refit": lambda esn, device: esn.with_hardware_linear(device, precision="W4A8"),
    "npu-native": lambda esn, device: esn.with_hardware_native(device),
}
"""How a network is put on the NPU by the routes that fit heads again to its states."""
States: TypeAlias = Callable[[Sequence[Doubles]], list[Doubles]]


def without_memory(weights: EsnWeights) -> EsnWeights:
    """Return the same network without recurrence and without leak: every step stands by itself."""
    return replace(weights, w_res=np.zeros_like(weights.w_res), leak=1.0)


def calibration_inputs(taught: Sequence[Doubles]) -> Doubles:
    """Return up to 32 of the longest series, to measure ranges on."""
    longest = max(map(len, taught))
    return np.stack([one for one in taught if len(one) == longest][:32])


@contextmanager
def states_on_npu(
    route: str, weights: EsnWeights, taught: Sequence[Doubles], keep: Callable[[NDArray[Any]], Doubles]
) -> Iterator[States]:
    """Give what `keep` leaves of [s; u], (series, steps, units + inputs), of series with states of the emulated NPU."""
    if route not in REFITTED:
        raise SpecError(f"`route` must be one of {', '.join(ROUTES)}. Got `{route}`")
    calibration = calibration_inputs(taught).astype(weights.dtype)
    with EmulatedDevice() as device:
        chip = REFITTED[route](HybridEsn.from_weights(weights, calibration=calibration), device)

        def states(inputs: Sequence[Doubles]) -> list[Doubles]:
            series = [one.astype(weights.dtype) for one in inputs]
            return side_by_side(series, lambda u: keep(np.concatenate([chip.states(u), u], axis=2)))

        yield states
        chip.close()


def outputs_of(weights: EsnWeights, features: Doubles) -> Doubles:
    """Return the outputs of a readout for rows of features."""
    assert weights.w_out is not None
    assert weights.out_bias is not None
    return np.asarray(features @ weights.w_out.T + weights.out_bias, np.float64)


def values_of(weights: EsnWeights, inputs: Doubles) -> dict[str, Doubles]:
    """Return every trained head of a network along a chain; of two classes, the probability of the second."""
    seen = inputs.astype(weights.dtype)
    return _decoded(weights, predict(weights, seen), seen)


def _decoded(weights: EsnWeights, outputs: NDArray[Any], inputs: NDArray[Any]) -> dict[str, Doubles]:
    return _by_head(weights, head_values(layout_of(weights), weights.features, outputs, inputs))


def _by_head(weights: EsnWeights, values: Doubles) -> dict[str, Doubles]:
    layout = layout_of(weights)
    return {head.name: values[:, layout.span(head.name).stop - 1] for head in layout.heads if head.trained}


def layout_of(weights: EsnWeights) -> HeadLayout:
    """Return the heads of a network."""
    if weights.heads is None:
        raise SpecError("these weights have no head layout\nhint: make them with `python -m experiments heads train`")
    return weights.heads


def predictions(
    route: Route, weights: EsnWeights, train: Sequence[Example], test: Sequence[Example]
) -> Mapping[str, Sequence[Doubles]]:
    """Return what a network says of the test chains on a route: by head, one array (trajectories,) a chain."""
    if route == "no-memory":
        weights, _ = train_heads(train, weights=without_memory(weights), layout=layout_of(weights))
    if route in ("f32-software", "no-memory"):
        answers = [values_of(weights, example.inputs) for example in test]
    elif route == "npu-w8a8":
        answers = _whole_on_npu(weights, train, test)
    else:
        answers = _refitted(route, weights, train, test)
    return {name: [answer[name] for answer in answers] for name in answers[0]}


def _whole_on_npu(weights: EsnWeights, train: Sequence[Example], test: Sequence[Example]) -> list[dict[str, Doubles]]:
    """Return what reservoir and heads say when both are on the emulated NPU, with tanh on the host."""
    calibration = None if weights.ranges else calibration_inputs([example.inputs for example in train])
    with (
        EmulatedDevice() as device,
        ConductorProgram(weights, device, precision="W8A8", calibration=calibration) as running,
    ):

        def said(batch: Doubles) -> Doubles:
            running.reset(batch=len(batch))
            steps = range(batch.shape[1])
            return np.stack([running.run_conductor(batch[:, t]).vector for t in steps], axis=1)

        return [_by_head(weights, y) for y in side_by_side([example.inputs for example in test], said)]


def _refitted(
    route: str, weights: EsnWeights, train: Sequence[Example], test: Sequence[Example]
) -> list[dict[str, Doubles]]:
    """Return what heads say that were fitted again to the states of the emulated NPU."""
    taught, asked = ([example.inputs for example in part] for part in (train, test))
    with states_on_npu(route, weights, taught, lambda seen: seen.astype(np.float64)) as states:
        again, _ = fit_heads(train, states(taught), weights=weights, layout=layout_of(weights))
        return [_decoded(again, outputs_of(again, x), u) for x, u in zip(states(asked), asked, strict=True)]
