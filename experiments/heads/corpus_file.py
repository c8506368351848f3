"""The chains of a corpus: rows as in a journal, and the entry that describes each chain.

A file has `/chains/N`, float32 (columns, updates), in the order of `ChainEntry.columns` (`corpora` has the rest).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.corpora import Floats, Part, RecordedCorpus
from metalforge.conductor.features import SEEN
from metalforge.core.errors import SpecError

Start: TypeAlias = Literal["hot", "cold"]
Dims: TypeAlias = tuple[int, int, int, int]
Place: TypeAlias = tuple[Dims, float, float, str]
"""Lattice, mass, coupling and algorithm."""
TRAJECTORIES = (*SEEN, "delta_h", "accepted", "delta_h_quarter", "n_steps")
"""What a trajectory leaves, in the order of files."""


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Describes one chain. Its first `quenched` updates are sweeps without quarks, those up to `warmup` are tuned.

    Of trajectories `length` is the time of one. A `fault` is at work for `fault_length` updates from `fault_from` on.
    """

    part: Part
    beta: float
    dims: Dims
    start: Start
    seed: int
    stream: int
    updates: int
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    length: float = 1.0
    quenched: int = 0
    warmup: int = 0
    mass: float = 0.0
    flavors: int = 0
    fault: str = ""
    fault_from: int = 0
    fault_length: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        if self.algorithm == "heatbath":
            return SEEN
        return (*TRAJECTORIES, "cg_iterations") if self.flavors else TRAJECTORIES

    @property
    def lattice(self) -> tuple[Dims, float]:
        """Extents and mass: what chains of one scan share."""
        return self.dims, self.mass

    @property
    def place(self) -> Place:
        """The equilibrium it goes to, and the cluster it is drawn with."""
        return *self.lattice, self.beta, self.algorithm

    @property
    def name(self) -> tuple[object, ...]:
        """Identifies the chain in a corpus."""
        return self.place, self.seed, self.stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainRecord:
    """One chain: its entry and its series (columns, updates), NaN where an update has no such number."""

    entry: ChainEntry
    series: Floats

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the series as files have it."""
        return {"": self.series.astype("<f4")}

    @classmethod
    def read(cls, entry: ChainEntry, arrays: Mapping[str, NDArray[Any]]) -> "ChainRecord":
        """Return a chain from what a file has of it."""
        series = np.asarray(arrays[""], np.float32)
        if series.shape != (len(entry.columns), entry.updates):
            raise SpecError(f"the chain of stream {entry.stream} has series of shape {series.shape}")
        return cls(entry=entry, series=series)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one series by name."""
        return np.asarray(self.series[self.entry.columns.index(name)], np.float64)

    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]:
        """All series by name."""
        return {name: self.column(name) for name in self.entry.columns}

    @property
    def loop(self) -> NDArray[np.float64]:
        """|L|, the modulus of the Polyakov loop."""
        return np.asarray(np.hypot(self.column("polyakov_re"), self.column("polyakov_im")))


class Corpus(RecordedCorpus[ChainRecord]):
    """Chains, with the specification they were made from."""

    FORMAT = ("metalforge-conductor-corpus", "3")
    RECORDS = "chains"
    RECORD, ENTRY = ChainRecord, ChainEntry
