r"""One reservoir, many heads, one pass: a frame goes in, the values of all heads come out, the state moves on.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b)          in software, or with the product on a device
    y  = W_out s' + b_out                                  all heads: one product, native or on the same device
    {head: offset + scale * activation(y[head])}           on the host

The chip refuses several outputs from one layer, so a fan-out of eleven small layers, as the design documents draw it,
does not exist; eleven heads are the rows of one. A pass therefore costs two calls on the device, whatever the number
of heads. The design documents count reservoir and heads as *one* program and one call, of 179 + 12 N NPs for N heads;
the profile `akd1000-claimed` keeps that count.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Closing, Doubles, FeatureSchema, HeadLayout, Reals, SpecError
from metalforge.reservoir import Affine, BaseCurves, EsnNetwork, EsnWeights, HeadValues, decoder_of, make_esn

if TYPE_CHECKING:  # programs that run in software load nothing of a device
    from metalforge.hybrid import HybridEsn
    from metalforge.substrates import DevicePrograms, NpuDevice

READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""
Readout: TypeAlias = Callable[[Reals, Reals], Doubles]
"""Decoded outputs (..., outputs) of states (..., units) and the frames (..., features) that led to them."""


def untrained_network(
    inputs: int, units: int, heads: HeadLayout, *, features: FeatureSchema | None = None, **options: Any
) -> EsnWeights:
    """Return a network whose heads have zeros for a readout; `options` are those of `make_esn`."""
    made = {"seed": 1, "connectivity": 1.0, "leak": 0.3, "input_scaling": 0.3} | options
    weights = make_esn(units, inputs, features=features, **made)
    untaught = tuple(msgspec.structs.replace(head, trained=False) for head in heads.heads)
    layout = msgspec.structs.replace(heads, heads=untaught)
    return weights.with_readout(np.zeros((heads.width, units), weights.dtype), heads=layout)


class ConductorProgram(Closing):
    """A network whose readout is a layout of heads: `run_conductor` takes a frame and gives every head, in one pass.

    The state is carried from frame to frame and may be set; `reset(batch=8)` starts eight chains side by side. With a
    `device` both products are there; their ranges are the weights' own, or those of inputs and states on `calibration`.
    """

    def __init__(
        self,
        weights: EsnWeights,
        device: "NpuDevice | None" = None,
        *,
        precision: str = "W8A8",
        calibration: ArrayLike | None = None,
    ) -> None:
        if weights.w_fb is not None:
            raise SpecError("a conductor's heads are not fed back: give weights without `w_fb`")
        self.weights, self.heads = weights, weights.head_readout()[0]
        self._places, self._base = decoder_of(self.heads).places, BaseCurves(self.heads, weights.features)
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
        frame = np.ascontiguousarray(x, self.weights.dtype)
        return self._read(self._values(self._esn.advance(frame), frame), frame)

    def through(self, frames: ArrayLike) -> HeadValues:
        """Step through frames (steps, features) of one chain; return every head after each, (steps, width) by name.

        The same bits as one after the other.
        """
        given = np.ascontiguousarray(frames, self.weights.dtype)
        if given.ndim != 2 or given.shape[1] != self.weights.inputs or not np.all(np.isfinite(given)):
            raise SpecError(f"frames are finite, of shape (steps, {self.weights.inputs}). Got {given.shape}")
        if not len(given):
            return self._read(np.empty((0, self.weights.outputs)), given)
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

    return EsnNetwork(replace(weights, w_out=None, out_bias=None)), read, None


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
    host = HybridEsn.from_weights(replace(weights, w_out=None, out_bias=None), calibration=data)
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
