"""What runs over axes: sums and their kin, softmax, normalisations, the place of the largest."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

__all__ = ["TABLE", "softmax"]

Array = NDArray[Any]


def softmax(x: Array, *, axis: int = -1, flatten: int = 0) -> Array:
    """Return e^x / sum e^x over an axis, shifted by the largest so that nothing overflows.

    `flatten` is the form before opset 13: over all axes from `axis` on.
    """
    powers, axes = _shifted(x, axis, flatten)
    e = np.exp(powers)
    return np.asarray(e / e.sum(axis=axes, keepdims=True))


def log_softmax(x: Array, *, axis: int = -1, flatten: int = 0) -> Array:
    """Return x - log sum e^x over an axis; `flatten` as for `softmax`."""
    powers, axes = _shifted(x, axis, flatten)
    return np.asarray(powers - np.log(np.exp(powers).sum(axis=axes, keepdims=True)))


def _shifted(x: Array, axis: int, flatten: int) -> tuple[Array, tuple[int, ...]]:
    first = axis + x.ndim if axis < 0 else axis
    if not 0 <= first < x.ndim:
        raise ValueError(f"axis {axis} of {x.ndim} axes")
    axes = tuple(range(first, x.ndim)) if flatten else (first,)
    return x - x.max(axis=axes, keepdims=True), axes


def _reduction(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return the operator of a function of (x, axis, keepdims): all axes where none are named."""

    def reduction(x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        if axes is None or axes.size == 0:
            if noop_with_empty_axes:
                return x
            over = tuple(range(x.ndim))
        else:
            over = tuple(int(n) for n in axes)
        return np.asarray(function(x, axis=over, keepdims=bool(keepdims))).astype(x.dtype)

    return reduction


def _position(largest: bool) -> Callable[..., Array]:
    def position(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        find = np.argmax if largest else np.argmin
        found = np.asarray(find(np.flip(x, axis) if select_last_index else x, axis=axis, keepdims=bool(keepdims)))
        return (x.shape[axis] - 1 - found if select_last_index else found).astype(np.int64)

    return position


def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon) scale + bias by channel (axis 1), with the stored moments."""
    if training_mode:
        raise ValueError("only inference is supported: `training_mode` must be 0")
    shape = (1, -1, *(1,) * (x.ndim - 2))
    factor = scale / np.sqrt(variance + x.dtype.type(epsilon))
    return np.asarray((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape))


def layer_normalization(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    """Return x with mean 0 and variance 1 over the axes from `axis` on, times scale, plus bias."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    unit = centred / np.sqrt(variance + x.dtype.type(epsilon))
    return np.asarray(unit * scale if bias is None else unit * scale + bias)


TABLE: Mapping[str, Callable[..., Any]] = {
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "ReduceSum": _reduction(np.sum),
    "ReduceMean": _reduction(np.mean),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceProd": _reduction(np.prod),
    "ReduceL1": _reduction(lambda x, **over: np.abs(x).sum(**over)),
    "ReduceL2": _reduction(lambda x, **over: np.sqrt((x * x).sum(**over))),
    "ReduceSumSquare": _reduction(lambda x, **over: (x * x).sum(**over)),
    "ReduceLogSumExp": _reduction(logsumexp),
    "ArgMax": _position(largest=True),
    "ArgMin": _position(largest=False),
    "BatchNormalization": batch_normalization,
    "LayerNormalization": layer_normalization,
}
