"""A network on two substrates as a state that is carried from step to step: checked when set, copied when read."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import Spent
from metalforge.substrates.npu.residency import DevicePrograms

__all__ = ["CarriedState"]

Reals = NDArray[np.floating[Any]]


class CarriedState:
    """State (units,) or (batch, units) and the last output beside it; a network adds what the next state is.

    `_programs` are its own on a device, None in software.
    """

    def __init__(self, weights: EsnWeights, programs: DevicePrograms | None = None) -> None:
        self.weights = weights
        self._programs = programs
        self._state: Reals = np.zeros(weights.units, weights.dtype)
        self._output: Reals = np.zeros(max(weights.outputs, weights.feedback), weights.dtype)
        self._steps = 0
        self._host_s = 0.0

    @property
    def state(self) -> Reals:
        """A copy of the state."""
        return self._state.copy()

    @state.setter
    def state(self, value: Reals) -> None:
        given = np.asarray(value, self.weights.dtype)
        if given.shape[-1:] != (self.weights.units,) or given.ndim > 2 or not np.all(np.isfinite(given)):
            raise SpecError(f"a state is finite, ({self.weights.units},) or (batch, units). Got shape {given.shape}")
        self._state = given.copy()
        self._output = np.zeros((*given.shape[:-1], self._output.shape[-1]), self.weights.dtype)

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, for one sample or for a batch."""
        shape = () if batch is None else (batch,)
        self._state = np.zeros((*shape, self.weights.units), self.weights.dtype)
        self._output = np.zeros((*shape, self._output.shape[-1]), self.weights.dtype)

    def step(self, u: Reals) -> Reals:
        """Take one step with input (inputs,) or (batch, inputs); return the output, or the state without a readout."""
        started = time.perf_counter()
        given = self._checked_input(u)
        full = given if self.weights.w_fb is None else np.concatenate([given, self._output], axis=-1)
        rows = np.atleast_2d(full)
        self._state = self._next(rows, np.atleast_2d(self._state)).reshape(self._state.shape)
        self._steps += len(rows)
        if self.weights.w_out is not None:
            self._output = self.weights.output(self._state, given)
        self._host_s += time.perf_counter() - started
        return self._output if self.weights.w_out is not None else self._state

    def run(self, u: Reals) -> Reals:
        """Step through (steps, inputs), or (batch, steps, inputs) from a state of that batch; return all outputs."""
        given = np.asarray(u, self.weights.dtype)
        if given.ndim not in (2, 3):
            raise SpecError(f"`u` must have shape (steps, inputs) or (batch, steps, inputs). Got {given.shape}")
        return np.stack([self.step(given[..., t, :]).copy() for t in range(given.shape[-2])], axis=-2)

    def close(self) -> None:
        """Take this network's programs off the device."""
        if self._programs is not None:
            self._programs.close()

    def _host(self) -> Measured:
        return Measured(value=self._host_s, unit="s", how="perf_counter around each step")

    def _spent(self) -> Spent:
        return Spent(None, None) if self._programs is None else self._programs.spent()

    def _next(self, rows: Reals, states: Reals) -> Reals:
        """Return the states after `rows` (batch, inputs with feedback); every network has its own."""
        raise TypeError(f"{type(self).__name__} does not say where its next state comes from")

    def _checked_input(self, u: Reals) -> Reals:
        """Return an input as the network's real type, if it fits the state."""
        given = np.asarray(u, self.weights.dtype)
        wanted = (*self._state.shape[:-1], self.weights.inputs)
        if given.shape != wanted:
            raise SpecError(
                f"`u` must have shape {wanted}. Got {given.shape}\nhint: reset(batch=n) for n samples at once"
            )
        if not np.all(np.isfinite(given)):
            raise SpecError("`u` must hold finite numbers")
        return given
