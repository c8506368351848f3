"""Activations by name: f(x), and f'(x) for gradients, in the dtype of x.

The native kernels compute the same functions; these are their definition. `leaky_step` is the kernels' own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

from metalforge.core import Reals, find
from metalforge.native import kernels

ActivationName: TypeAlias = Literal["tanh", "relu", "bounded_relu", "identity", "sigmoid", "gelu", "piecewise_tanh"]

KNOTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
SLOPES = (0.92424, 0.59894, 0.28712, 0.11776, 0.03102, 0.0)
"""The published odd piecewise line for tanh: SLOPES[k] holds from KNOTS[k] to the next knot; from 3 on it is flat at
0.99505. Its authors give an error below 0.5 %; it is up to 0.023, at x = 0.75, and 7.6 % of tanh x as x goes to 0."""


@dataclass(frozen=True, slots=True)
class ActivationFunction:
    """A function and its derivative, both of the pre-activation, elementwise.

    `bound` is the largest |f| and so the range of a state that starts within it; None where there is none.
    """

    name: ActivationName
    value: Callable[[Reals], Reals]
    derivative: Callable[[Reals], Reals]
    bound: float | None


def _piece(x: Reals) -> NDArray[np.intp]:
    return np.asarray(np.searchsorted(np.asarray(KNOTS, x.dtype), np.abs(x), side="right") - 1)


def _piecewise(x: Reals) -> Reals:
    knots, slopes = np.asarray(KNOTS, x.dtype), np.asarray(SLOPES, x.dtype)
    starts = np.concatenate([[0], np.cumsum(np.diff(KNOTS) * SLOPES[:-1])]).astype(x.dtype)
    k = _piece(x)
    return np.asarray(np.copysign(starts[k] + slopes[k] * (np.abs(x) - knots[k]), x))


def _gelu(x: Reals) -> Reals:
    half = x.dtype.type(0.5)
    return np.asarray(half * x * (1 + erf(x * x.dtype.type(np.sqrt(0.5)))))


def _gelu_slope(x: Reals) -> Reals:
    real = x.dtype.type
    density = np.exp(real(-0.5) * x * x) * real(1 / np.sqrt(2 * np.pi))
    return np.asarray(real(0.5) * (1 + erf(x * real(np.sqrt(0.5)))) + x * density)


ACTIVATIONS: dict[str, ActivationFunction] = {
    row.name: row
    for row in (
        ActivationFunction("tanh", np.tanh, lambda x: 1 - np.tanh(x) ** 2, 1.0),
        ActivationFunction("relu", lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype), None),
        ActivationFunction(
            "bounded_relu", lambda x: np.clip(x, 0, 1), lambda x: ((x > 0) & (x < 1)).astype(x.dtype), 1.0
        ),
        ActivationFunction("identity", lambda x: x, np.ones_like, None),
        ActivationFunction("sigmoid", lambda x: np.asarray(expit(x)), lambda x: np.asarray(expit(x) * expit(-x)), 1.0),
        ActivationFunction("gelu", _gelu, _gelu_slope, None),
        ActivationFunction("piecewise_tanh", _piecewise, lambda x: np.asarray(SLOPES, x.dtype)[_piece(x)], 0.99505),
    )
}


def activation(name: str) -> ActivationFunction:
    """Return an activation by name."""
    return find("activation", name, ACTIVATIONS)


def leaky_step(state: Reals, pre: Reals, function: str, leak: Any) -> Reals:
    """Return (1 - leak) s + leak f(pre) in the type of the state: a step whose product was computed elsewhere.

    `pre` may be finer than the state, which is then rounded once, at the end. The leak is taken in the type it has. A
    unit's bits do not depend on the others: alone, in a batch, in a chunk and in a native loop they are the same.
    """
    kind = "f64" if state.dtype == np.float64 else "f32" if pre.dtype == np.float32 else "mixed"
    fine = np.ascontiguousarray(pre, np.float32 if kind == "f32" else np.float64)
    new = np.empty(state.shape, state.dtype)
    step = getattr(kernels(), f"leaky_step_{kind}")
    step(np.ascontiguousarray(state).ravel(), fine.ravel(), new.ravel(), float(1 - leak), float(leak), function)
    return new
