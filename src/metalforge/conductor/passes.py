"""One pass of a conductor on each substrate: a frame goes in, outputs of all heads come out, the state moves on.

In software both products are NumPy's and the kernels' (`Engine`); on a device they are two calls, with the activation
and the state on the host in between.
"""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.reservoir.engine import Engine, init
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import group_ranges
from metalforge.substrates.npu.residency import DevicePrograms

from .scaling import READOUT_PRECISION

__all__ = ["DevicePass", "Pass", "SoftwarePass"]

Reals = NDArray[Any]


class Pass(Protocol):
    """A network with a state."""

    state: Reals

    def reset(self, batch: int | None) -> None:
        """Bring the state to rest, (units,) or (batch, units)."""
        ...

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        ...

    def states(self, frames: Reals) -> Reals:
        """Return the states along frames from rest; the state stays."""
        ...

    def close(self) -> None:
        """Give back what is held."""
        ...


class SoftwarePass:
    """In software: one kernel call for the state, one product for all heads."""

    def __init__(self, weights: EsnWeights) -> None:
        assert weights.w_out is not None
        assert weights.out_bias is not None
        self._weights, self._engine = weights, Engine(weights, threads=1)
        self._w_out, self._bias = np.ascontiguousarray(weights.w_out.T), weights.out_bias
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

    def reset(self, batch: int | None) -> None:
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
        seen = np.concatenate([state, frame], axis=-1) if self._weights.passthrough else state
        return np.asarray(seen @ self._w_out + self._bias)

    def states(self, frames: Reals) -> Reals:
        """Return the states along frames from rest."""
        return self._engine.run(frames)

    def close(self) -> None:
        """Nothing is held."""


class DevicePass:
    """Both products on a device; the readout's ranges are those of inputs and states on `calibration`."""

    def __init__(self, weights: EsnWeights, device: NpuDevice, precision: str, calibration: ArrayLike | None) -> None:
        assert weights.out_bias is not None
        data = None if calibration is None else np.asarray(calibration, weights.dtype)
        # With the heads on the device the host has no readout to compute.
        host = HybridEsn.from_weights(replace(weights, w_out=None, out_bias=None), calibration=data)
        self._weights, self._bias = weights, weights.out_bias
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

    def reset(self, batch: int | None) -> None:
        """Bring the state to rest."""
        self._esn.reset(batch=batch)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        state = self._esn.step(frame)
        seen = np.concatenate([state, frame], axis=-1) if self._weights.passthrough else state
        found = self._readout(np.atleast_2d(seen)) + self._bias
        return np.asarray(found.reshape(*state.shape[:-1], self._weights.outputs))

    def states(self, frames: Reals) -> Reals:
        """Return the states along frames from rest."""
        return self._esn.states(frames)

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        self._programs.close()


def _merged(weights: EsnWeights, u: float, s: float) -> CompiledLinear:
    """Return all heads as one layer."""
    assert weights.w_out is not None
    groups = [(weights.units, s), (weights.inputs, u)][: 1 + weights.passthrough]
    return compile_linear("heads", weights.w_out, encoding=encoding_of(READOUT_PRECISION), ranges=group_ranges(*groups))
