r"""What a network says of chains on each substrate: software, the emulated NPU in three ways, and without memory.

- `f32-software`: the network as it was trained.
- `npu-w4a8-refit`: four-bit weights on the NPU, tanh on the host, heads fitted again to the states that come out.
- `npu-w8a8`: reservoir and heads on the NPU as they are, tanh on the host.
- `npu-native`: the NPU's own bounded ReLU in place of tanh, four bits throughout, heads fitted again.
- `no-memory`: software without recurrence, to see what memory is worth; heads fitted again.

Whatever is fitted or calibrated again sees training chains only.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

from .chains import Doubles
from .dataset import Example
from .ensemble import values_of
from .heads_training import Trained, fit_heads, train_heads, without_memory
from .program import ConductorProgram

__all__ = ["ROUTES", "Predictions", "Route", "layout_of", "predictions"]

Route: TypeAlias = Literal["f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory"]
ROUTES: tuple[Route, ...] = ("f32-software", "npu-w4a8-refit", "npu-w8a8", "npu-native", "no-memory")
Predictions: TypeAlias = Mapping[str, Sequence[Doubles]]
"""By head, one array (trajectories,) a chain."""
_Placing: TypeAlias = Callable[[HybridEsn, NpuDevice], HybridEsn]


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
        answers = _whole_on_device(trained, train, test)
    elif route == "npu-w4a8-refit":
        answers = _refitted(
            trained, train, test, lambda esn, device: esn.with_hardware_linear(device, precision="W4A8")
        )
    elif route == "npu-native":
        answers = _refitted(trained, train, test, lambda esn, device: esn.with_hardware_native(device))
    else:
        raise SpecError(f"`route` must be one of {', '.join(ROUTES)}. Got `{route}`")
    return {name: [answer[name] for answer in answers] for name in trained.fits}


def _batches(examples: Sequence[Example]) -> dict[int, list[int]]:
    """Return which chains are equally long: they run side by side on a device."""
    found: dict[int, list[int]] = {}
    for i, example in enumerate(examples):
        found.setdefault(len(example.inputs), []).append(i)
    return found


def _calibration_inputs(train: Sequence[Example]) -> Doubles:
    """Return some training chains of one length, to measure ranges on."""
    longest = max(_batches(train).items(), key=lambda item: item[0])[1]
    return np.stack([train[i].inputs for i in longest[:32]])


def _whole_on_device(
    trained: Trained, train: Sequence[Example], test: Sequence[Example]
) -> list[Mapping[str, Doubles]]:
    """Return what reservoir and heads say when both are on the emulated NPU, with tanh on the host."""
    answers: list[Mapping[str, Doubles]] = [{} for _ in test]
    program = ConductorProgram(weights=trained.weights)
    with (
        EmulatedDevice() as device,
        program.run_on(device, precision="W8A8", calibration=_calibration_inputs(train)) as running,
    ):
        for steps, members in _batches(test).items():
            running.reset(batch=len(members))
            inputs = np.stack([test[i].inputs for i in members])
            said = [running.run_conductor(inputs[:, t]) for t in range(steps)]
            for row, i in enumerate(members):
                answers[i] = {name: np.array([heads[name][row, -1] for heads in said]) for name in trained.fits}
    return answers


def _refitted(
    trained: Trained, train: Sequence[Example], test: Sequence[Example], place: _Placing
) -> list[Mapping[str, Doubles]]:
    """Return what heads say that were fitted again to the states of the emulated NPU."""
    weights = trained.weights
    calibrated = HybridEsn.from_weights(weights, calibration=_calibration_inputs(train).astype(weights.dtype))
    with EmulatedDevice() as device:
        chip = place(calibrated, device)

        def seen(examples: Sequence[Example]) -> list[Doubles]:
            rows: list[Doubles] = [np.zeros(0)] * len(examples)
            for members in _batches(examples).values():
                inputs = np.stack([examples[i].inputs for i in members]).astype(weights.dtype)
                both = np.concatenate([chip.states(inputs), inputs], axis=2).astype(np.float64)
                for row, i in zip(both, members, strict=True):
                    rows[i] = row
            return rows

        again = fit_heads(train, seen(train), weights=weights, layout=layout_of(trained))
        outputs = [_output(again, x) for x in seen(test)]
        chip.close()
    return outputs


def _output(trained: Trained, seen: Doubles) -> Mapping[str, Doubles]:
    weights = trained.weights
    assert weights.w_out is not None
    assert weights.out_bias is not None
    decoded = ConductorProgram(weights=weights).decode(seen @ weights.w_out.T + weights.out_bias)
    return {name: np.asarray(decoded[name][:, -1]) for name in trained.fits}
