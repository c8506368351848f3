"""One pass of a conductor on each substrate: a frame goes in, outputs of all heads come out, the state moves on.

In software both products are NumPy's and the kernels' (`Engine`); on a device they are two calls, with the activation
and the state on the host in between. Outputs become heads by offset + scale * activation(output), all heads of one
activation in one operation.
"""

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadActivation, HeadLayout
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.reservoir.engine import Engine, init
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import group_ranges
from metalforge.substrates.npu.residency import DevicePrograms

Reals = NDArray[Any]
READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""


HeadValues: TypeAlias = dict[str, NDArray[np.float64]]
"""A value or several a head, by name; (width,) for one input, (batch, width) for a batch."""


class Decoder:
    """Decodes the outputs of one layout.

    Heads are a few numbers each: what costs time is the number of operations, not their length. So outputs are
    permuted once, heads of one activation side by side, and each activation is one call on its block.
    """

    def __init__(self, layout: HeadLayout) -> None:
        spans = {head.name: range(layout.width)[layout.span(head.name)] for head in layout.heads}
        order = sorted(layout.heads, key=lambda head: (head.activation, head.width))
        columns = [column for head in order for column in spans[head.name]]
        self._order = None if columns == list(range(layout.width)) else np.array(columns)
        self._blocks: list[tuple[HeadActivation, slice, int]] = []
        places: dict[str, slice] = {}
        start = 0
        for head in order:
            stop = start + head.width
            places[head.name] = slice(start, stop)
            same = self._blocks and self._blocks[-1][0] == head.activation
            if same and (head.activation != "softmax" or self._blocks[-1][2] == head.width):
                self._blocks[-1] = (head.activation, slice(self._blocks[-1][1].start, stop), head.width)
            else:
                self._blocks.append((head.activation, slice(start, stop), head.width))
            start = stop
        self._places = tuple((name, places[name]) for name in layout.names)
        scale = np.concatenate([np.full(head.width, head.scale, np.float64) for head in order])
        offset = np.concatenate([np.full(head.width, head.offset, np.float64) for head in order])
        self._scale = scale if np.any(scale != 1) else None
        self._offset = offset if offset.any() else None

    def __call__(self, outputs: NDArray[Any]) -> HeadValues:
        """Return each head's value from outputs (..., width of the layout), as views of one new array."""
        given = outputs if self._order is None else outputs.take(self._order, axis=-1)
        values = given.astype(np.float64)
        for activation, block, width in self._blocks:
            part = values[..., block]
            if activation == "sigmoid":
                expit(part, out=part)
            elif activation == "relu":
                np.maximum(part, 0, out=part)
            elif activation == "tanh":
                np.tanh(part, out=part)
            elif activation == "softmax" and width == 2:
                # exp(a) / (exp(a) + exp(b)) is a sigmoid of the difference: two operations in place of five.
                classes = part.reshape(*part.shape[:-1], -1, 2)
                expit(classes - classes[..., ::-1], out=classes)
            elif activation == "softmax":
                classes = part.reshape(*part.shape[:-1], -1, width)  # splitting the last axis gives a view
                classes -= classes.max(axis=-1, keepdims=True)
                np.exp(classes, out=classes)
                classes /= classes.sum(axis=-1, keepdims=True)
        if self._scale is not None:
            values *= self._scale
        if self._offset is not None:
            values += self._offset
        if values.ndim == 1:  # a plain slice is made in half the time of one with an ellipsis
            return {name: values[place] for name, place in self._places}
        return {name: values[..., place] for name, place in self._places}


@lru_cache(maxsize=64)
def decoder_of(layout: HeadLayout) -> Decoder:
    """Return the decoder of a layout; made once, since that takes longer than decoding."""
    return Decoder(layout)


