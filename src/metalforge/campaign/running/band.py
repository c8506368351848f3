r"""Where a chain's plaquette has been, and rows that are far from it.

Mean and variance of the measured rows are learned as they come, of single ones and of means over `BIN` of them, whose
spread has the autocorrelation in it. A row or a bin is out of the band where

    |x - mean| > t sd sqrt(1 + 1 / n),        t the quantile of Student's distribution for n - 1 values.

A chain that has been in one phase and crosses to the other moves by the latent heat, and its Polyakov loop with it:
what is nearer than `LATENT` / N_t and comes with a loop that moved is no fault.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import hypot, sqrt
from operator import mul
from typing import NamedTuple

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

Rows = list[float]
"""Plain lists: a block has tens of rows, for which arrays take longer."""


class OutOfBand(NamedTuple):
    """A measured row, counted from the first that was looked at, and how many standard deviations it is away."""

    row: int
    z: float


class _Moments:
    """Number, mean and sum of squared deviations of values that come in parts."""

    def __init__(self) -> None:
        self.n, self.mean, self._squares = 0, 0.0, 0.0

    def take(self, x: Rows) -> None:
        if not x:
            return
        if not self.n:
            self.mean = x[0]
        off = [value - self.mean for value in x]
        total = sum(off)
        self.n += len(x)
        self.mean += total / self.n
        self._squares += sum(map(mul, off, off)) - total * total / self.n

    @property
    def spread(self) -> float:
        """The standard deviation of one value more from the mean."""
        return sqrt(max(self._squares, 0.0) / (self.n - 1) * (1 + 1 / self.n))


class Band:
    """The band of one chain; what is taken is trusted, what is looked at is not taken."""

    def __init__(self, n_t: int) -> None:
        self._crossing = LATENT / n_t
        self._rows, self._bins, self._loops = _Moments(), _Moments(), _Moments()
        self._rest: Rows = []

    def take(self, columns: Mapping[str, Sequence[float]], measured: int) -> None:
        """Learn from the last rows, so many, of columns of a chain."""
        plaquettes = _last(columns, "plaquette", measured)
        joined = self._rest + plaquettes
        self._rest = joined[len(joined) // BIN * BIN :]
        self._rows.take(plaquettes)
        self._bins.take(_means(joined))
        self._loops.take(_loops(columns, measured, BIN))  # enough to know where they are

    def look(self, columns: Mapping[str, Sequence[float]], measured: int) -> OutOfBand | None:
        """Return the first of the last rows, so many, that is out of the band, alone or with others of its bin."""
        if self._bins.n < FEWEST:
            return None
        plaquettes = _last(columns, "plaquette", measured)
        first = -len(self._rest)
        out = [(row, row, z) for row, z in _beyond(self._rows, plaquettes)]
        out += [
            (first + BIN * n, first + BIN * (n + 1), z) for n, z in _beyond(self._bins, _means(self._rest + plaquettes))
        ]
        for begin, end, z in out:
            rows = slice(max(begin, 0), max(end, begin + 1))
            if not self._crosses(plaquettes[rows], _loops(columns, measured)[rows]):
                return OutOfBand(rows.start, z)
        return None

    def _crosses(self, plaquettes: Rows, loops: Rows) -> bool:
        """Return whether rows are on the way to the other phase: no farther than that, and |L| has moved with them."""
        plaquette, loop = sum(plaquettes) / len(plaquettes), sum(loops) / len(loops)
        near = abs(plaquette - self._rows.mean) < self._crossing
        return near and abs(loop - self._loops.mean) > MOVED * self._loops.spread


def _beyond(known: _Moments, values: Rows) -> Iterator[tuple[int, float]]:
    """Give the values out of the band, and by how many standard deviations."""
    mean, spread = known.mean, known.spread
    width = _quantile(1 << known.n.bit_length() - 1, SIZE) * spread
    if values and (max(values) - mean > width or mean - min(values) > width):
        yield from ((n, abs(x - mean) / max(spread, 1e-300)) for n, x in enumerate(values) if abs(x - mean) > width)


def _last(columns: Mapping[str, Sequence[float]], name: str, measured: int) -> Rows:
    return list(columns[name][len(columns[name]) - measured :]) if measured else []


def _loops(columns: Mapping[str, Sequence[float]], measured: int, every: int = 1) -> Rows:
    re, im = (_last(columns, name, measured)[::every] for name in ("polyakov_re", "polyakov_im"))
    return [hypot(*z) for z in zip(re, im, strict=True)]


def _means(rows: Rows) -> Rows:
    return [sum(rows[n : n + BIN]) / BIN for n in range(0, len(rows) - BIN + 1, BIN)]


@cache
def _quantile(n: int, size: float) -> float:
    """Return the quantile of Student's distribution for so many values."""
    from scipy.special import stdtrit

    return -float(stdtrit(n - 1, size / 2))
