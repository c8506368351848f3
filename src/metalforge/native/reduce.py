"""Sums whose bits do not depend on the number of threads or on the build level, and df64 arrays.

df64 is a real as hi + lo, two floats; row 0 of a (2, n) float32 array holds hi, row 1 lo.
"""

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

from ._level import kernels, thread_count

Reals = NDArray[np.float64] | NDArray[np.float32]


def _suffix(x: Reals) -> str:
    # Anything that is not float32 goes to the float64 entry point, which names the argument in its error.
    return "f32" if getattr(x, "dtype", None) == np.float32 else "f64"


def ordered_sum(x: Reals, *, threads: int | None = None) -> float:
    """Return the sum of a one-dimensional array, accumulated in double precision in a fixed order."""
    return float(getattr(kernels(), f"sum_{_suffix(x)}")(x, thread_count(threads)))


def ordered_dot(x: Reals, y: Reals, *, threads: int | None = None) -> float:
    """Return sum_i x_i y_i of two one-dimensional arrays, accumulated in double precision in a fixed order."""
    return float(getattr(kernels(), f"dot_{_suffix(x)}")(x, y, thread_count(threads)))


def to_df64(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return doubles as df64, rounded to 48 bits or better."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 1:
        raise SpecError(f"`x` must be one-dimensional. Got shape {x.shape}")
    limit = float(np.finfo(np.float32).max)
    if not np.all(np.abs(x) <= limit):
        raise SpecError(f"`x` must hold finite numbers up to {limit:.3g}, the range of float32")
    hi = x.astype(np.float32)
    return np.stack([hi, (x - hi).astype(np.float32)])


def from_df64(pair: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return df64 as doubles, exactly."""
    hi, lo = np.asarray(pair, dtype=np.float64)
    total: NDArray[np.float64] = hi + lo
    return total
