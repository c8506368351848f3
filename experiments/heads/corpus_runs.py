"""Runs of the lattice engine for a corpus, on cores or on a GPU.

Sweeps of one lattice move together where the engine can (`ChainBatch`), all couplings at once; everything else
runs a chain at a time, in so many processes. Links have the same bits either way. Rows are sums over them and
are kept in single precision, in which GPU and cores agree except where a value is on the edge of rounding.

This is the only module of the conductor that knows the lattice; what is run is said by `corpus_grids`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec
import numpy as np

from experiments.chain_faults import FaultName, inject
from experiments.corpora import Floats
from experiments.protocol import in_processes
from metalforge.conductor.features import SEEN
from metalforge.core.rows import ChainFaultError
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.fermions import FermionSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from metalforge.native.engine import BatchEngine, Engine

from .corpus_file import ChainEntry, ChainRecord

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
