"""The state update of an echo state network, slowly: in doubles to compare with, and in the kernels' own order of sums.

Nothing here is imported from the package.
"""

import math
from fractions import Fraction

import numpy as np

_PIECES = ((0.0, 0.92424), (0.5, 0.59894), (1.0, 0.28712), (1.5, 0.11776), (2.0, 0.03102), (3.0, 0.0))


def _piecewise(x):
    value, size = 0.0, abs(x)
    for k, (knot, slope) in enumerate(_PIECES):
        end = _PIECES[k + 1][0] if k + 1 < len(_PIECES) else math.inf
        value += slope * max(0.0, min(size, end) - knot) if slope else 0.0
    return math.copysign(value, x)


def _sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


_SCALAR = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "bounded_relu": lambda x: min(max(x, 0.0), 1.0),
    "identity": lambda x: x,
    "sigmoid": _sigmoid,
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "piecewise_tanh": _piecewise,
}

FUNCTIONS = {name: np.vectorize(f, otypes=[np.float64]) for name, f in _SCALAR.items()}


def states(w_in, w_res, bias, leak, activation, u, state):
    """States (..., steps, units) in doubles for inputs (..., steps, inputs) from (..., units); w_res in full."""
    w_in, w_res, bias, u, state = (np.asarray(x, np.float64) for x in (w_in, w_res, bias, u, state))
    found = []
    for t in range(u.shape[-2]):
        sums = u[..., t, :] @ w_in.T + state @ w_res.T + bias
        state = (1 - leak) * state + leak * FUNCTIONS[activation](sums)
        found.append(state)
    return np.stack(found, axis=-2)


def trajectory(w, u):
    """States and outputs (..., steps, n) of weights with a full w_res, in doubles from rest; feedback hears outputs."""
    leak, u = float(w.w_in.dtype.type(w.leak)), np.asarray(u, np.float64)
    state, said = np.zeros((*u.shape[:-2], w.units)), np.zeros((*u.shape[:-2], w.feedback))
    found, outputs = [], []
    for now in np.moveaxis(u, -2, 0):
        sums = now @ w.w_in.T + state @ w.w_res.T + w.bias
        if w.w_fb is not None:
            sums = sums + said @ w.w_fb.T
        state = (1 - leak) * state + leak * FUNCTIONS[w.activation](sums)
        found.append(state)
        if w.w_out is not None:
            said = (np.concatenate([state, now], axis=-1) if w.passthrough else state) @ w.w_out.T + w.out_bias
            outputs.append(said)
    return np.stack(found, axis=-2), np.stack(outputs, axis=-2) if outputs else np.array([])


def ordered_sums(w_in, w_res, bias, u, state, *, fused):
    """b + W_in u + W_res s of one sample, a term after the other: each product rounded, or (fused) each sum only."""
    real = w_in.dtype.type
    sums = []
    for weights, start in zip(np.concatenate([w_in, w_res], axis=1), bias, strict=True):
        total = start
        for w, x in zip(weights, np.concatenate([u, state]), strict=True):
            if fused:  # float() rounds correctly; for float32 it rounds twice, which shows once in 2^29 sums
                total = real(float(Fraction(float(w)) * Fraction(float(x)) + Fraction(float(total))))
            else:
                total = w * x + total
        sums.append(total)
    return np.array(sums, real)
