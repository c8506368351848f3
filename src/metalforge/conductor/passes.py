"""One pass of a conductor: a frame goes in, outputs of all heads come out, the state moves on.

The reservoir is an `EsnNetwork` in software, or a `HybridEsn` with its product on a device. The heads are one more
product, by the kernels (`Affine`) or on the same device (`DeviceMatrix`): a pass is then two calls, with the activation
and the state on the host in between. Outputs become heads by offset + scale * activation(output), all in one operation;
names are made when they are asked for.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Closing, Doubles, Reals, SpecError
from metalforge.reservoir import Affine, BaseCurves, EsnNetwork, EsnWeights, HeadValues, decoder_of

if TYPE_CHECKING:  # programs that run in software load nothing of a device
    from metalforge.hybrid import HybridEsn
    from metalforge.substrates import DevicePrograms, NpuDevice

READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""
Readout: TypeAlias = Callable[[Reals, Reals], Doubles]
"""Decoded outputs (..., outputs) of states (..., units) and the frames (..., features) that led to them."""


class ConductorRun(Closing):
    """A program with a state: `run_conductor` takes a frame and gives every head, in one pass.

    The state is carried from frame to frame and may be set; `reset(batch=8)` starts eight chains side by side. On a
    device the ranges of both products are the weights' own, or those of inputs and states on `calibration`.
    """

    def __init__(
        self,
        weights: EsnWeights,
        device: "NpuDevice | None" = None,
        precision: str = "W8A8",
        calibration: ArrayLike | None = None,
    ) -> None:
        heads, _, _ = weights.head_readout()
        self._weights, self._places = weights, decoder_of(heads).places
        self._base = BaseCurves(heads, weights.features)
        parts: tuple[EsnNetwork, Readout, DevicePrograms | None] = (
            _in_software(weights) if device is None else _on_device(weights, device, precision, calibration)
        )
        self._esn, self._values, self._programs = parts

    @property
    def state(self) -> Reals:
        """A copy of the state; may be set."""
        return self._esn.state

    @state.setter
    def state(self, value: Reals) -> None:
        self._esn.state = value

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, (units,) or (batch, units)."""
        self._esn.reset(batch=batch)

    def run_conductor(self, x: ArrayLike) -> HeadValues:
        """Step on a frame (features,) or a batch (batch, features); return every head's value by name."""
        frame = np.ascontiguousarray(x, self._weights.dtype)
        return self._read(self._values(self._esn.step(frame), frame), frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each, (steps, width) by name.

        The same bits as one after the other.
        """
        given = np.ascontiguousarray(frames, self._weights.dtype)
        if given.ndim != 2 or given.shape[1] != self._weights.inputs or not np.all(np.isfinite(given)):
            raise SpecError(f"frames are finite, of shape (steps, {self._weights.inputs}). Got {given.shape}")
        if not len(given):
            return self._read(np.empty((0, self._weights.outputs)), given)
        return self._read(self._values(self._esn.run(given), given), given)

    def _read(self, values: Doubles, frames: Reals) -> HeadValues:
        """Return decoded outputs, counted from their bases, by name."""
        self._base.add(values, frames)
        return HeadValues(values, self._places)

    def close(self) -> None:
        """Take the programs off the device."""
        self._esn.close()
        if self._programs is not None:
            self._programs.close()


def _in_software(weights: EsnWeights) -> "tuple[EsnNetwork, Readout, None]":
    """Return the reservoir, and the heads as one native call."""
    heads, w_out, out_bias = weights.head_readout()
    native, decoder = Affine(w_out, out_bias, first=weights.units).native, decoder_of(heads).native

    def read(states: Reals, frames: Reals) -> Doubles:
        values = np.empty((*states.shape[:-1], weights.outputs))
        native.values(states, frames, decoder, values)
        return values

    return EsnNetwork(_bare(weights)), read, None


def _on_device(
    weights: EsnWeights, device: "NpuDevice", precision: str, calibration: ArrayLike | None
) -> "tuple[HybridEsn, Readout, DevicePrograms]":
    """Return the reservoir on a device, the heads as a product there, and their programs."""
    from metalforge.hybrid import DeviceMatrix, HybridEsn, encoding_of
    from metalforge.substrates import DevicePrograms, compile_linear, group_ranges

    if calibration is None and weights.ranges is None:
        raise SpecError(
            "these weights do not say how large their inputs get: on a device these would be clamped, and heads "
            "would read wrong\nhint: give `calibration`, inputs as the network sees them"
        )
    data = None if calibration is None else np.asarray(calibration, weights.dtype)
    host = HybridEsn.from_weights(_bare(weights), calibration=data)
    reservoir = host.with_hardware_linear(device, precision=precision)
    layout, w_out, out_bias = weights.head_readout()
    encoding = encoding_of(READOUT_PRECISION)
    seen = host.ranges_at(encoding.activation_bits)
    groups = [(weights.units, seen.s), (weights.inputs, seen.u)][: 1 + weights.passthrough]
    heads = compile_linear("heads", w_out, encoding=encoding, ranges=group_ranges(*groups))
    programs = DevicePrograms(device)
    product, decoder = DeviceMatrix(heads, programs, "conductor"), decoder_of(layout)

    def read(states: Reals, frames: Reals) -> Doubles:
        lines = np.concatenate([states, frames], axis=-1) if weights.passthrough else states
        found = product(np.atleast_2d(lines)) + out_bias
        return decoder.values(np.asarray(found.reshape(*states.shape[:-1], weights.outputs)))

    return reservoir, read, programs


def _bare(weights: EsnWeights) -> EsnWeights:
    """Return the network without its readout: its steps give states, of which the heads are read."""
    return replace(weights, w_out=None, out_bias=None)
