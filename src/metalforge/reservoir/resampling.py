"""Resampling of correlated series in blocks: how long the blocks should be, and which times they take."""

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["block_length", "circular_blocks"]


def block_length(series: NDArray[np.float64]) -> int:
    r"""Return the block length, 1 to n / 3, for which the bootstrap's variance of the mean has the least squared error.

        b = (2 G^2 / D)^(1/3) n^(1/3),   G = sum |k| R(k),   D = 4/3 (sum R(k))^2

    for circular blocks, with autocovariances R(k) under a flat-top window up to 2 m; m is the lag after which the next
    ones are all insignificant. (D. Politis, H. White, Econometric Reviews 23, 2004, corrected by A. Patton, D. Politis,
    H. White, 28, 2009.)
    """
    n = len(series)
    longest = max(1, n // 3)
    centred = series - series.mean()
    covariance = _autocovariance(centred)
    if covariance[0] <= 0:
        return 1
    correlation = covariance / covariance[0]
    insignificant = np.abs(correlation[1:]) < 2 * math.sqrt(math.log10(n) / n)
    run = max(5, math.isqrt(math.ceil(math.log10(n))))
    m = next((k for k in range(len(insignificant) - run + 1) if insignificant[k : k + run].all()), len(insignificant))
    lags = np.arange(1, min(2 * max(m, 1), n - 1) + 1)
    window = np.clip(2 * (1 - lags / lags[-1]), 0, 1)
    weighted = window * covariance[lags]
    spectrum = covariance[0] + 2 * weighted.sum()
    bias = 2 * np.sum(lags * weighted)
    if spectrum <= 0:
        return longest  # anticorrelated beyond what n times can tell
    best = (2 * bias**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(1, math.ceil(best)), longest))


def circular_blocks(rng: np.random.Generator, n: int, block: int) -> NDArray[np.intp]:
    """Return n times made of whole blocks that start anywhere and go round the end; the last is cut."""
    starts = rng.integers(0, n, -(-n // block))
    return np.asarray(((starts[:, np.newaxis] + np.arange(block)) % n).ravel()[:n])


def _autocovariance(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R(0) .. R(n - 1), each divided by n; by FFT with as many zeros behind."""
    n = len(centred)
    spectrum = np.fft.rfft(centred, 2 * n)
    return np.asarray(np.fft.irfft(spectrum * spectrum.conj(), 2 * n)[:n] / n)
