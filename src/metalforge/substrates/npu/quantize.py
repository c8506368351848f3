"""Real weights to small symmetric integers with a scale, and what that cost.

    w = scale * q + error,    q = rint(w / scale) clipped to the limits of the width

with one scale per output row or one for the whole matrix. Symmetric limits (no -8 at 4 bits) are the chip's
(cnn2snn, Apache-2.0: weights within +-(2^(bits - 1) - 1)).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import BriefRepr, Doubles

from .program import ProgramError

Per: TypeAlias = Literal["row", "tensor"]
"""One scale per output row, or one for all."""
Clip: TypeAlias = Literal["max", "mse"]
"""Where the grid ends: at the largest weight, or where the squared error is least. Rows of int4 integers times a scale
keep these integers with both."""

LIMITS = {1: (0, 1), 2: (-1, 1), 4: (-7, 7), 8: (-127, 127)}
"""Smallest and largest integer by width. One bit is 0 or 1, as on the chip: negative weights become 0."""
SEARCH_ENDS = 1.2 * 0.96 ** np.arange(64)
"""Ends of the grid that the MSE search tries, in units of the largest weight: 1.2 down to 0.09.

Longer than the weights too, since a short row may fit a coarser grid better. At 2 and 4 bits the result is within 1 %
of the exact optimum for rows of 178 normal weights (tested); at 8 bits and more there is little to gain."""

EXACT = 1e-6
"""Distance from an integer multiple, relative to the largest weight, that float32 rounding explains."""
SMALL_INTEGER = 8
"""Largest integer of an int4 grid, whose weights keep their integers."""
GLANCE = 16
"""Weights of a row that are compared first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Quantized(BriefRepr):
    """Weights as integers of shape (outputs, inputs) with one scale per row, or one in all.

    `values` are int8 where the limits fit, else int16; `error` is `weights - dequantize()`.
    """

    values: NDArray[np.int8] | NDArray[np.int16]
    scales: Doubles
    limits: tuple[int, int]
    error: Doubles

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        return self.values.shape

    @property
    def bits(self) -> int:
        """Width of the integers, sign included."""
        low, high = self.limits
        return high.bit_length() + (low < 0)

    def dequantize(self) -> Doubles:
        """Return scale * q, shape (outputs, inputs)."""
        return self.values * self.scales[:, np.newaxis]


def quantize(weights: ArrayLike, bits: int, *, per: Per = "row", clip: Clip = "max") -> Quantized:
    """Return weights (outputs, inputs) as integers of 1 (0 or 1), 2 (-1 .. 1), 4 (-7 .. 7) or 8 (-127 .. 127) bits."""
    if bits not in LIMITS:
        raise ProgramError(f"weights are quantised to 1, 2, 4 or 8 bits. Got {bits}")
    return quantize_to(weights, LIMITS[bits], per=per, clip=clip)


def quantize_to(weights: ArrayLike, limits: tuple[int, int], *, per: Per = "row", clip: Clip = "max") -> Quantized:
    """Return weights (outputs, inputs) as integers within limits (0 or -high, high).

    A row whose largest weight is too small for a normal scale counts as zero and has scale 1.
    """
    if per not in ("row", "tensor") or clip not in ("max", "mse"):
        raise ProgramError(f"`per` must be row or tensor, `clip` max or mse. Got `{per}` and `{clip}`")
    real = _finite_matrix(weights)
    rows = real if per == "row" else real.reshape(1, -1)
    low, high = limits
    if low == 0:
        # Negative weights become 0 on any grid, so only the others set the scale.
        rows = rows.clip(min=0)
    peak = np.abs(rows).max(axis=1)
    live = peak >= high * np.finfo(np.float64).tiny
    peak = np.where(live, peak, 1.0)
    # Rows within -1 .. 1 cannot overflow when they are squared.
    unit = np.where(live[:, np.newaxis], rows / peak[:, np.newaxis], 0.0)
    end = _own_end(unit, high)
    if clip == "mse":
        end = _best_end(unit, end, limits)
    grid = _round(unit, end, limits).reshape(real.shape)
    scales = np.where(live, peak * (end / high), 1.0)
    return Quantized(
        values=grid.astype(np.int8) if high <= np.iinfo(np.int8).max else grid.astype(np.int16),
        scales=scales,
        limits=limits,
        error=real - grid * scales[:, np.newaxis],
    )


