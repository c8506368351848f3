"""Real chains to learn from, and the long runs that label them: the lattice engine at work for a corpus.

The first few trajectories of a chain run without the accept test, since from a hot or cold start hardly anything would
be accepted. Beside what an observer sees, each chain keeps what labels are made of: a Wilson loop of two by one for the
equilibrium band and the Polyakov loop for the phase. Every equilibrium has two long runs of its own, one hot and one
cold; without sea quarks they are made by heat bath and overrelaxation, which mix faster and are another algorithm.

This is the only module of the conductor that knows the lattice; what is run is said by `corpus_spec`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from metalforge.lattice.chain import Chain, ChainSpec, HeatbathSpec, HmcSpec
from metalforge.lattice.field import GaugeField
from metalforge.lattice.run import ChainRun
from metalforge.lattice.sea import FermionSpec
from metalforge.lattice.warmup import WarmUp

from .chains import SERIES, ChainEntry, ChainRecord, Corpus, Dims, Reference
from .corpus_spec import STARTS, CorpusSpec, chain_entries, equilibria
from .features import ChainContext

A = TypeVar("A")
B = TypeVar("B")
Progress: TypeAlias = Callable[[int, int, str], None]
REFERENCE_STREAM = 1 << 20
"""Streams of long runs start here: no chain shares their random numbers."""
OF_REFERENCES = ("wilson_loop", "polyakov_z3", "plaquette")
OBSERVED = {"polyakov": "polyakov_z3"}
"""Columns of a corpus whose observable has another name."""


def build_corpus(spec: CorpusSpec | None = None, progress: Progress | None = None, *, workers: int = 1) -> Corpus:
    """Run every chain and every long run of a specification, in so many processes; their number changes no link."""
    spec = spec or CorpusSpec()
    entries = list(chain_entries(spec))
    places = [(place, REFERENCE_STREAM + 2 * i) for i, place in enumerate(equilibria(spec, entries))]
    total = len(entries) + len(places)
    say = progress or (lambda done, total, what: None)
    chains, references = [], []
    for i, chain in enumerate(run_chains(entries, spec, workers=workers)):
        say(i, total, f"chain at beta {chain.entry.beta}, {chain.entry.fault or chain.entry.start}")
        chains.append(chain)
    for i, reference in enumerate(run_references(places, spec, workers=workers)):
        say(len(entries) + i, total, f"long runs at beta {reference.entry.beta}")
        references.append(reference)
    return Corpus(spec_json=msgspec.json.encode(spec).decode(), chains=tuple(chains), references=tuple(references))


def training_runs(spec: CorpusSpec, dims: Dims, *, workers: int = 1) -> Corpus:
    """Return what a whole corpus knows of the quenched training couplings of one lattice, the same long runs.

    The chains have entries and no trajectories: this is what earlier runs found, for heads that are asked about others.
    """
    entries = list(chain_entries(spec))
    train = [e for e in entries if e.part == "train" and e.dims == dims and not e.flavors]
    wanted = {entry.place for entry in train}
    places = [(place, REFERENCE_STREAM + 2 * i) for i, place in enumerate(equilibria(spec, entries))]
    references = run_references([where for where in places if where[0] in wanted], spec, workers=workers)
    return Corpus(
        spec_json=msgspec.json.encode(spec).decode(),
        chains=tuple(ChainRecord(entry=entry, series=np.empty((0, len(SERIES)))) for entry in train),
        references=tuple(references),
    )


def run_chains(entries: Iterable[ChainEntry], spec: CorpusSpec, *, workers: int = 1) -> Iterator[ChainRecord]:
    """Run these chains; they come in order, as they are ready."""
    return in_processes(partial(_run, spec=spec), entries, workers)


def run_references(
    places: Sequence[tuple[ChainContext, int]], spec: CorpusSpec, *, workers: int = 1
) -> Iterator[Reference]:
    """Run the long runs of these equilibria, each with its first stream of two."""
    return in_processes(partial(_reference, spec=spec), places, workers)


def in_processes(job: Callable[[A], B], given: Iterable[A], workers: int, *, chunk: int = 2) -> Iterator[B]:
    """Give what the job makes of each, in order: made here, or in so many processes."""
    if workers <= 1:
        yield from map(job, given)
        return
    # From a fork server: a process with running threads, as the kernels have, must not be forked itself.
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        yield from pool.map(job, given, chunksize=chunk)


def _sea(flavors: int, mass: float) -> FermionSpec | None:
    # The tolerances of a study, not of a measurement: the accept test keeps the chain exact up to rounding of dH.
    if not flavors:
        return None
    return FermionSpec(flavors=(flavors,), masses=(mass,), tolerance=1e-8, force_tolerance=1e-6)


def _spec(place: ChainContext, start: Literal["hot", "cold"], stream: int, seed: int, hmc: HmcSpec) -> ChainSpec:
    """The HMC chain of an equilibrium."""
    return ChainSpec(
        dims=place.dims,
        beta=place.beta,
        algorithm="hmc",
        seed=seed,
        stream=stream,
        start=start,
        hmc=hmc,
        fermions=_sea(place.flavors, place.mass),
    )


def _run(entry: ChainEntry, spec: CorpusSpec) -> ChainRecord:
    """Run one chain, with its fault."""
    hmc = HmcSpec(tau=entry.tau, n_steps=entry.n_steps, integrator="leapfrog")
    sound = _spec(entry.place, entry.start, entry.stream, spec.seed, hmc)
    names = [OBSERVED.get(name, name) for name in SERIES]
    run = ChainRun(
        Chain(sound, threads=1),
        WarmUp(total=entry.untested, untested=entry.untested),
        [name for name in names if name != "residual_rate"],
        looks="before",
        clock=time.process_time,
    )
    rng = np.random.default_rng([spec.seed, entry.stream])
    series = np.empty((entry.trajectories, len(SERIES)))
    for t in range(entry.trajectories):
        at_work = entry.fault is not None and entry.fault_from <= t < entry.fault_from + entry.fault_length
        run.chain = _set_up(run.chain, sound, entry, spec, rng, at_work=at_work)
        residuals = _Residuals()
        if run.chain.sea is not None:
            run.chain.sea.inverter.watch = residuals
        row = run.step()
        values = row.values | {"residual_rate": residuals.rate}
        if not row.tested:
            del values["accepted"]
        series[t] = [values.get(name, np.nan) for name in names]
    return ChainRecord(entry=msgspec.structs.replace(entry, seconds=run.seconds), series=series)


class _Residuals:
    """Watches the solves of a trajectory: log10 of the residual's change an iteration, over all of them."""

    def __init__(self) -> None:
        self._decades = self._iterations = 0.0
        self._last = (0, 1.0)

    def __call__(self, iteration: int, residual: float) -> None:
        before, level = self._last
        if iteration <= before:  # another solve, which starts from a relative residual of one
            before, level = 0, 1.0
        self._decades += float(np.log10(residual / level))
        self._iterations += iteration - before
        self._last = (iteration, residual)

    @property
    def rate(self) -> float:
        """Not a number where all solves ended before the first look."""
        return self._decades / self._iterations if self._iterations else float("nan")


