r"""Where a chain's plaquette has been, and rows that are far from it.

Mean and variance of the measured rows are learned as they come, of single ones and of means over `BIN` of them, whose
spread has the autocorrelation in it. A row or a bin is out of the band where

    |x - mean| > t sd sqrt(1 + 1 / n),        t the quantile of Student's distribution for n - 1 values.

A chain that has been in one phase and crosses to the other moves by the latent heat, and its Polyakov loop with it:
what is nearer than `LATENT` / N_t and comes with a loop that moved is no fault.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

BIN = 16
"""Rows of a bin."""
FEWEST = 16
"""Bins below which nothing is said."""
SIZE = 1e-8
"""The probability of a value beyond the quantile, for independent Gaussian ones."""
LATENT = 0.1
"""N_t times the gap of the plaquette between the phases, with room for fluctuations."""
MOVED = 3.0
"""Standard deviations of |L| by which it has moved."""

Floats = NDArray[np.float64]


class OutOfBand(NamedTuple):
    """A measured row, counted from the first that was looked at, and how many standard deviations it is away."""

    row: int
    z: float


class _Moments:
    """Number, mean and sum of squared deviations of values that come in parts (Chan, Golub and LeVeque 1979)."""

    def __init__(self) -> None:
        self.n, self.mean, self._squares = 0, 0.0, 0.0

    def take(self, x: Floats) -> None:
        if not x.size:
            return
        n, mean = self.n + x.size, float(x.mean())
        shift = mean - self.mean
        self._squares += float(((x - mean) ** 2).sum()) + shift**2 * self.n * x.size / n
        self.mean += shift * x.size / n
        self.n = n

    def z(self, x: Floats) -> Floats:
        """Return how many standard deviations values are away."""
        sd = np.sqrt(self._squares / (self.n - 1) * (1 + 1 / self.n))
        return np.abs(x - self.mean) / max(float(sd), 1e-300)


class Band:
    """The band of one chain; what is taken is trusted, what is looked at is not taken."""

    def __init__(self, n_t: int) -> None:
        self._crossing = LATENT / n_t
        self._rows, self._bins, self._loops = _Moments(), _Moments(), _Moments()
        self._rest = np.zeros((2, 0))

    def take(self, columns: Mapping[str, Sequence[float]], measured: int) -> None:
        """Learn from the last rows, so many, of columns of a chain."""
        plaquettes, loops = new = _series(columns, measured)
        bins, self._rest = _binned(np.hstack([self._rest, new]))
        self._rows.take(plaquettes)
        self._loops.take(loops)
        self._bins.take(bins[0])

    def look(self, columns: Mapping[str, Sequence[float]], measured: int) -> OutOfBand | None:
        """Return the first of the last rows, so many, that is out of the band, alone or with others of its bin."""
        if self._bins.n < FEWEST or not measured:
            return None
        new = _series(columns, measured)
        bins, _ = _binned(np.hstack([self._rest, new]))
        alone = (OutOfBand(row, z) for row, z in self._beyond(self._rows, new))
        first = -self._rest.shape[1]
        joined = (OutOfBand(max(first + BIN * n, 0), z) for n, z in self._beyond(self._bins, bins))
        return next(alone, None) or next(joined, None)

    def _beyond(self, known: _Moments, values: Floats) -> Iterator[tuple[int, float]]:
        """Give the values out of the band that are not on the way to the other phase."""
        plaquettes, loops = values
        z = known.z(plaquettes)
        for n in np.flatnonzero(z > _quantile(known.n)):
            near = abs(plaquettes[n] - known.mean) < self._crossing
            if not (near and self._loops.z(loops[n : n + 1])[0] > MOVED):
                yield int(n), float(z[n])


def _series(columns: Mapping[str, Sequence[float]], measured: int) -> Floats:
    """Return the plaquette and |L| of the last rows, so many."""
    first = len(columns["plaquette"]) - measured if columns else 0
    names = ("plaquette", "polyakov_re", "polyakov_im")
    plaquette, re, im = (np.asarray(columns[name][first:] if columns else (), np.float64) for name in names)
    return np.array([plaquette, np.hypot(re, im)])


def _binned(rows: Floats) -> tuple[Floats, Floats]:
    whole = rows.shape[1] // BIN * BIN
    return rows[:, :whole].reshape(2, -1, BIN).mean(axis=2), rows[:, whole:]


_QUANTILES: dict[int, float] = {}


def _quantile(n: int) -> float:
    """Return the quantile for about so many values: it hardly moves, and takes a while."""
    rounded = 1 << max(n, 2).bit_length() - 1
    if rounded not in _QUANTILES:
        _QUANTILES[rounded] = float(student.isf(SIZE / 2, rounded - 1))
    return _QUANTILES[rounded]
