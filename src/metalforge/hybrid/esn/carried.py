"""The state that a network on two substrates carries from step to step: checked when set, copied when read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.reservoir.weights import EsnWeights

__all__ = ["CarriedState"]

Reals = NDArray[np.floating[Any]]


class CarriedState:
    """State (units,) or (batch, units) and the last output beside it, for networks with `weights`."""

    weights: EsnWeights
    _state: Reals
    _output: Reals

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

    def _checked_input(self, u: Reals) -> Reals:
        """Return an input as the network's real type, if it fits the state."""
        given = np.asarray(u, self.weights.dtype)
        wanted = (*self._state.shape[:-1], self.weights.inputs)
        if given.shape != wanted:
            raise SpecError(
                f"`u` must have shape {wanted}. Got {given.shape}\nhint: reset(batch=n) for n samples at once"
            )
        return given
