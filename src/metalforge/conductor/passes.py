"""One pass of a conductor: a frame goes in, outputs of all heads come out, the state moves on.

In software both products are the kernels' (`EsnEngine`, `Affine`); `device_pass` has them on a device. Outputs become
heads by offset + scale * activation(output), all in one operation; names are made when they are asked for.
"""

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Closing, Doubles, Reals, SpecError
from metalforge.reservoir import Affine, BaseCurves, EsnEngine, EsnWeights, HeadValues, decoder_of, init


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
        self._decode = decoder_of(weights.heads)
        self._base = BaseCurves(weights.heads, weights.features)

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame = np.ascontiguousarray(x, self._weights.dtype)
        return self._read(self._values(self._step(frame), frame), frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each, (steps, width) by name.

        The same bits as one after the other.
        """
        given = np.ascontiguousarray(frames, self._weights.dtype)
        if given.ndim != 2 or given.shape[1] != self._weights.inputs or not np.all(np.isfinite(given)):
            raise SpecError(f"frames are finite, of shape (steps, {self._weights.inputs}). Got {given.shape}")
        if not len(given):
            return self._read(np.empty((0, self._weights.outputs)), given)
        return self._read(self._values(self._run(given), given), given)

    def _read(self, values: Doubles, frames: Reals) -> HeadValues:
        """Return decoded outputs, counted from their bases, by name."""
        self._base.add(values, frames)
        return HeadValues(values, self._decode.places)

    @abstractmethod
    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, (units,) or (batch, units)."""

    @abstractmethod
    def _step(self, frame: Reals) -> Reals:
        """Move the state by a frame, and return it."""

    @abstractmethod
    def _run(self, frames: Reals) -> Reals:
        """Move the state by frames (steps, features); return the states after each."""

    @abstractmethod
    def _values(self, states: Reals, frames: Reals) -> Doubles:
        """Return the decoded outputs for states (..., units) and the frames that led to them."""


class SoftwarePass(ConductorRun):
    """In software: one native call for the state, one for all heads."""

    def __init__(self, weights: EsnWeights) -> None:
        super().__init__(weights)
        self._engine = EsnEngine(weights, threads=1)
        self._readout = Affine(self._w_out, self._bias, first=weights.units).native
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

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame, decode = np.ascontiguousarray(x, self._weights.dtype), self._decode
        if frame.ndim != 1:
            return super().run_conductor(frame)
        values, state = np.empty(self._weights.outputs), np.empty_like(self._state)
        try:
            self._engine.native.step_and_read(self._state, frame, state, self._readout, decode.native, values)
        except (TypeError, ValueError, OverflowError):
            self._step(frame)  # says what is wrong
            raise
        self._state = state
        return self._read(values, frame)

    def _step(self, frame: Reals) -> Reals:
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

    def _run(self, frames: Reals) -> Reals:
        states = self._engine.run(frames, self._state)
        self._state = states[-1].copy()
        return states

    def _values(self, states: Reals, frames: Reals) -> Doubles:
        values = np.empty((*states.shape[:-1], self._weights.outputs))
        self._readout.values(states, frames, self._decode.native, values)
        return values

    def close(self) -> None:
        """Nothing is held."""
