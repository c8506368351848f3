r"""The float network that a quantised one rounds: its own weights after rounding, states and inputs unrounded.

A slope through the weights before rounding points the wrong way where four bits changed them much; an attack that stops
there would credit rounding with hiding. These weights are what the chip multiplies with, and a network in software with
them tells apart what rounded weights do (they are another network) from what rounded states do.
"""

from dataclasses import replace

import numpy as np

from metalforge.hybrid.esn.native_path import BITS, INPUT_LEVELS
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import LEVELS, MIN_STEP
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.quantize import quantize

__all__ = ["effective_weights"]


def effective_weights(esn: HybridEsn) -> EsnWeights:
    """Return the float network of a substrate: in software its own, on a device with the device's weights.

    In native mode its activation is the bounded ReLU, and a unit's weights and bias are larger by what the chip lost
    when it cut the unit's step to sixteenths.
    """
    if esn.mode == "software":
        return esn.weights
    return _native(esn) if esn.mode == "hardware-native" else _linear(esn)


def _linear(esn: HybridEsn) -> EsnWeights:
    """Ask the path: a line at the end of its range is on the grid of any encoding, so the answers are its weights."""
    weights, ranges = esn.weights, esn.ranges
    assert esn.path is not None  # a network on a device has one
    inputs, units, dtype = weights.inputs, weights.units, weights.dtype
    w_in = esn.path(ranges.u * np.eye(inputs), np.zeros((inputs, units))).T / ranges.u
    w_res = esn.path(np.zeros((units, inputs)), ranges.s * np.eye(units)).T / ranges.s
    return replace(weights, w_in=w_in.astype(dtype), w_res=w_res.astype(dtype))


def _native(esn: HybridEsn) -> EsnWeights:
    weights, inputs, dtype = esn.weights, esn.weights.inputs, esn.weights.dtype
    units_of_lines = np.concatenate([np.full(inputs, esn.ranges.u / INPUT_LEVELS), np.full(weights.units, 1 / LEVELS)])
    q = quantize(np.hstack([weights.w_in, to_dense(weights.w_res)]) * units_of_lines, BITS)
    step = np.maximum(np.floor(16 / (LEVELS * q.scales)) / 16, MIN_STEP)
    gain = 1 / (LEVELS * q.scales * step)
    lines = gain[:, np.newaxis] * q.dequantize() / units_of_lines
    return replace(
        weights,
        activation="bounded_relu",
        w_in=lines[:, :inputs].astype(dtype),
        w_res=lines[:, inputs:].astype(dtype),
        bias=(gain * weights.bias).astype(dtype),
    )
