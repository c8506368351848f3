r"""Where the next state of a network is computed: its rows in blocks, each on a device or in software.

    pre = W_in u + W_res s          on the chip in integers, a `RowBlock` at a time; W_in may be on the host
    s'  = (1 - a) s + a f(pre + b)  on the host, of all rows together

All blocks read the same s, so they may run anywhere and in any order. A whole network on a device is one block; a
reservoir in chunks has several (`chunks`).

On a device a row's integers and scale depend on that row alone, and joining integers is exact: rows give the same
potentials in whatever program they are. Rows in software are those of a step of the whole network.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from metalforge.core import Array, Doubles, Reals
from metalforge.hybrid.routing.encodings import rms_error
from metalforge.hybrid.routing.jobs import FINEST, LEVELS, rectified_layer
from metalforge.hybrid.running.device_matrix import DeviceGuard, DeviceMatrix, ExactSteps, OnFailure
from metalforge.reservoir import (
    Affine,
    EsnEngine,
    EsnWeights,
    Ranges,
    activation,
    finite_input,
    leaky_step,
    to_dense,
)
from metalforge.substrates import (
    DevicePrograms,
    Encoding,
    Program,
    encode_unsigned,
    encode_zero_point,
    group_ranges,
    quantize,
)

InputPlace: TypeAlias = Literal["auto", "device", "host"]
HOST_GAIN = 2.0
"""W_in goes to the host on `auto` where that makes the predicted error this much smaller: less is not worth a product
on the host in every step."""


def default_ranges(weights: EsnWeights) -> Ranges:
    """Return the weights' own ranges, or else inputs within -1 .. 1 and states within the bound of the activation."""
    if weights.ranges is not None:
        return weights.ranges
    bound = activation(weights.activation).bound
    return Ranges(1.0, 1.0 if bound is None else bound)


def device_lines(weights: EsnWeights, ranges: Ranges, place: str) -> tuple[Reals, Doubles]:
    """Return the matrix on the device, [W_in | W_res] or with W_in on the host W_res, and the range of each line."""
    w_res, states = to_dense(weights.w_res), (weights.units, ranges.s)
    if place == "host":
        return w_res, group_ranges(states)
    w_in = weights.w_driven
    return np.hstack([w_in, w_res]), group_ranges((w_in.shape[1], ranges.u), states)


def input_errors(weights: EsnWeights, ranges: Ranges, encoding: Encoding) -> dict[str, float]:
    """Return the predicted root-mean-square error of a pre-activation, by where W_in is."""
    return {place: rms_error(*device_lines(weights, ranges, place), encoding) for place in ("device", "host")}


def input_place(
    weights: EsnWeights, ranges: Ranges, encoding: Encoding, asked: InputPlace = "auto"
) -> Literal["device", "host"]:
    """Return where W_in goes: where it was asked to, or to the host where that pays."""
    if asked != "auto":
        return asked
    errors = input_errors(weights, ranges, encoding)
    return "host" if HOST_GAIN * errors["host"] < errors["device"] else "device"


INPUT_LEVELS, ZERO_POINT = 7, 8
"""A 4-bit input u of range r is rint(7 u / r) + 8."""
MIN_STEP = 1 / FINEST
"""The finest step of a bounded ReLU on the chip."""


class NativeLayer:
    """[W_in | W_res] with the chip's own bounded ReLU, which leaves only the leak to the host.

        s' = (1 - a) s + a clip(W_in u + W_res s + b, 0, 1)

    States are never negative and go in as they are (16 levels from 0 to 1); inputs have a sign and go in with a zero
    point, whose row sums, like the bias, move into the thresholds. The chip's output n of 15 is the clipped sum.
    """

    rows_per_sample = 1  # four bits are all there is

    def __init__(self, weights: EsnWeights, programs: DevicePrograms, ranges: Ranges) -> None:
        w_in = weights.w_driven
        lines = np.hstack([w_in * (ranges.u / INPUT_LEVELS), to_dense(weights.w_res) / LEVELS])
        q = self.quantized = quantize(lines, 4)
        scales = np.broadcast_to(q.scales, weights.units)
        offset = ZERO_POINT * q.values[:, : w_in.shape[1]].sum(axis=1, dtype=np.int64)
        step = self.step = np.maximum(np.floor(16 / (LEVELS * scales)) / 16, MIN_STEP)
        # The chip rounds up; half a step on the threshold makes that rounding to the nearest level.
        threshold = np.rint(offset - weights.bias.astype(np.float64) / scales + step / 2)
        grid = np.ascontiguousarray(q.values.T.astype(np.int8))
        layer = rectified_layer("reservoir", grid, step, np.clip(threshold, -(1 << 19), (1 << 19) - 1))
        self.encoding = Encoding(activation_bits=4, digits=1, signed="unsigned")
        self._ranges = ranges
        self._programs = programs
        self._slot = programs.add("esn/native", Program(name="reservoir", layers=(layer,), encoding=self.encoding))

    def __call__(self, lines: Reals, *, backwards: bool = False) -> Doubles:
        """Return clip(W_in u + W_res s + b, 0, 1) in fifteenths, shape (batch, units)."""
        u, s = np.split(lines, [lines.shape[1] - self.quantized.shape[0]], axis=1)
        rows: Array = np.concatenate([encode_zero_point(u, self._ranges.u, 4), encode_unsigned(s, 1.0, 4)], axis=1)
        return self._programs.infer(self._slot, rows.astype(np.uint8)) / LEVELS


