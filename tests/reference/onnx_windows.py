"""Convolution and pooling in NumPy, the oracle where `onnx.reference` errs (auto_pad, ceil_mode).

Windows slide over the last axes of (batch, channels, ...).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]
Pads = list[tuple[int, int]]


def _pads(
    extents: Sequence[int], kernel: Sequence[int], strides: Sequence[int], auto_pad: str, pads: Sequence[int]
) -> Pads:
    """Return (before, after) of each axis; `kernel` counts the gaps of a dilation.

    SAME: as many windows as ceil(extent / stride), the odd cell at the end (UPPER) or at the start (LOWER).
    """
    n = len(extents)
    if auto_pad == "VALID":
        return [(0, 0)] * n
    if auto_pad == "NOTSET":
        return [(int(pads[i]), int(pads[i + n])) for i in range(n)] if pads else [(0, 0)] * n
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"unknown auto_pad {auto_pad}")
    found: Pads = []
    for extent, k, stride in zip(extents, kernel, strides, strict=True):
        total = max(0, (-(-extent // stride) - 1) * stride + k - extent)
        less = total // 2
        found.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
    return found


def _padded(x: Array, widths: Pads, fill: float = 0) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *widths], constant_values=fill)


def _windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Return a view (batch, channels, *places, *kernel) of an array that is padded already."""
    n = len(kernel)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = sliding_window_view(x, spans, axis=tuple(range(2, 2 + n)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *steps)]


def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Array:
    """Return y[b, o, p] = sum over c, k of w[o, c, k] x[b, c, stride p + dilation k], in groups of channels."""
    kernel = w.shape[2:]
    if kernel_shape and tuple(kernel_shape) != kernel:
        raise ValueError(f"`kernel_shape` {tuple(kernel_shape)} is not that of the weights, {kernel}")
    if x.shape[1] != group * w.shape[1] or w.shape[0] % group:
        raise ValueError(f"{x.shape[1]} channels and weights of {w.shape} do not fit {group} groups")
    strides, dilations = strides or (1,) * len(kernel), dilations or (1,) * len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    widths = _pads(x.shape[2:], spans, strides, auto_pad, pads)
    view = _windows(_padded(x, widths), kernel, strides, dilations)
    # (batch, *places, channels, *kernel): one row a window, so that a group is a single product of matrices.
    rows = np.moveaxis(view, 1, 1 + len(kernel))
    places, outputs = rows.shape[: 1 + len(kernel)], w.shape[0] // group
    found = [
        part.reshape(*places, -1) @ weights.reshape(outputs, -1).T
        for part, weights in zip(np.split(rows, group, axis=1 + len(kernel)), np.split(w, group), strict=True)
    ]
    y = np.moveaxis(np.concatenate(found, axis=-1), -1, 1)
    return np.asarray(y if bias is None else y + bias.reshape(1, -1, *(1,) * len(kernel)))


def _pooled(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], widths: Pads, ceil_mode: int
) -> tuple[list[int], Pads]:
    """Return the windows an axis, and the cells that `ceil_mode` adds after the padding for a last, partial one.

    A window must start within the input or the padding before it.
    """
    counts, extra = [], []
    for extent, k, stride, d, (before, after) in zip(x.shape[2:], kernel, strides, dilations, widths, strict=True):
        span = (k - 1) * d + 1
        free = extent + before + after - span
        if free < 0:
            raise ValueError(f"a window of {span} is larger than {extent + before + after} cells")
        count = free // stride + 1
        if ceil_mode and free % stride and count * stride < extent + before:
            count += 1
        counts.append(count)
        extra.append((0, max(0, (count - 1) * stride - free)))
    return counts, extra


def _pool(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
    ceil_mode: int,
) -> tuple[Callable[[Array, float], Array], Callable[[Array], Array]]:
    """Return `padded(x, fill)`, which adds the padding, and `cut(padded)`, which gives the windows of it."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    widths = _pads(x.shape[2:], spans, strides, auto_pad, pads)
    counts, extra = _pooled(x, kernel, strides, dilations, widths, ceil_mode)

    def padded(values: Array, fill: float) -> Array:
        return _padded(values, widths, fill)

    def cut(values: Array) -> Array:
        whole = _padded(values, extra, _NOTHING[values.dtype.kind])
        view = _windows(whole, kernel, strides, dilations)
        return view[(slice(None), slice(None), *(slice(count) for count in counts))]

    return padded, cut


_NOTHING = {"f": -np.inf, "b": False}
"""What lies beyond all padding: never the largest, never counted."""


def max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
) -> Array:
    """Return the largest entry of each window; padding is never it."""
    n = len(kernel_shape)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padded, cut = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return np.asarray(cut(padded(x, -np.inf)).max(axis=tuple(range(-n, 0))))


def average_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> Array:
    """Return the mean of each window, over its entries within the input (and the padding, if counted)."""
    n = len(kernel_shape)
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    padded, cut = _pool(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    counted = cut(padded(np.ones((1, 1, *x.shape[2:]), bool), bool(count_include_pad)))
    over = tuple(range(-n, 0))
    total = np.where(counted, cut(padded(x, 0.0)), x.dtype.type(0)).sum(axis=over)
    return np.asarray(total / counted.sum(axis=over).astype(x.dtype))


WINDOWS: Mapping[str, Callable[..., Any]] = {
    "Conv": conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "GlobalMaxPool": lambda x: x.max(axis=tuple(range(2, x.ndim)), keepdims=True),
}
