"""Sums, products and functions of single entries, with NumPy's broadcasting, which is ONNX's."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from metalforge.reservoir.activations import ACTIVATIONS

from .sizes import sized

__all__ = ["TABLE"]

Array = NDArray[Any]


def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803  # the standard's name
    transB: int = 0,  # noqa: N803
) -> Array:
    """Return alpha A B + beta C, A and B transposed where asked."""
    product = a.dtype.type(alpha) * matmul(a.T if transA else a, b.T if transB else b)
    return np.asarray(product if c is None else product + a.dtype.type(beta) * c)


def matmul(a: Array, b: Array) -> Array:
    """Return A B over the last two axes."""
    sized((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())))
    return np.asarray(a @ b)


def divide(a: Array, b: Array) -> Array:
    """Return a / b; integers are rounded towards zero, as in C."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if np.any(b == 0):
        raise ZeroDivisionError("an integer divided by zero")
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Return x between two scalars, either of which may be absent."""
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def gelu(x: Array, *, approximate: str = "none") -> Array:
    """Return x Phi(x), or its tanh form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    if approximate == "none":
        return ACTIVATIONS["gelu"].value(x)
    if approximate != "tanh":
        raise ValueError(f"`approximate` must be none or tanh. Got {approximate}")
    real = x.dtype.type
    inner = real(np.sqrt(2 / np.pi)) * (x + real(0.044715) * x * x * x)
    return np.asarray(real(0.5) * x * (1 + np.tanh(inner)))


def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """Return x, or alpha (e^x - 1) below zero."""
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)))


def selu(x: Array, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Array:
    """Return gamma elu(x); the defaults are the standard's."""
    return np.asarray(x.dtype.type(gamma) * elu(x, alpha=alpha))


def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """Return x, or alpha x below zero."""
    return np.where(x >= 0, x, x.dtype.type(alpha) * x)


def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """Return alpha x + beta between 0 and 1."""
    return np.asarray(np.clip(x.dtype.type(alpha) * x + x.dtype.type(beta), 0, 1))


def softplus(x: Array) -> Array:
    """Return log(1 + e^x), without overflow."""
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


def scaler(x: Array, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)) -> Array:
    """Return (x - offset) scale by column, as scikit-learn's StandardScaler is written (ai.onnx.ml); always float32."""
    return np.asarray((x.astype(np.float32) - np.array(offset, np.float32)) * np.array(scale, np.float32))


def where(condition: Array, a: Array, b: Array) -> Array:
    """Return a where the condition holds, b elsewhere."""
    sized(np.broadcast_shapes(condition.shape, a.shape, b.shape))
    return np.where(condition, a, b)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def binary(a: Array, b: Array) -> Array:
        sized(np.broadcast_shapes(a.shape, b.shape))
        return function(a, b)

    return binary


def _variadic(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    checked = _binary(function)
    return lambda *inputs: reduce(checked, inputs)


TABLE: Mapping[str, Callable[..., Any]] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": _binary(lambda a, b: a + b),
    "Sub": _binary(lambda a, b: a - b),
    "Mul": _binary(lambda a, b: a * b),
    "Div": _binary(divide),
    "Pow": _binary(lambda a, b: np.power(a, b).astype(a.dtype)),
    "Sum": _variadic(np.add),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Tanh": lambda x: ACTIVATIONS["tanh"].value(x),
    "Sigmoid": lambda x: ACTIVATIONS["sigmoid"].value(x),
    "Relu": lambda x: ACTIVATIONS["relu"].value(x),
    "Gelu": gelu,
    "Clip": clip,
    "Elu": elu,
    "Selu": selu,
    "LeakyRelu": leaky_relu,
    "PRelu": lambda x, slope: np.where(x >= 0, x, slope * x),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda x: x * hard_sigmoid(x, alpha=1 / 6, beta=0.5),
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Mish": lambda x: x * np.tanh(softplus(x)),
    "Identity": lambda x: x,
    "Abs": lambda x: np.abs(x),
    "Neg": lambda x: -x,
    "Exp": lambda x: np.exp(x),
    "Log": lambda x: np.log(x),
    "Sqrt": lambda x: np.sqrt(x),
    "Reciprocal": lambda x: 1 / x,
    "Erf": lambda x: erf(x),
    "Sin": lambda x: np.sin(x),
    "Cos": lambda x: np.cos(x),
    "Floor": lambda x: np.floor(x),
    "Ceil": lambda x: np.ceil(x),
    "Round": lambda x: np.rint(x),
    "Sign": lambda x: np.sign(x),
    "Scaler": scaler,
    "Where": where,
    "Equal": _binary(lambda a, b: a == b),
    "Less": _binary(lambda a, b: a < b),
    "LessOrEqual": _binary(lambda a, b: a <= b),
    "Greater": _binary(lambda a, b: a > b),
    "GreaterOrEqual": _binary(lambda a, b: a >= b),
    "And": _binary(lambda a, b: a & b),
    "Or": _binary(lambda a, b: a | b),
    "Not": lambda a: ~a,
}
