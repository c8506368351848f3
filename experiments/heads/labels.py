r"""The labels of every head, from measurement only: never from an earlier decision.

The equilibrium of a coupling is that of the later halves of all its chains. Where hot and cold ones differ by more than
`AGREES` errors, in the plaquette or in |L|, it is not known, and no label is made of it. `LABELS` says how each is
made, docs/protocols/heads.md in words. Labels are NaN where they are not defined; a chain with a fault has that of
anomaly only.

`examples` are chains as a network sees them: frames (frames, features) of `features.FrameMaker`, the one door, with
labels. Frames know a chain up to their own row only; labels are of whole couplings, all chains together.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from math import log
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.corpora import Part
from metalforge.conductor.curves import scaled_coupling, transition_curve, transition_of
from metalforge.conductor.features import LARGEST, SCHEMA, SWEEPS, ChainContext, FrameMaker
from metalforge.conductor.shipped import PEAK
from metalforge.core.advice import ExpectedPeak
from metalforge.core.rows import PHASES
from metalforge.statistics.gamma import pooled_tau

from .corpus import ChainEntry, ChainRecord, Corpus, Dims, Place

_TABLES = tomllib.loads(files("metalforge.conductor").joinpath("data/layouts.toml").read_text("utf-8"))
_HEADS = [head for heads in _TABLES.values() for head in heads]
LABEL_OF: dict[str, str] = {head["name"]: head["like"] for head in _HEADS if "like" in head and "label" not in head}
"""The head whose label another shares."""
TRAJECTORIES = {head["name"] for head in _HEADS if head.get("on") == "trajectories"}
"""Heads that are trained and tested on trajectories; all others are on sweeps."""


def label_of(head: str) -> str:
    """Return the name of a head's label: its own, or that of the head it shares one with."""
    return LABEL_OF.get(head, head)


Doubles: TypeAlias = NDArray[np.float64]
WINDOW: Mapping[str, int] = {"heatbath": SWEEPS, "hmc": 5}
STAYS: Mapping[str, int] = {"heatbath": 4 * SWEEPS, "hmc": 25}
"""Updates that are averaged, and for how many such averages stay in the band."""
BAND = 3.0
AGREES = 4.0
COVERS = 1.96
ONCE = "flip"
"""How the names of faults begin that happen at one update; others go on."""
NEAR = 2.0
"""Distance |x| from the transition up to which a chain says where the peak is."""
WARMING, SETTLED, RELAXED = 400, 64, 160
"""Updates up to which a chain may warm up, from which on equilibrium is asked about, and faults are looked for."""


class Moments(NamedTuple):
    """Mean of an observable in equilibrium, its error, and the deviation of averages over a window."""

    mean: float
    error: float
    spread: float


class Equilibrium(NamedTuple):
    """What all chains of a coupling say together; `tau` by the length of their trajectories."""

    agrees: bool
    plaquette: Moments
    loop: Moments
    variance: float
    variance_error: float
    rows: int
    tau: Mapping[float, float]


def equilibrium(chains: Sequence[ChainRecord]) -> Equilibrium:
    """Return the equilibrium of chains of one coupling, from their later halves."""
    window = WINDOW[chains[0].entry.algorithm]
    plaquette, p_agrees = _moments(chains, [_later(chain.column("plaquette")) for chain in chains], window)
    loops = [_later(chain.loop) for chain in chains]
    loop, l_agrees = _moments(chains, loops, window)
    squares = [(x - loop.mean) ** 2 for x in loops]
    every = np.concatenate(squares)
    lengths = sorted({chain.entry.length for chain in chains})
    alike = {at: [x for x, c in zip(loops, chains, strict=True) if c.entry.length == at] for at in lengths}
    return Equilibrium(
        agrees=p_agrees and l_agrees,
        plaquette=plaquette,
        loop=loop,
        variance=float(every.mean()),
        variance_error=float(np.sqrt(every.var() * 2 * _tau(squares) / every.size)),
        rows=every.size,
        tau={at: _tau(series) for at, series in alike.items()},
    )


