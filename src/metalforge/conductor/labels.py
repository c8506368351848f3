"""What every head should say of a chain, from measurement only: never from a known transition or an earlier decision.

- thermalised: from the first trajectory on from which the Wilson loop, averaged over the next `WINDOW`, stays in the
  band of the long runs at the same coupling for `STAYS` trajectories. The band is mean +- `BAND` deviations of single
  configurations: the deviation of averages would depend on the algorithm. Where the hot and the cold long run do not
  agree there is no band, and no label.
- phase: the Polyakov loop of the equilibrated chain, above or below the cut, which is the midpoint of <|L|> of two
  couplings far on either side. A chain whose interval covers the cut is ambiguous and scored apart.
- rejection: the outcome of the Metropolis test. CG: iterations a solve of the trajectory. Anomaly: an injected fault.
- quality: effective samples of the equilibrated chain a second of processor time; schedule: twice its tau_int.
- beta_priority: the susceptibility of the long runs over the largest of the scan; next_run: the error of that
  susceptibility over the largest of the scan, since another run as long takes the same share off any of them.
- param_suggest: the step size, of those that were run at the coupling, with the most effective samples an integration
  step. Steps that leave a chain outside its band have none.

`LABELS` says how each is made and of which columns; the tests hold those against the features that a head sees. Labels
are NaN where they are not defined; a chain with a fault has those of anomaly only.

`examples` are chains as a network sees them: frames (trajectories, features) with labels, split by chain. Frames are
those of `features`, the same as when the conductor runs; what earlier runs found comes from the long runs at other
training couplings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from metalforge.statistics import Estimate, gamma_method, hot_cold_agreement

from .chains import ChainEntry, ChainRecord, Corpus, Doubles, Part, Reference
from .corpus_spec import CorpusSpec
from .features import ChainContext, Frame, FrameBuilder, MetaRow, scaled

WINDOW = 5
BAND = 2.5
STAYS = 25
SHORTEST = 20
"""Trajectories in equilibrium below which nothing is said of autocorrelations."""
COVERS = 1.96


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
    """Return the first index from which averages over the next `window` entries stay in the band, `STAYS` of them.

    What leaves the band after that is a fluctuation of equilibrium, which every long chain has.
    """
    if len(series) < window:
        return None
    averages = np.convolve(series, np.full(window, 1 / window), mode="valid")
    inside = (averages >= band.low) & (averages <= band.high)
    # One window inside at the very end says nothing of staying there.
    wanted = min(STAYS, max(len(inside), window + 1))
    if len(inside) < wanted:
        return None
    staying = np.convolve(inside, np.ones(wanted), mode="valid") > wanted - 0.5
    return int(np.argmax(staying)) if staying.any() else None


class Labeller:
    """Makes the labels of a corpus's chains from its long runs."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._spec = msgspec.json.decode(corpus.spec_json, type=CorpusSpec)
        self.bands = {reference.entry: band_of(reference) for reference in corpus.references}
        self._loops = {r.entry: gamma_method(r.series[:, :, 1].ravel()).mean for r in corpus.references}
        self._spreads = {r.entry: float(r.series[:, :, 1].var()) for r in corpus.references}
        self._unsure = {r.entry: _spread_error(r.series[:, :, 1]) for r in corpus.references}
        self._best_steps: dict[ChainContext, float] = {}

    def cut(self, entry: ChainEntry) -> float:
        """Return the midpoint of <|L|> of the two far couplings of a chain's grid."""
        lattice = entry.place.lattice
        grid = next(g for g in self._spec.grids if (g.dims, g.mass) == lattice)
        alike = {place.beta: loop for place, loop in self._loops.items() if place.lattice == lattice}
        return float(np.mean([alike[beta] for beta in grid.far]))

    def of_scan(self, entry: ChainEntry, what: Literal["spread", "unsure"]) -> float:
        """Return V <(dL)^2> of a chain's long runs, or its error, over the largest of its scan."""
        of = self._spreads if what == "spread" else self._unsure
        scan = [value for place, value in of.items() if place.lattice == entry.place.lattice]
        return of[entry.place] / max(scan)

    def best_step(self, place: ChainContext) -> float:
        """Return the step size of the most effective samples an integration step; NaN where no chain had any."""
        if place not in self._best_steps:
            here: dict[tuple[float, int], list[ChainRecord]] = {}
            for chain in self._corpus.chains:
                if chain.entry.place == place and chain.entry.fault is None:
                    here.setdefault((chain.entry.tau, chain.entry.n_steps), []).append(chain)
            rates = {step: self._samples_a_step(chains) for step, chains in here.items()}
            tau, n_steps = max(rates, key=lambda step: rates[step], default=(1.0, 1))
            found = max(rates.values(), default=0.0) > 0
            self._best_steps[place] = tau / n_steps if found else float("nan")
        return self._best_steps[place]

    def _samples_a_step(self, chains: Sequence[ChainRecord]) -> float:
        """Return effective samples over integration steps, of chains that ran with the same steps."""
        samples = steps = 0.0
        for chain in chains:
            n, start = len(chain.series), self.length(chain)
            rest = chain.column("wilson_loop")[n if start is None else start :]
            moves = len(rest) >= SHORTEST and np.ptp(rest) > 0
            samples += _samples(gamma_method(rest)) if moves else 0.0
            steps += chain.entry.n_steps * (len(rest) if moves else n)
        return samples / steps

    def length(self, chain: ChainRecord) -> int | None:
        """Return the first trajectory from which a chain stays in its band; None without one."""
        band = self.bands[chain.entry.place]
        return None if band is None else first_inside(chain.column("wilson_loop"), band)

    def labels(self, chain: ChainRecord) -> ChainLabels:
        """Return the labels of one chain."""
        seen = Labelled(self, chain)
        values = {name: np.full(len(chain.series), np.nan) for name in LABELS}
        for name, label in LABELS.items():
            if (chain.entry.fault is None or label.of_faults) and (made := label.make(seen)) is not None:
                values[name][:] = made
        return ChainLabels(values=values, length=seen.length, ambiguous=seen.ambiguous)

    def unknown_equilibria(self) -> tuple[float, ...]:
        """Return the couplings whose long runs do not agree."""
        return tuple(sorted({place.beta for place, band in self.bands.items() if band is None}))


