"""One pass of a conductor: a frame goes in, outputs of all heads come out, the state moves on.

In software both products are the kernels' (`Engine`, `Affine`); `device_pass` has them on a device. Outputs become
heads by offset + scale * activation(output), all in one operation; names are made when they are asked for.
"""

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.reservoir.engine import Affine, Engine, init
from metalforge.reservoir.heads import BaseCurves, HeadValues, decoder_of
from metalforge.reservoir.weights import EsnWeights


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
        given = checked_frames(frames, self._weights)
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


def checked_frames(frames: ArrayLike, weights: EsnWeights) -> Reals:
    """Return frames (steps, features) in the type of the weights; raises where they are none."""
    given = np.ascontiguousarray(frames, weights.dtype)
    if given.ndim != 2 or given.shape[1] != weights.inputs or not np.all(np.isfinite(given)):
        raise SpecError(f"frames are finite, of shape (steps, {weights.inputs}). Got {given.shape}")
    return given
