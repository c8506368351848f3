r"""Layers of a reservoir that keep the chip's bounded ReLU. Experiment 004 compares them with a linear last layer.

- `Rectified`: the layer with its bounded ReLU left on, in the three ways the design documents propose to get around it:

  A  thresholds at their maximum, through the program. The rectifier's corner moves out of reach: every unit is silent.
  B  weights scaled by epsilon, output divided by it on the host. A rectifier does not care about scale,
     relu(eps x) / eps = relu(x): epsilon cancels, negative pre-activations are gone, and 15 levels are left for the
     positive ones. What the chip's step spans is set by three standard deviations (`ScaleTrick`).
  C  the register word of all ones written behind the program. As a 20-bit threshold it is -1: a rectifier, again.
- `NativeLayer`: the reservoir that the chip runs by itself, bounded ReLU for tanh, only the leak on the host:

    s' = (1 - a) s + a clip(W_in u + W_res s + b, 0, 1)

  States are never negative and go in as they are (16 levels from 0 to 1); inputs have a sign and go in with a zero
  point, whose row sums, like the bias, move into the thresholds. The chip's output n of 15 is the clipped sum.

Both take lines [u; s] (batch, inputs + units), as a `DeviceMatrix` does, and return (batch, units).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from metalforge.core.arrays import Array, Doubles, Reals
from metalforge.core.errors import PlacementError
from metalforge.hybrid.routing.jobs import FINEST, LEVELS, rectified_layer
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights, Ranges
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import build_ladder, encode_unsigned, encode_zero_point, group_ranges
from metalforge.substrates.npu.program import Encoding, Program
from metalforge.substrates.npu.quantize import quantize
from metalforge.substrates.npu.registers import maximum_threshold, threshold_address
from metalforge.substrates.npu.residency import DevicePrograms

MIN_STEP = 1 / FINEST
"""The finest step of a bounded ReLU on the chip."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleTrick:
    """Approach B's configuration: epsilon scales weights down, `span` is what the chip's 15 steps cover, a unit.

    `span` is three standard deviations of the pre-activation for inputs and states spread evenly over their ranges,
    sigma_i^2 = (u^2 |W_in,i|^2 + s^2 |W_res,i|^2) / 3. `epsilon` is the design documents': it puts three sigma at 0.1,
    where they take a bounded ReLU to be linear. It is kept to be shown, and cancels.
    """

    epsilon: float
    span: Doubles

    @classmethod
    def from_weights(cls, weights: EsnWeights, ranges: Ranges) -> "ScaleTrick":
        """Return the configuration by the three-sigma rule."""
        energy = ranges.u**2 * np.sum(weights.w_driven.astype(np.float64) ** 2, axis=1)
        energy += ranges.s**2 * np.sum(to_dense(weights.w_res).astype(np.float64) ** 2, axis=1)
        span = 3 * np.sqrt(energy / 3)
        span[span == 0] = 1.0
        return cls(epsilon=0.1 / float(span.max()), span=span)