Product: TypeAlias = DeviceMatrix | NativeLayer
"""Rows of [W_in | W_res], or of W_res, on a device; a layer with the chip's activation has all of them."""


class RowBlock:
    """Some rows of a network: on a device, in software without a `product`, or in software since the device failed."""

    def __init__(
        self, product: Product | None, policy: OnFailure, span: slice = slice(None), name: str = "all rows"
    ) -> None:
        self.name, self.product, self.span, self.guard = name, product, span, DeviceGuard(policy)

    def on_device(self, lines: Reals, *, backwards: bool) -> Doubles | None:
        """Return the product (batch, rows) from the device; None where these rows are the host's."""
        product = self.product
        return None if product is None else self.guard.call(lambda: product(lines, backwards=backwards), lambda: None)


class DevicePath:
    """Computes the next state of a network by blocks of rows, some or all of them on a device.

    `place` says where W_in is. `by_turns`: programs share the device, and are called forwards in one step and backwards
    in the next, so that the fewest are evicted. `activated`: the products are activated already. `weights` also say
    how software goes on after a failure.
    """

    def __init__(
        self,
        weights: EsnWeights,
        programs: DevicePrograms,
        blocks: Sequence[RowBlock],
        *,
        place: str = "device",
        by_turns: bool = False,
        activated: bool = False,
    ) -> None:
        self.programs, self.blocks, self.place, self.by_turns = programs, tuple(blocks), place, by_turns
        self.engine = EsnEngine(weights)
        """The whole network in software."""
        self.lost = False
        """Whether every block is in software, the device having failed."""
        self.rows_per_step = sum(block.product.rows_per_sample for block in self.blocks if block.product is not None)
        """Chip rows that one step of one sample takes."""
        self.rows = 0
        """Chip rows that were sent, or would have been where an emulator was spared its calls."""
        self._activated, self._intact, self._steps = activated, True, 0
        self.write_host(weights)

    def write_host(self, weights: EsnWeights) -> None:
        """Take up the host's share of the weights: bias, leak, activation, and W_in where that is not on the device."""
        self._weights, host = weights, self.place == "host"
        self._on_host = Affine(weights.w_driven.astype(np.float64)) if host else None
        self.exact: ExactSteps | None = None
        matrices = [one for one in (block.product for block in self.blocks) if isinstance(one, DeviceMatrix)]
        if len(matrices) == len(self.blocks):
            self.exact = ExactSteps(weights, matrices, on_host=host, by_turns=self.by_turns)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Steps that software took over, by the name of the block."""
        return {block.name: block.guard.fallbacks for block in self.blocks if block.guard.fallbacks}

    def __call__(self, u: Reals, s: Reals) -> Doubles:
        """Return the products (batch, units) of inputs and states (batch, ...), without bias; zeros for the host's."""
        return self._product(u, s)[0]

    def step(self, u: Reals, s: Reals) -> Reals:
        """Return the states after inputs, of one sample or of a batch."""
        found = self.exact.step(u, s, backwards=self._backwards) if self.exact is not None and self._intact else None
        if found is not None:
            self._count(1, 1 if u.ndim == 1 else len(u))
            return found
        return self._gathered(finite_input(np.atleast_2d(u)), np.atleast_2d(s)).reshape(s.shape)

    def run(self, u: Reals, s: Reals, out: Reals) -> bool:
        """Fill `out` (batch, steps, units) with the states after each step, if that is possible without calls."""
        if self.exact is None or not self._intact or self.exact.run(u, s, out, backwards=self._backwards) is None:
            return False
        self._count(u.shape[1], u.shape[0])
        return True

    def skip(self, steps: int) -> None:
        """Count steps that software took for a device that was lost."""
        for block in self.blocks:
            if block.product is not None:
                block.guard.fallbacks += steps

    def _count(self, steps: int, samples: int) -> None:
        self._steps += steps
        self.rows += self.rows_per_step * steps * samples

    @property
    def _backwards(self) -> bool:
        return self.by_turns and self._steps % 2 == 1

    def _product(self, u: Reals, s: Reals) -> tuple[Doubles, list[RowBlock]]:
        """Return pre-activations without bias, and the blocks that are missing in them."""
        backwards = self._backwards
        lines = s if self._on_host is not None else np.concatenate([u, s], axis=1)
        pre, missing = np.zeros(s.shape), []
        for block in reversed(self.blocks) if backwards else self.blocks:
            found = block.on_device(lines, backwards=backwards)
            if found is None:
                missing.append(block)
            else:
                pre[:, block.span] = found
        return pre if self._on_host is None else pre + self._on_host(u), missing

    def _gathered(self, u: Reals, s: Reals) -> Reals:
        """Return the next states (batch, units) by calls of the device, and of software for the other rows."""
        w, (pre, missing) = self._weights, self._product(u, s)
        sent = sum(b.product.rows_per_sample for b in self.blocks if b.product is not None and b not in missing)
        self.rows += sent * len(u)
        new = np.empty_like(s)
        if len(missing) < len(self.blocks):
            plain = (pre, "identity") if self._activated else (pre + w.bias, w.activation)
            new = leaky_step(s, *plain, w.leak)
        if missing:
            in_software = self.engine.step(s, u)
            for block in missing:
                new[:, block.span] = in_software[:, block.span]
        self._steps += 1
        self.lost = len(missing) == len(self.blocks)
        self._intact = not any(block.guard.lost for block in self.blocks)
        return new
