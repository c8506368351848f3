"""Values met while a model is lowered: constants, and what depends on the inputs, tried out on two batches of zeros.

The two trials say what no declaration does: which extents grow with the batch, and what shape arithmetic comes to.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.model.operators.sizes import sized
from metalforge.hybrid.model.ops import Precision, Shape
from metalforge.substrates.npu.quantize import Quantized

__all__ = ["BATCHES", "Integers", "Known", "Open", "Value", "quantized", "zeros"]

Array = NDArray[Any]

BATCHES = (2, 3)
"""Sizes of the trial batches. Not 1, which broadcasts and squeezes like no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Where dequantised constants come from: scale times integers, with one scale or one a place of `axis`."""

    values: NDArray[np.int64]
    scales: NDArray[np.floating[Any]]
    axis: int | None

    def transposed(self) -> "Integers":
        """Return those of the transposed matrix."""
        return Integers(values=self.values.T, scales=self.scales, axis=None if self.axis is None else 1 - self.axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A constant, with its type in the file."""

    array: Array
    kind: str
    integers: Integers | None = None

    @property
    def trials(self) -> tuple[Array, Array]:
        """The same on both batches."""
        return self.array, self.array


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A value of the graph by its name there, and what came out on the trial batches.

    `batch_only`: it depends on the size of the batch and on no number in it, so that its trials are what it really is.
    """

    name: str
    trials: tuple[Array, Array]
    batch_only: bool = False

    @property
    def shape(self) -> Shape:
        """Extents, None where they grow with the batch."""
        first, second = (trial.shape for trial in self.trials)
        return tuple(n if n == m else None for n, m in zip(first, second, strict=True))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers."""
        return self.trials[0].dtype

    @property
    def numbers(self) -> int:
        """How many there are for one sample."""
        first, second = (trial.size for trial in self.trials)
        return second - first or first


Value: TypeAlias = Known | Open


def zeros(name: str, shape: Shape, dtype: str) -> Open:
    """Return an input of the graph."""
    sized(tuple(max(BATCHES) if n is None else n for n in shape))
    first, second = (np.zeros([batch if n is None else n for n in shape], dtype) for batch in BATCHES)
    return Open(name=name, trials=(first, second))


def quantized(integers: Integers | None, *, transposed: bool, factor: float) -> tuple[Quantized, Precision] | None:
    """Return a weight matrix (outputs, inputs) as integers and what the NPU makes of them; None when it cannot be.

    It can when there is one scale, or one an output. Those of magnitude 7 and less are the chip's own int4; -8 is not.
    """
    if integers is None:
        return None
    found = integers.transposed() if transposed else integers
    low, high = int(found.values.min()), int(found.values.max())
    top = max(-low, high)
    if found.axis == 1 or top > np.iinfo(np.int16).max:
        return None
    grid = np.ascontiguousarray(found.values)
    values: NDArray[np.int8] | NDArray[np.int16] = grid.astype(np.int16)
    limits, precision = (-top, top), Precision.ANY
    if low >= -128 and high <= 127:
        values = grid.astype(np.int8)
        limits, precision = (min(low, -127), 127), Precision.INT8
    if top <= 7:
        limits, precision = (-7, 7), Precision.INT4
    scales = np.atleast_1d(found.scales.astype(np.float64) * factor)
    return Quantized(values=values, scales=scales, limits=limits, error=np.zeros(values.shape)), precision
