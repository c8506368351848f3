r"""Integers with scales: x ~ scale (q - zero_point), and products of such integers.

4-bit integers are held in int8 or uint8 arrays, which NumPy has.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INTEGERS", "TABLE"]

Array = NDArray[Any]

INTEGERS: Mapping[str, tuple[type[np.integer[Any]], int, int]] = {
    "int4": (np.int8, -8, 7),
    "uint4": (np.uint8, 0, 15),
    "int8": (np.int8, -128, 127),
    "uint8": (np.uint8, 0, 255),
    "int16": (np.int16, -32768, 32767),
    "uint16": (np.uint16, 0, 65535),
}
"""What QuantizeLinear can give: how NumPy holds it, and its ends."""


def _aligned(values: Array, x: Array, axis: int, block_size: int) -> Array:
    """Return scales or zero points that broadcast against x: one, one a place of `axis`, or one a block of it."""
    if block_size:
        return np.repeat(values, block_size, axis=axis)[tuple(slice(n) for n in x.shape)]
    if values.size == 1:
        return values.reshape(())
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape)


def quantize_linear(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1, block_size: int = 0, to: str = "uint8"
) -> Array:
    """Return rint(x / scale) + zero_point within the ends of a type; halves are rounded to even."""
    kind, low, high = INTEGERS[to]
    steps = np.rint(x / _aligned(scale, x, axis, block_size)).astype(np.float64)
    if zero_point is not None:
        steps = steps + _aligned(zero_point.astype(np.float64), x, axis, block_size)
    return np.clip(steps, low, high).astype(kind)


def dequantize_linear(
    x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1, block_size: int = 0
) -> Array:
    """Return scale (x - zero_point), in the type of the scale."""
    steps = x.astype(np.int64)
    if zero_point is not None:
        steps = steps - _aligned(zero_point.astype(np.int64), x, axis, block_size)
    return np.asarray(steps.astype(scale.dtype) * _aligned(scale, x, axis, block_size))


def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """Return x as uint8, its scale and its zero point; the range is that of x and holds zero."""
    low, high = min(x.min(), x.dtype.type(0)), max(x.max(), x.dtype.type(0))
    scale = np.asarray((high - low) / x.dtype.type(255))
    if scale == 0:  # all zeros: any scale will do
        scale = np.ones((), x.dtype)
    zero = np.clip(np.rint(-low / scale), 0, 255).astype(np.uint8)
    return quantize_linear(x, scale, zero), scale, zero


def _by_row(values: Array) -> Array:
    """Return numbers of the left matrix's rows as a column; a single number as it is."""
    return values[:, np.newaxis] if values.ndim == 1 and values.size > 1 else values


def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """Return (A - a0)(B - b0) as int32; a0 is one number or one a row, b0 one or one a column."""
    left, right = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        left = left - _by_row(a_zero.astype(np.int32))
    if b_zero is not None:
        right = right - b_zero.astype(np.int32)
    return left @ right


def qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    """Return the product of two quantised matrices, quantised; scales as the zero points of `matmul_integer`."""
    factor = _by_row(a_scale) * b_scale / y_scale
    steps = np.rint(matmul_integer(a, b, a_zero, b_zero).astype(factor.dtype) * factor)
    ends = np.iinfo(y_zero.dtype)
    return np.asarray(np.clip(steps + y_zero, ends.min, ends.max).astype(y_zero.dtype))


TABLE: Mapping[str, Callable[..., Any]] = {
    "QuantizeLinear": quantize_linear,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
}
