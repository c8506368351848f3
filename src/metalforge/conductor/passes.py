"""One pass of a conductor on each substrate: a frame goes in, outputs of all heads come out, the state moves on.

In software both products are the kernels' (`Engine`, `Affine`); on a device they are two calls, with the activation and
the state on the host in between, and on an emulator one native pass with the books of the two. Outputs become heads by
offset + scale * activation(output), all in one operation; names are made when they are asked for.
"""

from abc import abstractmethod
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.hybrid.running.exact_steps import ExactReadout
from metalforge.reservoir.engine import Affine, Engine, init
from metalforge.reservoir.heads import BaseCurves, HeadValues, decoder_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import group_ranges
from metalforge.substrates.npu.residency import DevicePrograms

READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""


class ConductorRun(Closing):
    """A program with a state: `run_conductor` takes a frame and gives every head, in one pass.

    The state is carried from frame to frame and may be set; `reset(batch=8)` starts eight chains side by side.
    """

    state: Reals

    def __init__(self, weights: EsnWeights) -> None:
        assert weights.w_out is not None
        assert weights.out_bias is not None
        assert weights.heads is not None
        self._weights, self._w_out, self._bias = weights, weights.w_out, weights.out_bias
        self._dtype, self._width = weights.dtype, weights.outputs
        self._decode = decoder_of(weights.heads)
        self._base = BaseCurves(weights.heads, weights.features)

    def _read(self, values: Doubles, frames: Reals) -> HeadValues:
        """Return decoded outputs, counted from their bases, by name."""
        self._base.add(values, frames)
        return HeadValues(values, self._decode.places)

    @abstractmethod
    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each, (steps, width) by name.

        The same bits as one after the other.
        """

    @abstractmethod
    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""

    @abstractmethod
    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, (units,) or (batch, units)."""

    @abstractmethod
    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""

    @abstractmethod
    def rewrite(self, w_out: Reals, out_bias: Reals) -> int:
        """Read by another readout of the same shape from now on; return the bytes that went to a device."""


