"""One pass of a conductor on a device: two calls, with the activation and the state on the host in between."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Doubles, Reals, SpecError
from metalforge.hybrid import DeviceMatrix, HybridEsn, encoding_of
from metalforge.reservoir import EsnWeights
from metalforge.substrates import DevicePrograms, NpuDevice, compile_linear, group_ranges

from .passes import ConductorRun

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
        encoding = encoding_of(READOUT_PRECISION)
        seen = host.ranges_at(encoding.activation_bits)
        groups = [(weights.units, seen.s), (weights.inputs, seen.u)][: 1 + weights.passthrough]
        heads = compile_linear("heads", self._w_out, encoding=encoding, ranges=group_ranges(*groups))
        self._programs = DevicePrograms(device)
        self._readout = DeviceMatrix(heads, self._programs, "conductor")

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

    def _step(self, frame: Reals) -> Reals:
        return self._esn.step(frame)

    def _run(self, frames: Reals) -> Reals:
        return self._esn.run(frames)

    def _values(self, states: Reals, frames: Reals) -> Doubles:
        seen = np.concatenate([states, frames], axis=-1) if self._weights.passthrough else states
        found = self._readout(np.atleast_2d(seen)) + self._bias
        return self._decode.values(np.asarray(found.reshape(*states.shape[:-1], self._weights.outputs)))

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        self._programs.close()
