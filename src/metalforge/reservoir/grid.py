r"""Random matrices that are integers of four bits times one scale, so that an int4 device holds them without error.

    W = scale * Q,    Q in -7 .. 7

The spectral radius of W is scale times that of Q, so the scale, one host float, makes it exact.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .matrices import Distribution, Kind, nonzero_radius, random_matrix, to_kind
from .sparse import Matrix, to_dense

__all__ = ["LARGEST", "Int4Matrix", "int4_grid"]

LARGEST = 7
"""Largest integer of four bits on a symmetric grid: the chip has no -8."""


@dataclass(frozen=True, slots=True, eq=False)
class Int4Matrix:
    """A matrix scale * integers; `integers` is int8 of shape (rows, columns) within -7 .. 7."""

    integers: NDArray[np.int8]
    scale: float

    def __post_init__(self) -> None:
        q = self.integers
        if not isinstance(q, np.ndarray) or q.dtype != np.int8 or q.ndim != 2 or q.size == 0:
            came = f"{q.dtype} {q.shape}" if isinstance(q, np.ndarray) else type(q).__name__
            raise SpecError(f"`integers` must be int8 of shape (rows, columns), not empty. Got {came}")
        if q.min() < -LARGEST or q.max() > LARGEST:
            raise SpecError(f"`integers` must lie in -7 .. 7. Got {q.min()} .. {q.max()}")
        if not 0 < self.scale < np.inf:
            raise SpecError(f"`scale` must be above 0 and finite. Got {self.scale}")

    def real(self, dtype: Any = np.float64, kind: Kind = "dense") -> Matrix:
        """Return scale * integers, each rounded once to `dtype`."""
        return to_kind((self.scale * self.integers.astype(np.float64)).astype(dtype), kind)


def int4_grid(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    *,
    distribution: Distribution = "normal",
    connectivity: float = 1.0,
    kind: Kind = "dense",
    spectral_radius: float | None = None,
    largest: float = 1.0,
) -> Int4Matrix:
    r"""Return a random matrix on the int4 grid: connections drawn as `random_matrix` does, then rounded row by row.

        q = sign(x) ceil(7 |x| / max |x| of its row)

    Rounding up keeps every connection (|q| >= 1), and every row holds a 7 or -7. So quantisation by the largest weight
    of the tensor, or of each row, finds these integers again and loses nothing. Ternary connections are -7 and 7.
    The scale makes the spectral radius `spectral_radius`, or without one the largest weight `largest`.
    """
    drawn = random_matrix(rng, rows, columns, distribution=distribution, connectivity=connectivity, kind=kind)
    x = to_dense(drawn)
    share = np.abs(x) / np.abs(x).max(axis=1, keepdims=True)
    integers = np.copysign(np.ceil(LARGEST * share), x).astype(np.int8)
    if spectral_radius is None:
        return Int4Matrix(integers, largest / LARGEST)
    if not 0 < spectral_radius < np.inf:
        raise SpecError(f"`spectral_radius` must be above 0 and finite. Got {spectral_radius}")
    return Int4Matrix(integers, spectral_radius / nonzero_radius(to_kind(integers.astype(np.float64), kind)))
