"""What frames of particles say, in sums whose bits do not depend on the build level; the GIL is released meanwhile."""

import numpy as np
from numpy.typing import NDArray

from ._level import kernels

Floats = NDArray[np.float64]


def correlate(
    origins: Floats, sums: Floats, counts: Floats, positions: Floats, velocities: Floats, *, first: int, spacing: int
) -> None:
    """Hold frames (frames, n, 3) against earlier ones, and keep one in `spacing` of them; `first` counts frames.

    `origins` (2, kept, 3 n) are positions and velocities, the oldest making room; `sums` (2, lags) get displacement^2
    and v(0) v(t) of all particles, `counts` (lags,) how many those are.
    """
    frames = (np.ascontiguousarray(given, np.float64) for given in (positions, velocities))
    kernels().correlate(origins, sums, counts, *frames, first, spacing)


def density_powers(positions: Floats, length: float, waves: NDArray[np.int64]) -> Floats:
    r"""Return |sum_j exp(2 pi i n r_j / L)|^2 / N of integers n (waves, 3), for positions (..., N, 3)."""
    powers = np.empty((*positions.shape[:-2], len(waves)))
    frames = np.ascontiguousarray(positions, np.float64).reshape(-1, *positions.shape[-2:])
    kernels().density_powers(frames, length, waves.astype(np.int32), powers.reshape(len(frames), -1))
    return powers
