"""Where a virtual campaign gets its rows: from a tape, or from real chains run on demand; both look the same.

    source.draw(beta, updates, chain=key)      the next rows of that chain

A chain is named by its key. Its first draw starts it: on a tape at a random place of the recording nearest in beta,
read in a circle from there on; live from a new lattice, warmed up. Another seed gives other rows.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.physics.series import Dims, PointSeries
from metalforge.core.errors import SpecError
from metalforge.lattice.run import ChainRun

from .tape import Rows, Tape, sweeping

__all__ = ["LiveSource", "RowSource", "TapeSource", "as_series"]


class RowSource(Protocol):
    """Gives rows of chains."""

    def draw(self, beta: float, updates: int, *, chain: int) -> PointSeries:
        """Return the next rows of a chain; the beta of the series is the one they were made at."""
        ...


def as_series(beta: float, dims: Dims, rows: Rows) -> PointSeries:
    """Return rows (plaquette, Re L, Im L) as a series."""
    wide = rows.astype(np.float64)
    return PointSeries(beta, dims, wide[:, 0], wide[:, 1] + 1j * wide[:, 2])


class TapeSource:
    """Draws consecutive rows of a tape, each chain from a random start."""

    def __init__(self, tape: Tape, seed: int) -> None:
        self.tape = tape
        self._betas = np.array(tape.spec.betas)
        self._rng = np.random.default_rng([seed, 77])
        self._place: dict[int, tuple[int, int]] = {}

    def draw(self, beta: float, updates: int, *, chain: int) -> PointSeries:
        """Return the next rows of the recording nearest in beta."""
        if chain not in self._place:
            nearest = int(np.abs(self._betas - beta).argmin())
            self._place[chain] = nearest, int(self._rng.integers(len(self.tape.rows[nearest])))
        nearest, start = self._place[chain]
        rows = self.tape.rows[nearest]
        if updates > len(rows):
            raise SpecError(
                f"the tape holds {len(rows)} rows at beta = {self._betas[nearest]:g}. Got a request for {updates}"
                "\nhint: build a longer tape"
            )
        index: NDArray[np.int64] = (start + np.arange(updates)) % len(rows)
        self._place[chain] = nearest, (start + updates) % len(rows)
        return as_series(float(self._betas[nearest]), self.tape.spec.dims, rows[index])


class LiveSource:
    """Runs real chains: one heat bath and four overrelaxation sweeps an update, on one core."""

    def __init__(self, dims: Dims, seed: int, *, warmup: int) -> None:
        self.dims = dims
        self.seed = seed
        self.warmup = warmup
        self._chains: dict[int, ChainRun] = {}

    def draw(self, beta: float, updates: int, *, chain: int) -> PointSeries:
        """Return the next rows of a chain, started and warmed up if it is new."""
        if chain not in self._chains:
            self._chains[chain] = sweeping(self.dims, beta, seed=self.seed, stream=chain, warmup=self.warmup)
        running = self._chains[chain]
        return as_series(running.chain.spec.beta, self.dims, running.measure(updates).astype(np.float32))