def _set_up(
    chain: Chain, sound: ChainSpec, entry: ChainEntry, spec: CorpusSpec, rng: np.random.Generator, *, at_work: bool
) -> Chain:
    """Return the chain as its next trajectory runs: as it says, or with its fault at work."""
    wanted, links = sound, None
    if at_work and entry.fault == "wrong_step":
        n_steps = max(round(entry.n_steps / spec.coarser), 1)
        wanted = msgspec.structs.replace(sound, hmc=msgspec.structs.replace(sound.hmc, n_steps=n_steps))
    elif at_work and entry.fault == "cg_stall":
        wanted = msgspec.structs.replace(sound, fermions=_sea(entry.flavors, spec.lighter * entry.mass))
    elif at_work and entry.fault == "bad_links":
        links = chain.field.to_links()
        noise = GaugeField.hot(entry.dims, seed=int(rng.integers(1 << 31)), stream=entry.stream).to_links()
        spoiled = rng.random(links.shape[:5]) < spec.bad_share
        links[spoiled] = noise[spoiled]
    if links is None and wanted == chain.spec:
        return chain
    field = chain.field if links is None else GaugeField.from_links(links, threads=1)
    changed = Chain(wanted, field=field, threads=1)
    changed.step = chain.step
    return changed


def _reference(where: tuple[ChainContext, int], spec: CorpusSpec) -> Reference:
    """Run one equilibrium for long, from hot and from cold."""
    place, stream = where
    warmup = WarmUp(total=max(spec.reference // 4, 40), untested=spec.untested)
    runs = []
    for i, start in enumerate(STARTS):
        asked = msgspec.structs.replace(
            _spec(place, start, stream + i, spec.seed, HmcSpec(tau=1.0, n_steps=5, integrator="omelyan2")),
            algorithm="hmc" if place.flavors else "heatbath",
            heatbath=HeatbathSpec(heatbath=1, overrelax=3),
        )
        run = ChainRun(Chain(asked, threads=1), warmup, OF_REFERENCES, measures=("measure",))
        runs.append(run.measure(spec.reference))
    return Reference(place, np.array(runs))
