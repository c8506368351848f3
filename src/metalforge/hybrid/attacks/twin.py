r"""The float twin of a network on a device, and the slope of a loss in the inputs through it.

The twin has the network's own weights after rounding, states and inputs unrounded.

A slope through the weights before rounding points the wrong way where four bits changed them much; an attack that stops
there would credit rounding with hiding. These weights are what the chip multiplies with, and a network in software with
them tells apart what rounded weights do (they are another network) from what rounded states do.

The slope goes through states that came from anywhere: exact, or a straight-through estimate.
With the recursion of `reservoir.gradient`, of which only the part that ends in the inputs is needed here,

    p_t = W_in u_t + W_res s_{t-1} + b      d_t = a f'(p_t) l_t
    l_{t-1} = (1 - a) l_t + W_res^T d_t     dL/du_t = W_in^T d_t

and s_t given. Where s_t are the network's own states in float this is the exact gradient. Where a device with rounding
made them, the derivative of rounding is zero almost everywhere and tells an attacker nothing; taking it for one, at the
states that the device really had, is the straight-through estimate (Y. Bengio, N. Leonard, A. Courville, "Estimating or
propagating gradients through stochastic neurons", 2013; as an attack, A. Athalye, N. Carlini, D. Wagner, "Obfuscated
gradients give a false sense of security", ICML 2018).
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.native_path import BITS, INPUT_LEVELS
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import LEVELS, MIN_STEP
from metalforge.reservoir.activations import activation
from metalforge.reservoir.sparse import to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.quantize import quantize

__all__ = ["effective_weights", "input_slope"]

Reals = NDArray[np.floating[Any]]


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


def input_slope(weights: EsnWeights, u: Reals, states: Reals, last: Reals) -> Reals:
    """Return dL/du (series, steps, inputs) from dL/ds of the last states (series, units), all series from rest.

    `u` is (series, steps, inputs) and `states` (series, steps, units): those after each step, on whatever substrate.
    """
    if weights.w_fb is not None:
        raise SpecError("slopes in the inputs are for networks without output feedback")
    if states.shape != (*u.shape[:2], weights.units) or last.shape != (len(u), weights.units):
        raise SpecError(
            f"`states` must be {(*u.shape[:2], weights.units)} and `last` {(len(u), weights.units)}. "
            f"Got {states.shape} and {last.shape}"
        )
    w_res = to_dense(weights.w_res)
    keep, leak = weights.dtype.type(1 - weights.leak), weights.dtype.type(weights.leak)
    pre = u @ weights.w_in.T + weights.bias
    pre[:, 1:] += states[:, :-1] @ w_res.T
    damping = leak * activation(weights.activation).derivative(pre)
    carried, delta = last, np.empty_like(damping)
    for t in reversed(range(u.shape[1])):
        delta[:, t] = damping[:, t] * carried
        carried = keep * carried + delta[:, t] @ w_res
    return np.asarray(delta @ weights.w_in)
