"""One pass of a conductor on a device: two calls, with the activation and the state on the host in between."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.reservoir.heads import HeadValues
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.ladder import group_ranges
from metalforge.substrates.npu.residency import DevicePrograms

from .passes import ConductorRun, checked_frames

READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""


class DevicePass(ConductorRun):
    """Both products on a device; their ranges are the weights' own, or those of inputs and states on `calibration`."""

    def __init__(self, weights: EsnWeights, device: NpuDevice, precision: str, calibration: ArrayLike | None) -> None:
        super().__init__(weights)
        if calibration is None and weights.ranges is None:
            raise SpecError(
                "these weights do not say how large their inputs get: on a device these would be clamped, and heads "
                "would read wrong\nhint: give `calibration`, inputs as the network sees them"
            )
        data = None if calibration is None else np.asarray(calibration, weights.dtype)
        # With the heads on the device the host has no readout to compute.
        host = HybridEsn.from_weights(replace(weights, w_out=None, out_bias=None), calibration=data)
        self._esn = host.with_hardware_linear(device, precision=precision)
        self._programs = DevicePrograms(device)
        ranges = host.ranges_at(encoding_of(READOUT_PRECISION).activation_bits)
        self._ranges = ranges.u, ranges.s
        self._readout = self._on_device(weights)

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
        return self._read(self._decode.values(self.step(frame)), frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each.

        States follow each other; all of them are read in one call.
        """
        given = checked_frames(frames, self._weights)
        if not len(given):
            return self._read(np.empty((0, self._width)), given)
        states = self._esn.run(given)
        return self._read(self._decode.values(self._outputs(states, given)), given)

    def step(self, frame: Reals) -> Reals:
        """Move the state by a frame; return the outputs of all heads."""
        return self._outputs(self._esn.step(frame), frame)

    def _outputs(self, states: Reals, frames: Reals) -> Reals:
        """Return the outputs of all heads for states (..., units) and the frames that led to them."""
        seen = np.concatenate([states, frames], axis=-1) if self._weights.passthrough else states
        found = self._readout(np.atleast_2d(seen)) + self._bias
        return np.asarray(found.reshape(*states.shape[:-1], self._width))

    def _on_device(self, weights: EsnWeights) -> DeviceMatrix:
        return DeviceMatrix(_merged(weights, *self._ranges), self._programs, "conductor")

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        self._programs.close()


def _merged(weights: EsnWeights, u: float, s: float) -> CompiledLinear:
    """Return all heads as one layer."""
    assert weights.w_out is not None
    groups = [(weights.units, s), (weights.inputs, u)][: 1 + weights.passthrough]
    return compile_linear("heads", weights.w_out, encoding=encoding_of(READOUT_PRECISION), ranges=group_ranges(*groups))
