"""The substrates that heads are judged on: software, the emulated NPU in three ways, and a network without memory.

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

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.series import side_by_side
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice

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