class Rectified:
    """The layer with its bounded ReLU: 4-bit activations in, 4-bit rectified pre-activations out.

    Inputs go in on two rails, so that zero is the natural corner and what the three approaches do to it can be seen. An
    output of n stands for the middle of its step, (n - 1/2) step; 0 stands for nothing.
    """

    rows_per_sample = 1  # nibble rows cannot be joined after a rectifier

    def __init__(
        self, weights: EsnWeights, programs: DevicePrograms, ranges: Ranges, approach: Literal["A", "B", "C"]
    ) -> None:
        self.encoding = Encoding(activation_bits=4, digits=1, signed="two_rail")
        w_in = weights.w_driven
        lines = group_ranges((w_in.shape[1], ranges.u), (weights.units, ranges.s))
        self.trick = ScaleTrick.from_weights(weights, ranges)
        # Epsilon goes in here and comes out again in `scales`: the integers are the same without it.
        self._ladder = build_ladder(
            self.trick.epsilon * np.hstack([w_in, to_dense(weights.w_res)]), self.encoding, ranges=lines
        )
        scales = self._ladder.scales / self.trick.epsilon
        step = np.maximum(self.trick.span / (LEVELS * scales), MIN_STEP)
        step = np.floor(step * 16) / 16  # what the chip makes of it
        threshold = maximum_threshold(weights.units) if approach == "A" else np.zeros(weights.units, np.int32)
        layer = rectified_layer("reservoir", self._ladder.chip_weights(), step, threshold)
        self._unit = scales * step
        self._programs = programs
        program = Program(name="reservoir", layers=(layer,), encoding=self.encoding, scales=scales)
        self._slot = programs.add(f"esn/{approach}", program)
        if approach == "C":
            _write_all_ones(programs.device, self._slot, weights.units)

    def __call__(self, lines: Reals, *, backwards: bool = False) -> Doubles:
        """Return what is left of the pre-activations (batch, units)."""
        out = self._programs.infer(self._slot, self._ladder.encode(lines))
        return np.where(out > 0, (out - 0.5) * self._unit, 0.0)


def _write_all_ones(device: NpuDevice, slot: str, units: int) -> None:
    """Write the design documents' ``u64::MAX`` to every threshold register of a program."""
    write, placement = getattr(device, "bar0_write", None), getattr(device, "placement", None)
    if write is None or placement is None:
        raise PlacementError(
            "approach C writes registers, and this device shows none: the vendor's register map is not public"
            "\nhint: use approach `last-layer`, or the emulator"
        )
    (processor,) = placement(slot).processors
    for unit in range(units):
        write(threshold_address(processor, unit), (1 << 64) - 1)


BITS = 4
ZERO_POINT, INPUT_LEVELS = 8, 7
"""An input u of range r is rint(7 u / r) + 8."""


class NativeLayer:
    """[W_in | W_res] with the chip's own bounded ReLU; returns activated values in steps of 1/15."""

    rows_per_sample = 1  # four bits are all there is

    def __init__(self, weights: EsnWeights, programs: DevicePrograms, ranges: Ranges) -> None:
        w_in = weights.w_driven
        lines = np.hstack([w_in * (ranges.u / INPUT_LEVELS), to_dense(weights.w_res) / LEVELS])
        q = self.quantized = quantize(lines, BITS)
        scales = np.broadcast_to(q.scales, weights.units)
        offset = ZERO_POINT * q.values[:, : w_in.shape[1]].sum(axis=1, dtype=np.int64)
        step = self.step = np.maximum(np.floor(16 / (LEVELS * scales)) / 16, MIN_STEP)
        # The chip rounds up; half a step on the threshold makes that rounding to the nearest level.
        threshold = np.rint(offset - weights.bias.astype(np.float64) / scales + step / 2)
        grid = np.ascontiguousarray(q.values.T.astype(np.int8))
        layer = rectified_layer("reservoir", grid, step, np.clip(threshold, -(1 << 19), (1 << 19) - 1))
        self.encoding = Encoding(activation_bits=BITS, digits=1, signed="unsigned")
        self._ranges = ranges
        self._programs = programs
        self._slot = programs.add("esn/native", Program(name="reservoir", layers=(layer,), encoding=self.encoding))

    def __call__(self, lines: Reals, *, backwards: bool = False) -> Doubles:
        """Return clip(W_in u + W_res s + b, 0, 1) in fifteenths, shape (batch, units)."""
        u, s = np.split(lines, [lines.shape[1] - self.quantized.shape[0]], axis=1)
        rows: Array = np.concatenate(
            [encode_zero_point(u, self._ranges.u, BITS), encode_unsigned(s, 1.0, BITS)], axis=1
        )
        return self._programs.infer(self._slot, rows.astype(np.uint8)) / LEVELS
