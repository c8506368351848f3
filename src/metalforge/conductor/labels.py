"""What every head should say of a chain, from measurement only: never from a known transition or an earlier decision.

- thermalised: from the first trajectory on after which the Wilson loop, averaged over the next `WINDOW`, stays in the
  band of the long runs at the same coupling, mean +- `BAND` deviations of single configurations: the deviation of
  averages would depend on the algorithm. Where the hot and the cold long run do not agree there is no band, and no
  label.
- phase: the Polyakov loop of the equilibrated chain, above or below the cut, which is the midpoint of <|L|> of two
  couplings far on either side. A chain whose interval covers the cut is ambiguous and scored apart.
- rejection: the outcome of the Metropolis test. CG: iterations a solve of the trajectory. Anomaly: an injected fault.
- quality: effective samples of the equilibrated chain a second of processor time; schedule: twice its tau_int.
- beta_priority: the susceptibility of the long runs over the largest of the scan.

`DEFINED_BY` names the columns that a label is made of; the tests hold it against the features that a head sees.
Labels are NaN where they are not defined; a chain with a fault has those of anomaly only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from .chains import ChainEntry, ChainRecord, Corpus, Doubles, Reference
from .corpus import CorpusSpec, hot_and_cold_agree, measured

__all__ = ["DEFINED_BY", "Band", "ChainLabels", "Labeller", "band_of", "first_inside"]

WINDOW = 5
BAND = 2.5
SHORTEST = 20
"""Trajectories in equilibrium below which nothing is said of autocorrelations."""
COVERS = 1.96
DEFINED_BY: Mapping[str, tuple[str, ...]] = {
    "thermalization": ("wilson_loop",),
    "phase": ("polyakov",),
    "anomaly": (),
    "beta_priority": ("polyakov",),
    "cg_estimate": ("cg_iterations",),
    "rejection": ("accepted",),
    "quality": ("wilson_loop",),
    "schedule": ("wilson_loop",),
    "deconfinement": ("polyakov",),
}
"""The columns of a chain that make each head's label, by head of conductor-11."""


class Band(NamedTuple):
    """Where averages over a window lie in equilibrium."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainLabels:
    """Labels by head, each (trajectories,), NaN where there is none; and what they were made from."""

    values: Mapping[str, Doubles]
    length: int | None
    """The first trajectory from which the chain stays in its band; None where it never does, or no band is known."""
    ambiguous: bool


def first_inside(series: Doubles, band: Band, window: int = WINDOW) -> int | None:
    """Return the first index from which all averages over the next `window` entries are in the band."""
    if len(series) < window:
        return None
    averages = np.convolve(series, np.full(window, 1 / window), mode="valid")
    outside = np.flatnonzero((averages < band.low) | (averages > band.high))
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    # One window inside at the very end says nothing of staying there.
    return first if first + 2 * window <= len(series) else None


class Labeller:
    """Makes the labels of a corpus's chains from its long runs."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._spec = msgspec.json.decode(corpus.spec_json, type=CorpusSpec)
        self._bands = {reference.entry: band_of(reference) for reference in corpus.references}
        self._loops = {r.entry: measured(r.series[:, :, 1].ravel()).mean for r in corpus.references}
        self._spreads = {r.entry: float(r.series[:, :, 1].var()) for r in corpus.references}

    def cut(self, entry: ChainEntry) -> float:
        """Return the midpoint of <|L|> of the two far couplings of a chain's grid."""
        for grid in self._spec.grids:
            if (grid.dims, grid.mass) == (entry.dims, entry.mass):
                far = [
                    loop
                    for place, loop in self._loops.items()
                    if (place.dims, place.mass) == (grid.dims, grid.mass) and place.beta in grid.far
                ]
                return float(np.mean([min(far), max(far)]))
        raise AssertionError("a chain of the corpus is on one of its grids")

    def susceptibility(self, entry: ChainEntry) -> float:
        """Return V <(dL)^2> of a chain's long runs over the largest of its scan."""
        scan = [
            spread for place, spread in self._spreads.items() if (place.dims, place.mass) == (entry.dims, entry.mass)
        ]
        return self._spreads[entry.place] / max(scan)

    def labels(self, chain: ChainRecord) -> ChainLabels:
        """Return the labels of one chain."""
        n, entry = len(chain.series), chain.entry
        unknown = np.full(n, np.nan)
        values = dict.fromkeys(DEFINED_BY, unknown)
        faulty = chain.faulty
        if entry.fault == "cg_stall":
            # It can be seen when the first slow solves have ended.
            faulty = np.concatenate([[False], faulty[:-1]])
        # Before a chain has relaxed anything looks like a fault; and what a fault leaves behind is neither.
        values["anomaly"] = np.where(np.arange(n) < n // 4, np.nan, faulty.astype(float))
        if entry.fault is not None:
            values["anomaly"][entry.fault_from + entry.fault_length + 1 :] = np.nan
            return ChainLabels(values=values, length=None, ambiguous=False)
        values["rejection"] = 1 - chain.column("accepted")
        values["cg_estimate"] = chain.column("cg_iterations")
        values["beta_priority"] = np.full(n, self.susceptibility(entry))
        band = self._bands[entry.place]
        length = None if band is None else first_inside(chain.column("wilson_loop"), band)
        if band is not None:
            values["thermalization"] = (np.arange(n) >= (n if length is None else length)).astype(float)
        ambiguous = False
        if length is not None and n - length >= SHORTEST:
            loop = measured(chain.column("polyakov")[length:])
            cut = self.cut(entry)
            ambiguous = abs(loop.mean - cut) < COVERS * loop.error
            values["phase"] = np.full(n, float(loop.mean > cut))
            values["deconfinement"] = np.full(n, loop.mean)
            moves = measured(chain.column("wilson_loop")[length:])
            values["quality"] = np.full(n, moves.samples / (entry.seconds * (n - length) / n))
            values["schedule"] = np.full(n, 2 * moves.tau)
        return ChainLabels(values=values, length=length, ambiguous=ambiguous)

    def unknown_equilibria(self) -> tuple[float, ...]:
        """Return the couplings whose long runs do not agree."""
        return tuple(sorted({place.beta for place, band in self._bands.items() if band is None}))


def band_of(reference: Reference) -> Band | None:
    """Return the band of a long run; None where hot and cold did not meet."""
    if not hot_and_cold_agree(reference):
        return None
    loops = reference.series[:, :, 0]
    mean, spread = float(loops.mean()), float(loops.std())
    return Band(mean - BAND * spread, mean + BAND * spread)
