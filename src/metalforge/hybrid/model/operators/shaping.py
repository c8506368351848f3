"""The same numbers in another shape, order or type, and the arithmetic of shapes."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sizes import sized

__all__ = ["TABLE"]

Array = NDArray[Any]


def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """Return x in a new shape: -1 is what is left over, 0 the extent as it was (unless `allowzero`)."""
    wanted = [int(n) for n in shape]
    if not allowzero:
        wanted = [x.shape[axis] if n == 0 else n for axis, n in enumerate(wanted)]
    return x.reshape(wanted)


def flatten(x: Array, *, axis: int = 1) -> Array:
    """Return a matrix: the axes before `axis` in its rows, the others in its columns."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def transpose(x: Array, *, perm: list[int] | None = None) -> Array:
    """Return x with its axes in another order, backwards by default."""
    return x.transpose(perm)


def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Return x without axes of extent 1: the named ones, or all."""
    return np.squeeze(x) if axes is None else np.squeeze(x, axis=tuple(int(n) for n in axes))


def unsqueeze(x: Array, axes: Array) -> Array:
    """Return x with axes of extent 1 put in, at these places of the result."""
    return np.expand_dims(x, tuple(int(n) for n in axes.ravel()))


def slice_(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    """Return x[start:end:step] on some axes; numbers beyond an end mean that end."""
    spans = [slice(None)] * x.ndim
    places = range(len(starts)) if axes is None else [int(axis) for axis in axes]
    strides = np.ones(len(starts), int) if steps is None else steps
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        spans[axis] = slice(int(start), int(end), int(step))
    return x[tuple(spans)]


def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return the entries of an axis that the indices name, in the shape of the indices."""
    sized((*indices.shape, x.size // max(1, x.shape[axis])))
    return np.take(x, indices, axis=axis)


def split(x: Array, sizes: Array | None = None, *, axis: int = 0, num_outputs: int = 1) -> tuple[Array, ...]:
    """Return x in pieces along an axis: of the sizes given, or equal ones with a smaller last."""
    extent = x.shape[axis]
    if sizes is None:
        size = -(-extent // num_outputs)
        sizes = np.full(num_outputs, size)
        sizes[-1] = extent - size * (num_outputs - 1)
    if sizes.sum() != extent or np.any(sizes < 0):
        raise ValueError(f"pieces of {sizes.tolist()} do not make up {extent}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def expand(x: Array, shape: Array) -> Array:
    """Return x broadcast against a shape (either may have the longer extents)."""
    return np.broadcast_to(x, sized(np.broadcast_shapes(x.shape, tuple(int(n) for n in shape))))


def tile(x: Array, repeats: Array) -> Array:
    """Return x repeated along each axis."""
    sized(tuple(int(n) * int(r) for n, r in zip(x.shape, repeats, strict=True)))
    return np.tile(x, [int(r) for r in repeats])


def pad(
    x: Array, pads: Array, value: Array | None = None, axes: Array | None = None, *, mode: str = "constant"
) -> Array:
    """Return x with more at the starts and ends of its axes; negative pads are not supported."""
    places = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
    widths = [(0, 0)] * x.ndim
    half = len(pads) // 2
    for axis, before, after in zip(places, pads[:half], pads[half:], strict=True):
        widths[axis] = (int(before), int(after))
    sized(tuple(n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)))
    if mode == "constant":
        return np.pad(x, widths, constant_values=0 if value is None else value.item())
    return np.pad(x, widths, mode=mode)  # type: ignore[call-overload, no-any-return]  # edge, reflect, wrap: checked there


def shape_(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the extents of x, from `start` to `end`."""
    return np.array(x.shape[start:end], np.int64)


def range_(start: Array, limit: Array, step: Array) -> Array:
    """Return start, start + step, ... before the limit."""
    sized((max(0, int(np.ceil((limit - start) / step))),))
    return np.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)


def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """Return an array full of one number, zero by default."""
    number = np.zeros(1, np.float32) if value is None else value
    return np.full(sized(tuple(int(n) for n in shape)), number.item(), number.dtype)


TABLE: Mapping[str, Callable[..., Any]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Transpose": transpose,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Slice": slice_,
    "Gather": gather,
    "ArrayFeatureExtractor": lambda x, indices: x[..., indices.ravel()].reshape(*(x.shape[:-1] or (1,)), -1),
    "Split": split,
    "Concat": lambda *inputs, axis: np.concatenate(inputs, axis=axis),
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "Cast": lambda x, *, to: x.astype(to),
    "Shape": shape_,
    "Size": lambda x: np.array(x.size, np.int64),
    "Range": range_,
    "ConstantOfShape": constant_of_shape,
}