class Labelled:
    """A chain, and what labels are made from besides its columns."""

    def __init__(self, labeller: Labeller, chain: ChainRecord) -> None:
        self.labeller, self.chain, self.entry = labeller, chain, chain.entry
        self.updates = len(chain.series)
        self.length = None if chain.entry.fault is not None else labeller.length(chain)
        """The first trajectory from which the chain stays in its band; None where it never does, or has a fault."""

    def equilibrated(self, column: str) -> Estimate | None:
        """Return a column's mean over the equilibrated chain; None where too little of it is."""
        if self.length is None or self.updates - self.length < SHORTEST:
            return None
        return gamma_method(self.chain.column(column)[self.length :])

    @cached_property
    def loop(self) -> Estimate | None:
        """The Polyakov loop in equilibrium."""
        return self.equilibrated("polyakov")

    @cached_property
    def moves(self) -> Estimate | None:
        """The Wilson loop in equilibrium, whose memory is the chain's."""
        return self.equilibrated("wilson_loop")

    @property
    def ambiguous(self) -> bool:
        """Whether the chain is of neither phase: the interval of its loop covers the cut."""
        loop = self.loop
        return loop is not None and abs(loop.mean - self.labeller.cut(self.entry)) < COVERS * loop.error


class Label(NamedTuple):
    """How a label is made: one number a trajectory, one for all, or None; and of which columns of the chain."""

    columns: tuple[str, ...]
    make: Callable[[Labelled], Doubles | float | None]
    of_faults: bool = False
    """Whether chains with a fault have it."""


def _thermalised(seen: Labelled) -> Doubles | None:
    if seen.labeller.bands[seen.entry.place] is None:
        return None
    return np.asarray(np.arange(seen.updates) >= (seen.updates if seen.length is None else seen.length), np.float64)


def _phase(seen: Labelled) -> float | None:
    return None if seen.loop is None else float(seen.loop.mean > seen.labeller.cut(seen.entry))