def _later(series: Doubles) -> Doubles:
    return series[len(series) // 2 :]


def _tau(series: Sequence[Doubles]) -> float:
    return float(pooled_tau(np.zeros(len(series)), list(series), 0.0)[0])


def _moments(chains: Sequence[ChainRecord], series: Sequence[Doubles], window: int) -> tuple[Moments, bool]:
    """Return the moments of all series together, and whether hot and cold ones agree."""
    tau, every = _tau(series), np.concatenate(series)
    variance = float(every.var())
    averages = [x[: len(x) // window * window].reshape(-1, window).mean(axis=1) for x in series]
    means, errors = [], []
    for start in ("hot", "cold"):
        some = [x for x, c in zip(series, chains, strict=True) if c.entry.start == start]
        if some:
            means.append(float(np.concatenate(some).mean()))
            errors.append(2 * tau * variance / sum(map(len, some)))
    agrees = len(means) < 2 or abs(means[0] - means[1]) < AGREES * np.sqrt(sum(errors))
    found = Moments(
        float(every.mean()), float(np.sqrt(2 * tau * variance / every.size)), float(np.concatenate(averages).std())
    )
    return found, bool(agrees)


def first_inside(series: Sequence[Doubles], bands: Sequence[Moments], window: int, stays: int) -> int | None:
    """Return the first update from which averages over the next `window` stay in all bands for `stays` updates."""
    inside = np.ones(len(series[0]) - window + 1, bool)
    for x, band in zip(series, bands, strict=True):
        averages = np.convolve(x, np.full(window, 1 / window), mode="valid")
        inside &= np.abs(averages - band.mean) <= BAND * band.spread
    if len(inside) < stays:
        return None
    staying = np.convolve(inside, np.ones(stays), mode="valid") > stays - 0.5
    return int(np.argmax(staying)) if staying.any() else None


class Labeller:
    """Makes labels of a corpus's chains; `peaks` are the couplings of the largest susceptibility, by lattice."""

    def __init__(self, corpus: Corpus, peaks: Mapping[tuple[Dims, float], float] | None = None) -> None:
        self.peaks = dict(peaks or {})
        self.chains: dict[Place, list[ChainRecord]] = {}
        for chain in corpus.records:
            if not chain.entry.fault:
                self.chains.setdefault(chain.entry.place, []).append(chain)
        self.equilibria = {place: equilibrium(chains) for place, chains in self.chains.items()}
        self._lengths: dict[object, int | None] = {}

    def length(self, chain: ChainRecord) -> int | None:
        """Return the first update from which a chain stays in its bands; None where it never does, or none is known."""
        name, found, kind = chain.entry.name, self.known(chain.entry), chain.entry.algorithm
        if found is None:
            return None
        if name not in self._lengths:
            seen, bands = (chain.column("plaquette"), chain.loop), (found.plaquette, found.loop)
            self._lengths[name] = first_inside(seen, bands, WINDOW[kind], STAYS[kind])
        return self._lengths[name]

    def known(self, entry: ChainEntry) -> Equilibrium | None:
        """Return the equilibrium of a chain, where it is known."""
        found = self.equilibria.get(entry.place)
        return found if found is not None and found.agrees else None

    def _scan(self, entry: ChainEntry) -> dict[Place, Equilibrium]:
        """Return the equilibria of a chain's lattice, mass and algorithm."""
        dims, mass, _, algorithm = entry.place
        return {p: e for p, e in self.equilibria.items() if (p[0], p[1], p[3]) == (dims, mass, algorithm)}

    def cut(self, entry: ChainEntry) -> float:
        """Return the midpoint of <|L|> at the outermost training couplings of a chain's lattice."""
        loops = {
            place[2]: found.loop.mean
            for place, found in self._scan(entry).items()
            if any(chain.entry.part == "train" for chain in self.chains[place])
        }
        return (loops[min(loops)] + loops[max(loops)]) / 2 if loops else float("nan")

    def unsure(self, entry: ChainEntry) -> float:
        """Return the error of the susceptibility at a chain's coupling over the largest of its lattice."""
        return self.equilibria[entry.place].variance_error / max(e.variance_error for e in self._scan(entry).values())

    def steps(self, entry: ChainEntry) -> dict[float, float]:
        """Return the steps of a trajectory at a coupling as they were tuned, by its length."""
        found: dict[float, list[float]] = {}
        for chain in self.chains[entry.place]:
            found.setdefault(chain.entry.length, []).append(chain.column("n_steps")[-1])
        return {length: float(np.median(steps)) for length, steps in found.items()}

    def unknown_equilibria(self) -> tuple[str, ...]:
        """Return the couplings whose hot and cold chains do not agree."""
        places = [place for place, found in self.equilibria.items() if not found.agrees]
        return tuple(f"{'x'.join(map(str, dims))} at {beta:g}" for dims, _, beta, _ in places)


class Labelled(NamedTuple):
    """A chain with the last rows of its frames, and what labels are made from besides."""

    labeller: Labeller
    chain: ChainRecord
    rows: NDArray[np.int64]

    @property
    def entry(self) -> ChainEntry:
        """What the chain is."""
        return self.chain.entry

    @property
    def known(self) -> Equilibrium | None:
        """Its equilibrium, where that is known."""
        return self.labeller.known(self.entry)

    def settled(self, value: float | None) -> Doubles | None:
        """Return a number of the coupling for every frame from `SETTLED` on."""
        return None if value is None else np.where(self.rows >= SETTLED - 1, value, np.nan)


def _thermalised(seen: Labelled) -> Doubles | None:
    if seen.known is None:
        return None
    length = seen.labeller.length(seen.chain)
    reached = seen.rows + 1 >= (np.inf if length is None else length)
    return np.where(seen.rows < WARMING, reached.astype(np.float64), np.nan)


def _phase(seen: Labelled) -> float | None:
    found = seen.known
    return None if found is None else float(found.loop.mean > seen.labeller.cut(seen.entry))


def _anomaly(seen: Labelled) -> Doubles | None:
    entry = seen.entry
    if entry.algorithm != "heatbath":
        return None
    first = seen.rows - SWEEPS + 1
    label = np.where(first < RELAXED, np.nan, 0.0)
    if entry.fault:
        lasts = 1 if entry.fault.startswith(ONCE) else entry.fault_length
        at_work = (seen.rows >= entry.fault_from) & (first < entry.fault_from + lasts)
        # What a fault leaves behind is neither.
        label = np.where(at_work, 1.0, np.where(seen.rows >= entry.fault_from, np.nan, label))
    return label


def _peak(seen: Labelled) -> Doubles | None:
    at = seen.labeller.peaks.get(seen.entry.lattice)
    if at is None or seen.entry.flavors:
        return None
    transition = transition_of(seen.entry.dims[3], seen.entry.dims[0])
    return seen.settled((at - transition.mean) / transition_curve().unit)


def _samples(seen: Labelled, forces: float) -> Doubles | None:
    found = seen.known
    return None if found is None else seen.settled(-log(2 * found.tau[seen.entry.length] * forces))


def _rejected(seen: Labelled) -> Doubles | None:
    entry = seen.entry
    if entry.algorithm != "hmc":
        return None
    rejected, steps = 1 - seen.chain.column("accepted"), seen.chain.column("n_steps")
    untested = entry.quenched + (entry.warmup - entry.quenched) // 3
    # A trajectory after which the steps were changed is not one of those that follow, and says nothing of them.
    counts = (np.arange(len(rejected)) >= untested) & (steps == np.append(steps[1:], steps[-1]))
    return np.where(counts, rejected, np.nan)[seen.rows]


def _order(seen: Labelled) -> float | None:
    return None if seen.known is None else log(seen.known.loop.mean * seen.entry.dims[0] ** 1.5)


def _quenched_length(seen: Labelled) -> Doubles | None:
    entry, labeller = seen.entry, seen.labeller
    if entry.algorithm != "heatbath":
        return None
    alike = [c for c in labeller.chains.get(entry.place, []) if c.entry.start == entry.start]
    lengths = [length for c in alike if (length := labeller.length(c)) is not None]
    # One number per coupling and start, asked before there is more than a first frame.
    return np.where(np.arange(len(seen.rows)) == 0, log(1 + float(np.mean(lengths))), np.nan) if lengths else None


def _quality(seen: Labelled) -> Doubles | None:
    # Two force evaluations per step; 1 for an update of sweeps.
    entry = seen.entry
    return _samples(seen, 2 * seen.labeller.steps(entry)[entry.length] if entry.algorithm == "hmc" else 1.0)


def _best_step(seen: Labelled) -> float | None:
    """Return the step size with the most effective samples per force evaluation, of those run at a coupling."""
    if seen.entry.algorithm != "hmc" or (found := seen.known) is None:
        return None
    steps = seen.labeller.steps(seen.entry)
    best = max(sorted(steps), key=lambda length: 1 / (found.tau[length] * steps[length]))
    return float(np.log(best / steps[best]))


LABELS: dict[str, Callable[[Labelled], Doubles | float | None]] = {
    "thermalization": _thermalised,
    "phase": _phase,
    "anomaly": _anomaly,
    PEAK: _peak,
    "cg_estimate": lambda seen: seen.chain.column("cg_iterations")[seen.rows] if seen.entry.flavors else None,
    "rejection": _rejected,
    "quality": _quality,
    "schedule": lambda seen: None if (samples := _samples(seen, 1.0)) is None else -samples,
    "deconfinement": _order,
    "param_suggest": _best_step,
    "next_run": lambda seen: seen.settled(seen.labeller.unsure(seen.entry)),
    "quenched_length": _quenched_length,
}
"""Every label by its head: one number per frame, one for all, or None.

Heads of gpu-prep-11 that share one with conductor-11 are in `LABEL_OF`."""
OF_FAULTS = ("anomaly",)
"""Labels that chains with a fault have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """One chain: what its frames are (frames, features), the update each ends with, and labels by name (frames,)."""

    chain: ChainRecord
    rows: NDArray[np.int64]
    inputs: Doubles
    labels: Mapping[str, Doubles] = field(default_factory=dict)
    ambiguous: bool = False
    """Whether its coupling is of neither phase."""

    @property
    def entry(self) -> ChainEntry:
        """What the chain is."""
        return self.chain.entry


def context_of(entry: ChainEntry) -> ChainContext:
    """Return what is fixed for a chain, as features see it."""
    return ChainContext(
        beta=entry.beta,
        dims=entry.dims,
        mass=entry.mass,
        flavors=entry.flavors,
        algorithm=entry.algorithm,
        start=entry.start,
        tau=entry.length,
    )


def frames_of(chain: ChainRecord) -> tuple[NDArray[np.int64], Doubles]:
    """Return the frames of a chain in order: the update each ends with, and the network's inputs."""
    entry, columns = chain.entry, chain.columns
    maker = FrameMaker(context_of(entry))
    whole = np.isfinite(columns["plaquette"])
    end = len(whole) if whole.all() else int(np.argmin(whole))
    cuts = [0, min(entry.quenched, end), min(entry.warmup, end), end]
    made = [
        maker.push(phase, {name: column[begin:stop].tolist() for name, column in columns.items()})
        for phase, begin, stop in zip(PHASES, cuts[:-1], cuts[1:], strict=True)
        if stop > begin
    ]
    return np.concatenate([frames.rows for frames in made]), np.concatenate([frames.values for frames in made])


def examples(corpus: Corpus, part: Part, labeller: Labeller | None = None) -> list[Example]:
    """Return the chains of one part as examples."""
    labeller = labeller or Labeller(corpus)
    return [_example(chain, labeller) for chain in corpus.part(part)]


def _example(chain: ChainRecord, labeller: Labeller) -> Example:
    rows, inputs = frames_of(chain)
    seen = Labelled(labeller, chain, rows)
    made = {name: LABELS[name](seen) for name in (OF_FAULTS if chain.entry.fault else LABELS)}
    found = seen.known
    # The interval of the loop covers the cut between the phases.
    unclear = found is not None and abs(found.loop.mean - labeller.cut(chain.entry)) < COVERS * found.loop.error
    return Example(
        chain=chain,
        rows=rows,
        inputs=inputs,
        labels={k: np.broadcast_to(np.float64(v), rows.shape).copy() for k, v in made.items() if v is not None},
        ambiguous=unclear,
    )


def supposing(example: Example, transition: ExpectedPeak, label: float) -> Example:
    """Return the chain as it looks where the transition is supposed to be elsewhere, with the label of the peak."""
    beta, inputs = example.entry.beta, example.inputs.copy()
    for i, feature in enumerate(SCHEMA.features):
        if feature.name in ("x", "distance"):
            value = scaled_coupling(beta, transition) if feature.name == "x" else beta - transition.mean
            inputs[:, i] = np.clip((value - feature.offset) / feature.scale, -LARGEST, LARGEST)
    near = abs(scaled_coupling(beta, transition)) <= NEAR
    settled = np.where((example.rows >= SETTLED - 1) & near, label, np.nan)
    return replace(example, inputs=inputs, labels={PEAK: settled})


def jittered(given: Iterable[Example], *, unit: float, copies: int = 1, seed: int = 21) -> list[Example]:
    """Return chains with a known peak as they look from a transition that is off by `unit`, each time otherwise."""
    rng, found = np.random.default_rng(seed), []
    for example in given:
        known = example.labels.get(PEAK)
        if known is None:
            continue
        dims = example.entry.dims
        there = transition_of(dims[3], dims[0])
        peak = there.mean + transition_curve().unit * float(known[-1])
        for _ in range(copies):
            off = float(rng.standard_normal())
            found.append(supposing(example, there._replace(mean=peak - off * unit), off))
    return found
