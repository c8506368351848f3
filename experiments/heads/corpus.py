r"""Chains of a corpus: their grids, the runs of the lattice engine that record them, and the file that holds them.

Grids are in `corpus_grids.toml`, by name. Every chain is recorded from its first update on, with a stream of its own.
Couplings that train and couplings that test are disjoint on a lattice, and the two parts have seeds of their own. A
file has `/chains/N`, float32 (columns, updates), in the order of `ChainEntry.columns` (`corpora` has the rest).

Sweeps of one lattice move together where the engine can (`ChainBatch`), all couplings at once; everything else
runs a chain at a time, in so many processes. Links have the same bits either way. Rows are sums over them and
are kept in single precision, in which GPU and cores agree except where a value is on the edge of rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby, product
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.chain_faults import FaultName, inject
from experiments.corpora import PARTS, Floats, Part, RecordedCorpus
from experiments.protocol import in_processes
from metalforge.conductor.features import SEEN
from metalforge.core.errors import SpecError, find
from metalforge.core.rows import ChainFaultError
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.chain import Chain, ChainSpec, FermionSpec, HmcSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.native.engine import BatchEngine, Engine

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
    length: float
    quenched: int = 0
    warmup: int = 0
    mass: float
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

    @property
    def label(self) -> str:
        """It in words."""
        return f"beta {self.beta:g} on {'x'.join(map(str, self.dims))}"

    @property
    def file(self) -> str:
        """The end of the name of its file."""
        return f"nt{self.dims[3]}"

    @property
    def work(self) -> float:
        """Its updates."""
        return self.updates


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


STARTS: tuple[Start, ...] = ("hot", "cold")


class CorpusGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains on one lattice: every coupling with every start, length of a trajectory and seed."""

    dims: Dims
    train: tuple[float, ...]
    test: tuple[float, ...]
    updates: int
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    seeds: int = 2
    lengths: tuple[float, ...] = (1.0,)
    """Times of a trajectory; its steps are tuned in the warm-up, as in a campaign."""
    quenched: int = 0
    warmup: int = 0
    mass: float = 0.0
    flavors: Literal[0, 4] = 0
    faults: tuple[str, ...] = ()
    """One chain for each at every coupling, instead of sound ones; hot and cold in turn."""
    fault_length: int = 64

    def __post_init__(self) -> None:
        both = set(self.train) & set(self.test)
        if both or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {sorted(both)} in both")
        if (self.flavors > 0) != (self.mass > 0):
            raise SpecError(f"`mass` goes with `flavors`. Got {self.mass} and {self.flavors}")
        if self.algorithm == "heatbath" and (self.flavors or len(self.lengths) > 1 or self.quenched):
            raise SpecError("`flavors`, `lengths` and `quenched` are for trajectories: set `algorithm` to hmc")
        if not 0 <= self.quenched <= self.warmup < self.updates:
            raise SpecError(
                "a chain wants 0 <= quenched <= warmup < updates. "
                f"Got {self.quenched}, {self.warmup} and {self.updates}"
            )


class CorpusSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a corpus; training chains have `seed`, test chains the next one."""

    grids: tuple[CorpusGrid, ...]
    seed: int = 2026

    def entries(self, part: str = "all") -> Iterator[ChainEntry]:
        """Give every chain of a part, each with a stream of its own that does not depend on what is asked for."""
        stream = 0
        for grid, of in product(self.grids, PARTS):
            for beta in grid.train if of == "train" else grid.test:
                sound = [(start, length, "") for start, length, _ in product(STARTS, grid.lengths, range(grid.seeds))]
                spoiled = [(STARTS[i % 2], grid.lengths[0], fault) for i, fault in enumerate(grid.faults)]
                for start, length, fault in spoiled or sound:
                    # In the second half, where a chain is in equilibrium, and not at the same place in every chain.
                    room = max(grid.updates // 2 - 2 * grid.fault_length, 1)
                    if part in (of, "all"):
                        yield ChainEntry(
                            part=of,
                            beta=beta,
                            dims=grid.dims,
                            start=start,
                            seed=self.seed + PARTS.index(of),
                            stream=stream,
                            updates=grid.updates,
                            algorithm=grid.algorithm,
                            length=length,
                            quenched=grid.quenched,
                            warmup=grid.warmup,
                            mass=grid.mass,
                            flavors=grid.flavors,
                            fault=fault,
                            fault_from=grid.updates // 2 + (37 * stream) % room if fault else 0,
                            fault_length=grid.fault_length if fault else 0,
                        )
                    stream += 1


GRIDS = msgspec.toml.decode(
    files(__package__).joinpath("corpus_grids.toml").read_bytes(), type=dict[str, tuple[CorpusGrid, ...]]
)


def corpus_spec(grid: str, *, seed: int = 2026) -> CorpusSpec:
    """Return the specification of a grid by its name."""
    return CorpusSpec(grids=find("grid of chains", grid, GRIDS), seed=seed)


def chain_entries(grid: str, seed: int, part: str) -> list[ChainEntry]:
    """Return the chains of a part of a grid, by their N_t."""
    return sorted(corpus_spec(grid, seed=seed).entries(part), key=lambda entry: entry.dims[3])


def corpus_of(grid: str, seed: int, chains: Iterable[ChainRecord]) -> Corpus:
    """Return the chains of a grid as a corpus."""
    spec = msgspec.Raw(msgspec.json.encode(corpus_spec(grid, seed=seed)))
    return Corpus(grid=grid, spec=spec, records=tuple(chains))


BLOCK = 256
"""Updates of a batch that are asked for at once: a GPU keeps so many rows."""


def record(entries: Sequence[ChainEntry], *, engine: Engine | None = None, workers: int = 1) -> Iterator[ChainRecord]:
    """Run these chains; they come in order, as they are ready."""

    def together(entry: ChainEntry) -> tuple[object, ...]:
        return (entry.dims, entry.updates) if entry.algorithm == "heatbath" and not entry.fault else ()

    many = isinstance(engine, BatchEngine)
    for kind, group in groupby(entries, together):
        if many and kind and engine is not None:
            yield from _batched(list(group), engine)
        else:
            yield from in_processes(_alone, group, workers)


def chain_spec(entry: ChainEntry) -> ChainSpec:
    """Return the lattice chain of an entry."""
    # The tolerances of a study, not of a measurement: the accept test keeps the chain exact up to rounding of dH.
    quarks = {"flavors": (entry.flavors,), "masses": (entry.mass,), "tolerance": 1e-8, "force_tolerance": 1e-6}
    return ChainSpec(
        dims=entry.dims,
        beta=entry.beta,
        algorithm=entry.algorithm,
        seed=entry.seed,
        stream=entry.stream,
        start=entry.start,
        hmc=HmcSpec(tau=entry.length),
        fermions=msgspec.convert(quarks, FermionSpec) if entry.flavors else None,
    )


def _batched(entries: Sequence[ChainEntry], engine: Engine) -> list[ChainRecord]:
    """Run sweeps of one lattice together."""
    batch = ChainBatch([Chain(chain_spec(entry), engine=engine) for entry in entries])
    updates = entries[0].updates
    series: Floats = np.empty((len(entries), len(SEEN), updates), np.float32)
    for begin in range(0, updates, BLOCK):
        end = min(begin + BLOCK, updates)
        batch.start(end - begin)
        for n, columns in enumerate(batch.collect()):
            series[n, :, begin:end] = [columns[name] for name in SEEN]
    return [ChainRecord(entry=entry, series=rows) for entry, rows in zip(entries, series, strict=True)]


def _alone(entry: ChainEntry) -> ChainRecord:
    """Run one chain, with its fault; from an update on that gives no finite numbers there are none."""
    warmup = WarmUp(total=entry.warmup, quenched=entry.quenched)
    run = ChainRun(Chain(chain_spec(entry), threads=1), warmup, entry.columns)
    rng = np.random.default_rng([entry.seed, entry.stream])
    end: Callable[[], None] = lambda: None  # noqa: E731
    with suppress(ChainFaultError):
        for update in range(entry.updates):
            if entry.fault and update == entry.fault_from:
                end = inject(run.chain, msgspec.convert(entry.fault, FaultName), rng)
            if entry.fault and update == entry.fault_from + entry.fault_length:
                end()
            run.step()
    series: Floats = np.full((len(entry.columns), entry.updates), np.nan, np.float32)
    series[:, : run.log.end] = list(run.log.columns.values())
    return ChainRecord(entry=entry, series=series)