def _anomaly(seen: Labelled) -> Doubles:
    entry, faulty = seen.entry, seen.chain.faulty
    if entry.fault == "cg_stall":
        # It can be seen when the first slow solves have ended.
        faulty = np.concatenate([[False], faulty[:-1]])
    # Before a chain has relaxed anything looks like a fault; and what a fault leaves behind is neither.
    label = np.where(np.arange(seen.updates) < seen.updates // 4, np.nan, faulty.astype(float))
    if entry.fault is not None:
        label[entry.fault_from + entry.fault_length + 1 :] = np.nan
    return label


def _quality(seen: Labelled) -> float | None:
    if seen.moves is None or seen.length is None:
        return None
    return _samples(seen.moves) / (seen.entry.seconds * (seen.updates - seen.length) / seen.updates)


def _quenched_length(seen: Labelled) -> float | None:
    return None if seen.length is None or seen.entry.flavors else float(seen.length)


LABELS: dict[str, Label] = {
    "thermalization": Label(("wilson_loop",), _thermalised),
    "phase": Label(("polyakov",), _phase),
    "anomaly": Label((), _anomaly, of_faults=True),
    "beta_priority": Label(("polyakov",), lambda seen: seen.labeller.of_scan(seen.entry, "spread")),
    "cg_estimate": Label(("cg_iterations",), lambda seen: seen.chain.column("cg_iterations")),
    "rejection": Label(("accepted",), lambda seen: 1 - seen.chain.column("accepted")),
    "quality": Label(("wilson_loop",), _quality),
    "schedule": Label(("wilson_loop",), lambda seen: None if seen.moves is None else 2 * seen.moves.tau_int),
    "deconfinement": Label(("polyakov",), lambda seen: None if seen.loop is None else seen.loop.mean),
    "param_suggest": Label(("wilson_loop",), lambda seen: seen.labeller.best_step(seen.entry.place)),
    "next_run": Label(("polyakov",), lambda seen: seen.labeller.of_scan(seen.entry, "unsure")),
    "quenched_length": Label(("wilson_loop",), _quenched_length),
}
"""Every label by its head; heads of gpu-prep-11 that share one with conductor-11 are in `layouts.LABEL_OF`."""


def _samples(found: Estimate) -> float:
    """Return the effective number of measurements."""
    return found.n / (2 * found.tau_int)


def _spread_error(loops: Doubles) -> float:
    """Return the error of <(dL)^2> of two runs (2, updates)."""
    hot, cold = (gamma_method((run - loops.mean()) ** 2).error for run in loops)
    return float(np.hypot(hot, cold)) / 2


def band_of(reference: Reference) -> Band | None:
    """Return the band of a long run; None where hot and cold did not meet."""
    loops = reference.series[:, :, 0]
    if not hot_cold_agreement(loops[0], loops[1], k=4.0).agrees:
        return None
    mean, spread = float(loops.mean()), float(loops.std())
    return Band(mean - BAND * spread, mean + BAND * spread)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """One chain: inputs (trajectories, features) and labels."""

    chain: ChainRecord
    inputs: Doubles
    labels: ChainLabels

    @property
    def beta(self) -> float:
        """Its coupling."""
        return self.chain.entry.beta

    @property
    def lattice(self) -> tuple[object, ...]:
        """Extents and mass: what chains of one scan share."""
        return self.chain.entry.place.lattice


def meta_rows(corpus: Corpus, chain: ChainRecord) -> list[MetaRow]:
    """Return what the long runs at other training couplings found on this chain's lattice."""
    here = chain.entry.place
    grid = {c.entry.beta for c in corpus.part("train") if c.entry.place.lattice == here.lattice}
    rows = []
    for place, series in corpus.references:
        if place.lattice == here.lattice and place.beta in grid and place.beta != here.beta:
            volume = float(np.prod(place.dims[:3]))
            rows.append(
                MetaRow(
                    beta=place.beta,
                    plaquette=float(series[:, :, 2].mean()),
                    susceptibility=volume * float(series[:, :, 1].var()),
                )
            )
    return rows


def frames_of(chain: ChainRecord, meta: Sequence[MetaRow] = ()) -> list[Frame]:
    """Return the frames of a chain, in order."""
    builder = FrameBuilder(chain.entry.place, meta)
    return [builder.push(trajectory) for trajectory in chain.trajectories()]


def examples(corpus: Corpus, part: Part) -> list[Example]:
    """Return the chains of one part as examples."""
    labeller = Labeller(corpus)
    found = []
    for chain in corpus.part(part):
        frames = frames_of(chain, meta_rows(corpus, chain))
        inputs = np.stack([scaled(frame) for frame in frames])
        found.append(Example(chain=chain, inputs=inputs, labels=labeller.labels(chain)))
    return found