class SoftwarePass(ConductorRun):
    """In software: one native call for the state, one for all heads."""

    def __init__(self, weights: EsnWeights) -> None:
        super().__init__(weights)
        self._engine = Engine(weights, threads=1)
        self._readout = Affine(self._w_out, self._bias, first=weights.units).native
        self._one_pass = self._engine.native.step_and_read
        self._state, self._spare = init(weights), init(weights)

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
        self._state, self._spare = given, np.empty_like(given)

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest."""
        self.state = init(self._weights, batch)

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame, decode = np.ascontiguousarray(x, self._dtype), self._decode
        if frame.ndim == 1:
            values, state = np.empty(self._width), self._spare
            try:
                self._one_pass(self._state, frame, state, self._readout, decode.native, values)
            except (TypeError, ValueError, OverflowError):
                self._moved(frame)  # says what is wrong
                raise
            self._state, self._spare = state, self._state
            return self._read(values, frame)
        state = self._moved(frame)
        values = np.empty((*state.shape[:-1], self._width))
        self._readout.values(state, frame, decode.native, values)
        return self._read(values, frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each."""
        given = _checked_frames(frames, self._weights)
        values = np.empty((len(given), self._width))
        if len(given):
            states = self._engine.run(given, self._state)
            self._readout.values(states, given, self._decode.native, values)
            self._state = states[-1].copy()
        return self._read(values, given)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        given = np.ascontiguousarray(frame, self._dtype)
        state = self._moved(given)
        outputs: Reals = np.empty((*state.shape[:-1], self._width), self._dtype)
        self._readout.outputs(state, given, outputs)
        return outputs

    def rewrite(self, w_out: Reals, out_bias: Reals) -> int:
        """Read by another readout of the same shape from now on."""
        self._w_out, self._bias = _alike(self._w_out, w_out), _alike(self._bias, out_bias)
        self._readout = Affine(self._w_out, self._bias, first=self._weights.units).native
        return 0

    def _moved(self, frame: Reals) -> Reals:
        """Move the state by a frame, and return it."""
        try:  # the kernel looks at shapes and for numbers that are not finite: once is enough
            self._state = self._engine.step(self._state, frame)
        except (OverflowError, ValueError) as error:
            wanted = (*self._state.shape[:-1], self._weights.inputs)
            if frame.shape != wanted:
                raise SpecError(
                    f"a frame must have shape {wanted}. Got {frame.shape}\nhint: reset(batch=n) for n chains at once"
                ) from error
            raise SpecError(f"a frame cannot be stepped: {error}") from error
        return self._state

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
        ranges = host.ranges_at(encoding_of(READOUT_PRECISION).activation_bits)
        self._ranges = ranges.u, ranges.s
        self._readout = self._on_device(weights)
        self._exact = ExactReadout(self._readout, weights.units, self._bias, self._decode.native)

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

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame = np.ascontiguousarray(x, self._dtype)
        values = self._esn.step_then(frame, self._exact)
        return self._read(self._decode.values(self.step(frame)) if values is None else values, frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each.

        States follow each other; all of them are read in one call.
        """
        given = _checked_frames(frames, self._weights)
        if not len(given):
            return self._read(np.empty((0, self._width)), given)
        states = self._esn.run(given)
        rows = tuple(len(given) * rows for rows in self._exact.rows)
        values = self._programs.compute(self._exact.slots, lambda held: self._exact(states, given, held), rows)
        return self._read(self._decode.values(self._outputs(states, given)) if values is None else values, given)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        return self._outputs(self._esn.step(frame), frame)

    def _outputs(self, states: Reals, frames: Reals) -> Reals:
        """Return the outputs of all heads for states (..., units) and the frames that led to them."""
        seen = np.concatenate([states, frames], axis=-1) if self._weights.passthrough else states
        found = self._readout(np.atleast_2d(seen)) + self._bias
        return np.asarray(found.reshape(*states.shape[:-1], self._width))

    def rewrite(self, w_out: Reals, out_bias: Reals) -> int:
        """Read by another readout of the same shape from now on, written over the one that the device holds.

        Its weights go there as a variable (`set_variable`), or, where a chip holds them otherwise, as programs.
        """
        self._w_out, self._bias = _alike(self._w_out, w_out), _alike(self._bias, out_bias)
        try:
            sent = self._readout.push(self._w_out).bytes
        except SpecError:  # larger weights may take more programs, so that no sum saturates
            self._programs.close()
            self._programs = DevicePrograms(self._programs.device)
            self._readout = self._on_device(replace(self._weights, w_out=self._w_out))
            sent = sum(program.layers[0].weights.nbytes for program in self._readout.compiled.programs)
        self._exact = ExactReadout(self._readout, self._weights.units, self._bias, self._decode.native)
        return sent

    def _on_device(self, weights: EsnWeights) -> DeviceMatrix:
        return DeviceMatrix(_merged(weights, *self._ranges), self._programs, "conductor")

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        self._programs.close()


def _alike(before: Reals, after: Reals) -> Reals:
    if np.shape(after) != before.shape or not np.all(np.isfinite(after)):
        raise SpecError(f"a readout is written over by a finite one of shape {before.shape}. Got {np.shape(after)}")
    return np.ascontiguousarray(after, before.dtype)


def _checked_frames(frames: ArrayLike, weights: EsnWeights) -> Reals:
    given = np.ascontiguousarray(frames, weights.dtype)
    if given.ndim != 2 or given.shape[1] != weights.inputs or not np.all(np.isfinite(given)):
        raise SpecError(f"frames are finite, of shape (steps, {weights.inputs}). Got {given.shape}")
    return given


def _merged(weights: EsnWeights, u: float, s: float) -> CompiledLinear:
    """Return all heads as one layer."""
    assert weights.w_out is not None
    groups = [(weights.units, s), (weights.inputs, u)][: 1 + weights.passthrough]
    return compile_linear("heads", weights.w_out, encoding=encoding_of(READOUT_PRECISION), ranges=group_ranges(*groups))
