"""Sums whose bits do not depend on the number of threads or on the build level."""

import numpy as np
from numpy.typing import NDArray

from ._level import kernels
from ._threads import thread_count

__all__ = ["ordered_dot", "ordered_sum"]

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
