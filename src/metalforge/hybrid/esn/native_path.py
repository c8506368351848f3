r"""The reservoir that the chip runs by itself: bounded ReLU for tanh, 4-bit states, only the leak on the host.

    s' = (1 - a) s + a clip(W_in u + W_res s + b, 0, 1)

States are never negative and go in as they are (16 levels from 0 to 1); inputs have a sign and go in with a zero point,
whose row sums, like the bias, move into the thresholds. The chip's output n of 15 is the clipped sum.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.ladder import encode_unsigned, encode_zero_point
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Program
from metalforge.substrates.npu.quantize import quantize
from metalforge.substrates.npu.residency import DevicePrograms

from .paths import LEVELS, MIN_STEP, Ranges, Reals

__all__ = ["NativeLayer"]

BITS = 4
ZERO_POINT, INPUT_LEVELS = 8, 7
"""An input u of range r is rint(7 u / r) + 8."""


class NativeLayer:
    """[W_in | W_res] with the chip's own activation: activated values in steps of 1/15 come out."""

    def __init__(self, weights: EsnWeights, programs: DevicePrograms, ranges: Ranges) -> None:
        w_in = weights.w_driven
        lines = np.hstack([w_in * (ranges.u / INPUT_LEVELS), to_dense(weights.w_res) / LEVELS])
        q = quantize(lines, BITS)
        scales = np.broadcast_to(q.scales, weights.units)
        offset = ZERO_POINT * q.values[:, : w_in.shape[1]].sum(axis=1, dtype=np.int64)
        step = np.maximum(np.floor(16 / (LEVELS * scales)) / 16, MIN_STEP)
        # The chip rounds up; half a step on the threshold makes that rounding to the nearest level.
        threshold = offset - weights.bias.astype(np.float64) / scales + step / 2
        layer = FullyConnected(
            name="reservoir",
            weights=np.ascontiguousarray(q.values.T.astype(np.int8)),
            activation=Activation.BOUNDED_RELU,
            act_step=step.astype(np.float32),
            threshold=np.clip(np.rint(threshold), -(1 << 19), (1 << 19) - 1).astype(np.int32),
        )
        self.encoding = Encoding(activation_bits=BITS, digits=1, signed="unsigned")
        self._ranges = ranges
        self._programs = programs
        self._slot = programs.add("esn/native", Program(name="reservoir", layers=(layer,), encoding=self.encoding))

    @property
    def rows_per_step(self) -> int:
        """One: four bits are all there is."""
        return 1

    def __call__(self, u: Reals, s: Reals) -> NDArray[np.float64]:
        """Return clip(W_in u + W_res s + b, 0, 1) in fifteenths, shape (batch, units)."""
        rows: NDArray[Any] = np.concatenate(
            [encode_zero_point(u, self._ranges.u, BITS), encode_unsigned(s, 1.0, BITS)], axis=1
        )
        return self._programs.infer(self._slot, rows.astype(np.uint8)) / LEVELS