def _round(unit: Doubles, end: Doubles, limits: tuple[int, int]) -> Doubles:
    """Return rows on the grid whose largest integer stands for `end`."""
    low, high = limits
    return np.clip(np.rint(unit * (high / end)[:, np.newaxis]), low, high)


def _own_end(unit: Doubles, high: int) -> Doubles:
    """Return where each row's grid ends: at its largest weight, or so that integers which it already holds are kept.

    Weights that were quantised before are k-ths of the row's largest one, for a k of their grid. Only rows that few
    of their weights do not rule out are compared as a whole.
    """
    end, found = np.ones(len(unit)), np.zeros(len(unit), bool)
    for k in (high, *range(1, min(high - 1, SMALL_INTEGER) + 1)):
        rows = np.flatnonzero(~found)
        for columns in (slice(0, GLANCE), slice(None)):
            steps = unit[rows, columns] * k
            rows = rows[np.all(np.abs(steps - np.rint(steps)) <= EXACT * k, axis=1)]
        end[rows], found[rows] = high / k, True
    return end


def _best_end(unit: Doubles, start: Doubles, limits: tuple[int, int]) -> Doubles:
    """Return where each row's grid should end for the least squared error: never worse than `start` or 1.

    A search finds the valley; one least-squares step, scale = <w, q> / <q, q>, then fits the scale to the integers.
    """
    best = _least(unit, [start, *(np.full(len(unit), end) for end in (1.0, *SEARCH_ENDS))], limits)
    q = _round(unit, best, limits)
    norm = np.sum(q * q, axis=1)
    fitted = np.divide(limits[1] * np.sum(unit * q, axis=1), norm, out=best.copy(), where=norm > 0)
    return _least(unit, [best, fitted], limits)


def _least(unit: Doubles, ends: list[Doubles], limits: tuple[int, int]) -> Doubles:
    """Return for each row the end with the least squared error, the first of several."""

    def error(end: Doubles) -> Doubles:
        difference = unit - _round(unit, end, limits) * (end / limits[1])[:, np.newaxis]
        return np.asarray(np.sum(difference * difference, axis=1))

    least = np.argmin([error(end) for end in ends], axis=0)
    return np.asarray(np.array(ends)[least, np.arange(len(unit))])


def _finite_matrix(weights: ArrayLike) -> Doubles:
    """Return weights as float64 of shape (outputs, inputs); raises when they are not a matrix of finite numbers."""
    given = np.asarray(weights)
    if given.dtype.kind not in "iuf" or given.ndim != 2 or given.size == 0:
        raise ProgramError(
            "`weights` must be real numbers of shape (outputs, inputs), not empty. "
            f"Got {given.dtype} of shape {given.shape}"
        )
    real = given.astype(np.float64)
    if not np.all(np.isfinite(real)):
        row, column = np.argwhere(~np.isfinite(real))[0]
        raise ProgramError(
            f"`weights` must hold finite numbers. Got {real[row, column]} at output {row}, input {column}"
        )
    return real


def pack_bits(values: NDArray[np.int8], bits: int) -> NDArray[np.uint8]:
    """Return integers of 1, 2 or 4 bits in two's complement, 8 / bits to a byte with the lowest bits first; C order.

    The last byte is filled with zeros.
    """
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    per_byte = 8 // bits
    packed = np.zeros(-(-flat.size // per_byte), np.uint8)
    for k in range(per_byte):
        lane = flat[k::per_byte]
        packed[: lane.size] |= (lane & ((1 << bits) - 1)) << (bits * k)
    return packed


def unpack_bits(packed: NDArray[np.uint8], bits: int, count: int, where: str) -> NDArray[np.int8]:
    """Return the `count` integers that `pack_bits` packed; raises on another length and on a filling not zero."""
    wanted = -(-max(count, 0) * bits // 8)
    if count < 0 or packed.size != wanted:
        raise ProgramError(f"`{where}` must have {wanted} bytes for {count} weights of {bits} bits. Got {packed.size}")
    lanes = np.empty((packed.size, 8 // bits), np.uint8)
    for k in range(8 // bits):
        lanes[:, k] = (packed >> (bits * k)) & ((1 << bits) - 1)
    flat = lanes.reshape(-1)
    if flat[count:].any():
        raise ProgramError(f"`{where}` must end in zero bits after the last weight")
    flat = flat[:count]
    if bits > 1:  # the sign bit weighs -2^(bits - 1): flip it and subtract it, modulo 256
        sign = np.uint8(1 << (bits - 1))
        flat ^= sign
        flat -= sign
    return flat.view(np.int8)
