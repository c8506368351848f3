"""Real weights to small symmetric integers with a scale, and what that lost.

    w = scale * q + error,    q = rint(w / scale) clipped to the limits of the width

with one scale an output row or one for the whole matrix. Symmetric limits (no -8 at 4 bits) are the chip's
(cnn2snn, Apache-2.0: weights within +-(2^(bits - 1) - 1)).
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .program import ProgramError

__all__ = ["Per", "Quantized", "quantize", "quantize_to"]

Per: TypeAlias = Literal["row", "tensor"]
"""One scale an output row, or one for all."""

LIMITS = {1: (0, 1), 2: (-1, 1), 4: (-7, 7), 8: (-127, 127)}
"""Smallest and largest integer by width. One bit is 0 or 1, as on the chip: negative weights become 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantized:
    """Weights as integers of shape (outputs, inputs) with one scale a row, or one in all.

    `values` are int8 where the limits fit, else int16; `error` is `weights - dequantize()`.
    """

    values: NDArray[np.int8] | NDArray[np.int16]
    scales: NDArray[np.float64]
    limits: tuple[int, int]
    error: NDArray[np.float64]

    @property
    def bits(self) -> int:
        """Width of the integers, sign included."""
        low, high = self.limits
        return high.bit_length() + (low < 0)

    def dequantize(self) -> NDArray[np.float64]:
        """Return scale * q, shape (outputs, inputs)."""
        return self.values * self.scales[:, np.newaxis]


def quantize(weights: ArrayLike, bits: int, *, per: Per = "row") -> Quantized:
    """Return weights (outputs, inputs) as integers of 1 (0 or 1), 2 (-1 .. 1), 4 (-7 .. 7) or 8 (-127 .. 127) bits."""
    if bits not in LIMITS:
        raise ProgramError(f"weights are quantised to 1, 2, 4 or 8 bits. Got {bits}")
    return quantize_to(weights, LIMITS[bits], per=per)


def quantize_to(weights: ArrayLike, limits: tuple[int, int], *, per: Per = "row") -> Quantized:
    """Return weights (outputs, inputs) as integers within limits (0 or -high, high).

    A row whose largest weight is too small for a normal scale counts as zero and has scale 1.
    """
    if per not in ("row", "tensor"):
        raise ProgramError(f"`per` must be row or tensor. Got `{per}`")
    real = _finite_matrix(weights)
    rows = real if per == "row" else real.reshape(1, -1)
    low, high = limits
    if low == 0:
        # Negative weights become 0 on any grid, so only the others set the scale.
        rows = rows.clip(min=0)
    peak = np.abs(rows).max(axis=1)
    live = peak >= high * np.finfo(np.float64).tiny
    peak = np.where(live, peak, 1.0)
    unit = np.where(live[:, np.newaxis], rows / peak[:, np.newaxis], 0.0)
    grid = np.clip(np.rint(unit * high), low, high).reshape(real.shape)
    scales = np.where(live, peak * (1 / high), 1.0)
    return Quantized(
        values=grid.astype(np.int8) if high <= np.iinfo(np.int8).max else grid.astype(np.int16),
        scales=scales,
        limits=limits,
        error=real - grid * scales[:, np.newaxis],
    )


def _finite_matrix(weights: ArrayLike) -> NDArray[np.float64]:
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
