"""Real chains to learn from: a grid of couplings, volumes, starts and step sizes, some of them with injected faults.

Every chain is recorded from its first trajectory on, with fixed parameters; the first few run without the accept test,
since from a hot or cold start hardly anything would be accepted. Beside what an observer sees, each chain keeps what
labels are made of: a Wilson loop of two by one for the equilibrium band, the Polyakov loop for the phase, and the
verdict of MSER, which is a baseline. Every equilibrium has two long runs of its own, one hot and one cold; without sea
quarks they are made by heat bath and overrelaxation, which mix faster and are another algorithm.

Faults go on for some trajectories: `bad_links` puts random matrices on some links before each trajectory,
`wrong_step` integrates with steps `coarser` times as long as it says, `cg_stall` solves for a lighter quark than it
says, so that its solves take longer. This is the only module of the conductor that knows the lattice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError
from metalforge.lattice.analysis import gamma_method, hot_cold_agreement, mser
from metalforge.lattice.chain import Chain, ChainSpec, HeatbathSpec, HmcSpec
from metalforge.lattice.fermions import FermionSpec
from metalforge.lattice.field import GaugeField
from metalforge.lattice.hmc import EnergyProbe, MidEnergy
from metalforge.lattice.observables import wilson_loops, z3_projection

from .chains import SERIES, ChainEntry, ChainRecord, Corpus, Dims, Doubles, Fault, Part, Reference, ReferenceEntry

__all__ = [
    "QUICK_CORPUS",
    "CorpusSpec",
    "Grid",
    "Measured",
    "build_corpus",
    "chain_entries",
    "hot_and_cold_agree",
    "measured",
    "run_chains",
    "run_references",
]

Progress: TypeAlias = Callable[[int, int, str], None]
REFERENCE_STREAM = 1 << 20
"""Streams of long runs start here: no chain shares their random numbers."""
MSER_EVERY = 4
"""Trajectories between two verdicts of MSER."""
STARTS: tuple[Literal["hot", "cold"], ...] = ("hot", "cold")


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chains on one lattice: every coupling with every start, trajectory and seed; the faults beside them.

    `far` are two couplings deep in either phase, for the cut between the phases.
    """

    dims: Dims
    train: tuple[float, ...]
    test: tuple[float, ...]
    far: tuple[float, float]
    steps: tuple[tuple[float, int], ...] = ((1.0, 5), (1.0, 7), (0.6, 4))
    """Length and number of steps of a trajectory; the first are too coarse on purpose."""
    seeds: int = 1
    trajectories: int = 120
    faults: tuple[Fault, ...] = ("bad_links", "wrong_step")
    mass: float = 0.0
    flavors: Literal[0, 4] = 0

    def __post_init__(self) -> None:
        both = set(self.train) & set(self.test)
        if both or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {sorted(both)} in both")
        if (self.flavors > 0) != (self.mass > 0):
            raise SpecError(f"`mass` goes with `flavors`. Got {self.mass} and {self.flavors}")
        if "cg_stall" in self.faults and not self.flavors:
            raise SpecError("`cg_stall` needs `flavors`: a quenched chain solves nothing")


_SEA = Grid(
    dims=(4, 4, 4, 2),
    train=(4.5, 4.7, 4.95, 5.15),
    test=(4.6, 4.8, 5.0),
    far=(4.2, 5.6),
    steps=((1.0, 5), (0.6, 4)),
    trajectories=60,
    faults=("bad_links", "wrong_step", "cg_stall"),
    mass=0.1,
    flavors=4,
)
"""Four flavours of sea quarks; the default corpus has them at two masses."""


class CorpusSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a corpus, but for the seconds it took."""

    grids: tuple[Grid, ...] = (
        Grid(
            dims=(4, 4, 4, 2),
            train=(4.7, 4.85, 4.95, 5.05, 5.15, 5.3, 5.5),
            test=(4.8, 5.0, 5.1, 5.2, 5.4),
            far=(4.5, 5.8),
            seeds=2,
        ),
        Grid(
            dims=(4, 4, 4, 4),
            train=(5.05, 5.3, 5.5, 5.65, 5.8, 6.0, 6.3),
            test=(5.2, 5.4, 5.6, 5.9, 6.15),
            far=(4.8, 6.8),
        ),
        _SEA,
        msgspec.structs.replace(_SEA, mass=0.3),
    )
    untested: int = 6
    reference: int = 400
    """Trajectories of a long run that are kept; a quarter as many were dropped before them."""
    bad_share: float = 0.03
    """Share of links that `bad_links` spoils."""
    coarser: float = 1.7
    lighter: float = 0.3
    fault_length: int = 8
    seed: int = 2026

    def __post_init__(self) -> None:
        both = {b for grid in self.grids for b in grid.train} & {b for grid in self.grids for b in grid.test}
        if both or not self.grids:
            raise SpecError(f"no coupling may train on one lattice and test on another. Got {sorted(both)} in both")


QUICK_CORPUS = CorpusSpec(
    grids=(
        Grid(
            dims=(4, 4, 4, 2),
            train=(4.7, 4.95, 5.15, 5.5),
            test=(4.85, 5.05, 5.3),
            far=(4.5, 5.8),
            steps=((1.0, 5), (0.6, 4)),
            trajectories=60,
        ),
    ),
    reference=200,
)
"""A corpus of the same kind that is made in seconds."""


class Measured(NamedTuple):
    """A mean with its error, autocorrelation time and effective number of measurements."""

    mean: float
    error: float
    tau: float
    samples: float


def measured(series: ArrayLike) -> Measured:
    """Return mean, error and autocorrelation time of a series by the Gamma method."""
    found = gamma_method(series)
    return Measured(found.mean, found.error, found.tau_int, found.n / (2 * found.tau_int))


def hot_and_cold_agree(reference: Reference) -> bool:
    """Return whether the two long runs found the same equilibrium."""
    return hot_cold_agreement(reference.series[0, :, 0], reference.series[1, :, 0], k=4.0).agrees


def build_corpus(spec: CorpusSpec | None = None, progress: Progress | None = None, *, workers: int = 1) -> Corpus:
    """Run every chain and every long run of a specification, in so many processes; their number changes no link."""
    spec = spec or CorpusSpec()
    entries = list(chain_entries(spec))
    places = [(place, REFERENCE_STREAM + 2 * i) for i, place in enumerate(_places(spec, entries))]
    total = len(entries) + len(places)

    def done(i: int, what: str) -> None:
        if progress is not None:
            progress(i, total, what)

    chains, references = [], []
    for i, chain in enumerate(run_chains(entries, spec, workers=workers)):
        done(i, f"chain at beta {chain.entry.beta}, {chain.entry.fault or chain.entry.start}")
        chains.append(chain)
    for i, reference in enumerate(run_references(places, spec, workers=workers)):
        done(len(entries) + i, f"long runs at beta {reference.entry.beta}")
        references.append(reference)
    return Corpus(spec_json=msgspec.json.encode(spec).decode(), chains=tuple(chains), references=tuple(references))


def run_chains(entries: Iterable[ChainEntry], spec: CorpusSpec, *, workers: int = 1) -> Iterator[ChainRecord]:
    """Run these chains; they come in order, as they are ready."""
    return _in_processes(partial(_run, spec=spec), list(entries), workers)


def run_references(
    places: Sequence[tuple[ReferenceEntry, int]], spec: CorpusSpec, *, workers: int = 1
) -> Iterator[Reference]:
    """Run the long runs of these equilibria, each with its first stream of two."""
    return _in_processes(partial(_reference, spec=spec), places, workers)


def _in_processes(job: Callable[[Any], Any], given: Sequence[Any], workers: int) -> Iterator[Any]:
    if workers <= 1:
        yield from map(job, given)
        return
    # Spawned: a process with running threads, as the kernels have, must not be forked.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(job, given, chunksize=2)


def chain_entries(spec: CorpusSpec) -> Iterator[ChainEntry]:
    """Return every chain of a specification, each with a stream of its own."""
    stream = 0
    parts: tuple[Part, ...] = ("train", "test")
    for grid, part in product(spec.grids, parts):
        for beta in grid.train if part == "train" else grid.test:
            sound = [(start, step, None) for start, step, _ in product(STARTS, grid.steps, range(grid.seeds))]
            spoiled = [
                (STARTS[i % 2], grid.steps[-1], fault) for i, fault in enumerate(grid.faults) for _ in range(grid.seeds)
            ]
            for start, (tau, n_steps), fault in (*sound, *spoiled):
                # In the second half, where a chain is in equilibrium, and not at the same place in every chain.
                room = max(grid.trajectories // 2 - spec.fault_length, 1)
                yield ChainEntry(
                    part=part,
                    beta=beta,
                    dims=grid.dims,
                    start=start,
                    tau=tau,
                    n_steps=n_steps,
                    stream=stream,
                    trajectories=grid.trajectories,
                    untested=spec.untested,
                    mass=grid.mass,
                    flavors=grid.flavors,
                    fault=fault,
                    fault_from=grid.trajectories // 2 + (7 * stream) % room if fault else 0,
                    fault_length=spec.fault_length if fault else 0,
                )
                stream += 1


def _places(spec: CorpusSpec, entries: list[ChainEntry]) -> Iterator[ReferenceEntry]:
    """Every equilibrium that has chains, and the two far ones of every grid."""
    far = [
        ReferenceEntry(beta=beta, dims=grid.dims, mass=grid.mass, flavors=grid.flavors)
        for grid in spec.grids
        for beta in grid.far
    ]
    yield from dict.fromkeys([*far, *(entry.place for entry in entries)])


def _lattice_spec(entry: ChainEntry, seed: int, *, mass: float) -> ChainSpec:
    # The tolerances of a study, not of a measurement: the accept test keeps the chain exact up to rounding of dH.
    sea = None
    if entry.flavors:
        sea = FermionSpec(flavors=(entry.flavors,), masses=(mass,), tolerance=1e-8, force_tolerance=1e-6)
    return ChainSpec(
        dims=entry.dims,
        beta=entry.beta,
        algorithm="hmc",
        seed=seed,
        stream=entry.stream,
        start=entry.start,
        hmc=HmcSpec(tau=entry.tau, n_steps=entry.n_steps, integrator="leapfrog"),
        fermions=sea,
    )


def _run(entry: ChainEntry, spec: CorpusSpec) -> ChainRecord:
    """Run one chain, with its fault."""
    sound = _lattice_spec(entry, spec.seed, mass=entry.mass)
    chain = Chain(sound, threads=1)
    rows = np.full((entry.trajectories, len(SERIES)), np.nan)
    rng = np.random.default_rng([spec.seed, entry.stream])
    seconds = 0.0
    for t, row in enumerate(rows):
        at_work = entry.fault is not None and entry.fault_from <= t < entry.fault_from + entry.fault_length
        chain = _set_up(chain, sound, entry, spec, rng, at_work=at_work)
        values = _look(chain.field)
        quarter: list[MidEnergy] = []
        began = time.process_time()
        info = chain.update(accept_always=t < entry.untested, probe=EnergyProbe((0.25,), quarter.append))
        seconds += time.process_time() - began
        if info.delta_h is not None:
            values |= {"delta_h": info.delta_h, "delta_h_quarter": quarter[0].delta_h}
        if t >= entry.untested and info.accepted is not None:
            values["accepted"] = float(info.accepted)
        if chain.sea is not None and info.cg_iterations is not None:
            # The count of solves starts anew with every trajectory, as that of iterations does.
            values["cg_iterations"] = info.cg_iterations / max(chain.sea.inverter.solves, 1)
        row[:] = [values.get(name, np.nan) for name in SERIES]
    rows[:, SERIES.index("mser")] = _mser_says(rows[:, :2].mean(axis=1))
    return ChainRecord(entry=msgspec.structs.replace(entry, seconds=seconds), series=rows)


def _set_up(
    chain: Chain, sound: ChainSpec, entry: ChainEntry, spec: CorpusSpec, rng: np.random.Generator, *, at_work: bool
) -> Chain:
    """Return the chain as its next trajectory runs: as it says, or with its fault at work."""
    wanted, links = sound, None
    if at_work and entry.fault == "wrong_step":
        n_steps = max(round(entry.n_steps / spec.coarser), 1)
        wanted = msgspec.structs.replace(sound, hmc=msgspec.structs.replace(sound.hmc, n_steps=n_steps))
    elif at_work and entry.fault == "cg_stall":
        wanted = _lattice_spec(entry, spec.seed, mass=spec.lighter * entry.mass)
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


def _look(field: GaugeField) -> dict[str, float]:
    """Return the observables of a configuration, those of the labels too."""
    spatial, temporal = (s / (3 * field.volume) for s in field.plaquette_sums())
    return {
        "plaquette_spatial": spatial,
        "plaquette_temporal": temporal,
        "wilson_loop": float(wilson_loops(field.to_links(), 2, 1)[1, 0]),
        "polyakov": z3_projection(field.polyakov()),
    }


def _mser_says(plaquette: Doubles) -> Doubles:
    """Return, from trajectory to trajectory, whether twice the MSER cut of what was seen leaves half of it."""
    says, now = np.zeros(len(plaquette)), 0.0
    for t in range(len(plaquette)):
        if t >= 10 and t % MSER_EVERY == 0:
            cut = mser(plaquette[: t + 1])
            now = float(cut.found and 2 * cut.start <= (t + 1) / 2)
        says[t] = now
    return says


def _reference(where: tuple[ReferenceEntry, int], spec: CorpusSpec) -> Reference:
    """Run one equilibrium for long, from hot and from cold."""
    place, stream = where
    runs = []
    for i, start in enumerate(STARTS):
        chain = Chain(_reference_spec(place, start, stream + i, spec.seed), threads=1)
        dropped = max(spec.reference // 4, 40)
        seen = []
        for t in range(spec.reference + dropped):
            chain.update(accept_always=t < spec.untested)
            if t >= dropped:
                found = _look(chain.field)
                plaquette = (found["plaquette_spatial"] + found["plaquette_temporal"]) / 2
                seen.append((found["wilson_loop"], found["polyakov"], plaquette))
        runs.append(seen)
    return Reference(place, np.array(runs))


def _reference_spec(place: ReferenceEntry, start: Literal["hot", "cold"], stream: int, seed: int) -> ChainSpec:
    if not place.flavors:
        sweeps = HeatbathSpec(heatbath=1, overrelax=3)
        return ChainSpec(dims=place.dims, beta=place.beta, seed=seed, stream=stream, start=start, heatbath=sweeps)
    sea = FermionSpec(flavors=(place.flavors,), masses=(place.mass,), tolerance=1e-8, force_tolerance=1e-6)
    hmc = HmcSpec(tau=1.0, n_steps=5, integrator="omelyan2")
    return ChainSpec(
        dims=place.dims,
        beta=place.beta,
        algorithm="hmc",
        seed=seed,
        stream=stream,
        start=start,
        hmc=hmc,
        fermions=sea,
    )