class ConductorRun(Closing):
    """A program with a state: `run_conductor` takes a frame and gives every head, in one pass.

    The state is carried from frame to frame and may be set; `reset(batch=8)` starts eight chains side by side.
    """

    state: Reals

    def __init__(self, weights: EsnWeights) -> None:
        assert weights.out_bias is not None
        self._weights, self._bias = weights, weights.out_bias

    @cached_property
    def _decode(self) -> Decoder:
        assert self._weights.heads is not None
        return decoder_of(self._weights.heads)

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        return self._decode(self.step(np.asarray(x, self._weights.dtype)))

    @abstractmethod
    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, (units,) or (batch, units)."""

    @abstractmethod
    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""

    def _seen(self, state: Reals, frame: Reals) -> Reals:
        return np.concatenate([state, frame], axis=-1) if self._weights.passthrough else state


class SoftwarePass(ConductorRun):
    """In software: one kernel call for the state, one product for all heads."""

    def __init__(self, weights: EsnWeights) -> None:
        super().__init__(weights)
        assert weights.w_out is not None
        self._engine, self._w_out = Engine(weights, threads=1), np.ascontiguousarray(weights.w_out.T)
        self._state = init(weights)

    @property
    def state(self) -> Reals:
        """A copy of the state; may be set."""
        return self._state.copy()

    @state.setter
    def state(self, value: Reals) -> None:
        units = self._weights.units
        given = np.array(value, self._weights.dtype)
        if given.shape[-1:] != (units,) or given.ndim > 2 or not np.all(np.isfinite(given)):
            raise SpecError(f"a state is finite, ({units},) or (batch, units). Got shape {given.shape}")
        self._state = given

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest."""
        self._state = init(self._weights, batch)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        wanted = (*self._state.shape[:-1], self._weights.inputs)
        if frame.shape != wanted:
            raise SpecError(
                f"a frame must have shape {wanted}. Got {frame.shape}\nhint: reset(batch=n) for n chains at once"
            )
        try:
            state = self._engine.step(self._state, frame)
        except (OverflowError, ValueError) as error:  # the kernel looks for numbers that are not finite: once is enough
            raise SpecError(f"a frame cannot be stepped: {error}") from error
        self._state = state
        return np.asarray(self._seen(state, frame) @ self._w_out + self._bias)

    def close(self) -> None:
        """Nothing is held."""


class DevicePass(ConductorRun):
    """Both products on a device; their ranges are the weights' own, or those of inputs and states on `calibration`."""

    def __init__(self, weights: EsnWeights, device: NpuDevice, precision: str, calibration: ArrayLike | None) -> None:
        super().__init__(weights)
        if calibration is None and weights.ranges is None:
            raise SpecError(
                "these weights do not say how large their inputs get: on a device these would be clamped, and heads "
                "would read wrong\nhint: `conductor train` measures it; or give `calibration`, as the network sees it"
            )
        data = None if calibration is None else np.asarray(calibration, weights.dtype)
        # With the heads on the device the host has no readout to compute.
        host = HybridEsn.from_weights(replace(weights, w_out=None, out_bias=None), calibration=data)
        self._esn = host.with_hardware_linear(device, precision=precision)
        self._programs = DevicePrograms(device)
        self._readout = DeviceMatrix(_merged(weights, host.ranges.u, host.ranges.s), self._programs, "conductor")

    @property
    def state(self) -> Reals:
        """A copy of the state; may be set."""
        return self._esn.state

    @state.setter
    def state(self, value: Reals) -> None:
        self._esn.state = value

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest."""
        self._esn.reset(batch=batch)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        state = self._esn.step(frame)
        found = self._readout(np.atleast_2d(self._seen(state, frame))) + self._bias
        return np.asarray(found.reshape(*state.shape[:-1], self._weights.outputs))

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        self._programs.close()


def _merged(weights: EsnWeights, u: float, s: float) -> CompiledLinear:
    """Return all heads as one layer."""
    assert weights.w_out is not None
    groups = [(weights.units, s), (weights.inputs, u)][: 1 + weights.passthrough]
    return compile_linear("heads", weights.w_out, encoding=encoding_of(READOUT_PRECISION), ranges=group_ranges(*groups))
