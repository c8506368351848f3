"""df64 arrays: a real as hi + lo, two floats; row 0 of a (2, n) float32 array holds hi, row 1 lo."""

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

__all__ = ["from_df64", "to_df64"]


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
