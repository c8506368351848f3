r"""The design documents' three ways around the chip's bounded ReLU, for experiment 004.

All leave the rectifier of the layer on:

A  thresholds at their maximum, through the program. The rectifier's corner moves out of reach: every unit is silent.
B  weights scaled by epsilon, output divided by it on the host. A rectifier does not care about scale,
   relu(eps x) / eps = relu(x): epsilon cancels, negative pre-activations are gone, and 15 levels are left for the
   positive ones. What the chip's step spans is set by three standard deviations (`ScaleTrick`).
C  the register word of all ones in every threshold register. As a 20-bit threshold it is -1: a rectifier, again. The
   vendor's register map is not public, so the threshold is part of the program here.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from metalforge.core.arrays import Doubles, Reals
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import MIN_STEP, DevicePath, RowBlock
from metalforge.hybrid.routing.jobs import LEVELS, rectified_layer
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights, Ranges
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import build_ladder, group_ranges
from metalforge.substrates.npu.program import POTENTIAL_BITS, Encoding, Program
from metalforge.substrates.npu.residency import DevicePrograms

Trick: TypeAlias = Literal["A", "B", "C"]
THRESHOLDS: dict[Trick, int] = {"A": (1 << (POTENTIAL_BITS - 1)) - 1, "B": 0, "C": -1}
"""Threshold of every unit."""


def with_rectifier(esn: HybridEsn, device: NpuDevice, approach: Trick) -> HybridEsn:
    """Return a network with its product on a device behind the chip's rectifier, at W4A4."""
    programs = DevicePrograms(device)
    layer = Rectified(esn.weights, programs, esn.ranges, approach)
    path = DevicePath(esn.weights, programs, [RowBlock(esn.weights, layer, "fallback")])
    return esn.with_path(path, precision="W4A4", ranges=esn.ranges)


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

    def __init__(self, weights: EsnWeights, programs: DevicePrograms, ranges: Ranges, approach: Trick) -> None:
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
        threshold = np.full(weights.units, THRESHOLDS[approach], np.int32)
        layer = rectified_layer("reservoir", self._ladder.chip_weights(), step, threshold)
        self._unit = scales * step
        self._programs = programs
        program = Program(name="reservoir", layers=(layer,), encoding=self.encoding, scales=scales)
        self._slot = programs.add(f"esn/{approach}", program)

    def __call__(self, lines: Reals, *, backwards: bool = False) -> Doubles:
        """Return the rectified pre-activations (batch, units)."""
        out = self._programs.infer(self._slot, self._ladder.encode(lines))
        return np.where(out > 0, (out - 0.5) * self._unit, 0.0)
