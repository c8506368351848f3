r"""Runs of the plasma for a corpus: their grids, how they are recorded, and the file that holds them.

A run warms up in a bath for a fixed time, and is followed at constant energy. Its window is looked at every
0.2 / omega_p, particle by particle; beyond it only sums are kept, and where particles are at the end of every block,
of which displacements over 40 to 100 / omega_p are made. On a GPU all runs of one kappa, size and time step move
together; on cores each goes alone, in so many processes. A file has `/runs/N` with (`corpora` has the rest)

    window      float32 (COLUMNS, frames): the first part of run N
    segments    float64 (segments, 2 + bins): temperature, D_N of displacements, power of the stress
    shuffled    as `window`, of the same frames in a random order: a control, which some runs have

Sums over particles are kept as float32, all else rounded to 12 bits, far below its noise.

Grids are in `grids.toml`, by name. State points that train and those that test are disjoint, and the two parts have
seeds of their own. All runs of a grid have boxes of one size where kappa is to stay hidden: a box that is as small as
its kappa allows would tell it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from experiments.corpora import PARTS, Floats, Part, RecordedCorpus
from experiments.protocol import in_processes
from metalforge.conductor.plasma import COLUMNS, ENERGIES, FRAME_TIME, Looks
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError, find
from metalforge.native import default_threads
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.engine import BatchEngine, Engine, Motion, ParticleSamples, Precision
from metalforge.plasma.box import Asked, LostParticleError, Rooms, begin
from metalforge.plasma.observables import STRESSES, series_of
from metalforge.plasma.references import melting_gamma
from metalforge.plasma.spec import PlasmaSpec
from metalforge.plasma.transport import Correlations, Transport, TransportSegment, stress_bins, stress_power, transport
from metalforge.plasma.warmup import FRICTION

BITS = 12
"""Of the mantissa of columns that are not sums over all particles."""


class PlasmaEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Describes one run: a state point, a box, a stream, and its times in 1 / omega_p."""

    part: Part
    gamma: float
    kappa: float
    particles: int
    seed: int
    stream: int
    warmup: float
    window: float
    """What heads see, the first part of `time`."""
    time: float
    precision: Precision = "f64"
    """Of pair forces; all else is in doubles."""
    shuffled: bool = False
    """Whether the window is kept with its frames in a random order, too."""

    @property
    def spec(self) -> PlasmaSpec:
        """The run's own."""
        return PlasmaSpec(
            gamma=self.gamma,
            kappa=self.kappa,
            particles=self.particles,
            seed=self.seed,
            stream=self.stream,
            precision=self.precision,
        )

    @property
    def place(self) -> tuple[float, float]:
        """The state point, the cluster that it is drawn with: kappa and Gamma."""
        return self.kappa, self.gamma

    @property
    def name(self) -> tuple[object, ...]:
        """Identifies the run in a corpus."""
        return self.place, self.particles, self.seed, self.stream

    @property
    def label(self) -> str:
        """It in words."""
        return f"Gamma {self.gamma:g} at kappa {self.kappa:g}"

    @property
    def file(self) -> str:
        """The end of the name of its file."""
        return f"kappa{self.kappa:g}"

    @property
    def work(self) -> float:
        """Its atom-steps."""
        return self.particles * self.time / self.spec.step_time

    @property
    def ratio(self) -> float:
        """Gamma / Gamma_m."""
        return self.gamma / melting_gamma(self.kappa)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaRecord:
    """One run: its window, and what each segment of the whole run left."""

    entry: PlasmaEntry
    window: Floats
    segments: Doubles
    shuffled: Floats | None = None
    peers: list["PlasmaRecord"] = field(default_factory=list, repr=False)
    """All runs of its state point and size, itself too: a corpus fills it in."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return window, segments and the shuffled window, where there is one, as files have them."""
        named = {"window": self.window.astype("<f4"), "segments": self.segments.astype("<f8")}
        return named if self.shuffled is None else named | {"shuffled": self.shuffled.astype("<f4")}

    @classmethod
    def read(cls, entry: PlasmaEntry, arrays: Mapping[str, NDArray[Any]]) -> "PlasmaRecord":
        """Return a run from what a file has of it."""
        window, segments, shuffled = (arrays.get(name) for name in ("window", "segments", "shuffled"))
        if window is None or segments is None or window.shape[:1] != (len(COLUMNS),) or segments.ndim != 2:
            raise SpecError(f"the run of stream {entry.stream} has no window of {len(COLUMNS)} columns, or no segments")
        return cls(entry=entry, window=window, segments=segments, shuffled=shuffled)

    def column(self, name: str) -> Doubles:
        """Return one column of the window."""
        return np.asarray(self.window[COLUMNS.index(name)], np.float64)

    @property
    def kept(self) -> list[TransportSegment]:
        """The segments, from the first on. Velocities were not followed beyond the window: that estimate is missing."""
        spec = self.entry.spec
        time = spec.segment_blocks * spec.block_time
        return [
            TransportSegment(
                time=time,
                temperature=float(row[0]),
                diffusion_msd=float(row[1]),
                diffusion_vacf=float("nan"),
                stress_power=tuple(row[2:].tolist()),
            )
            for row in self.segments
        ]

    @cached_property
    def found(self) -> Transport:
        """Transport coefficients of the whole run, with errors."""
        return transport(self.entry.spec, [self.kept])

    @cached_property
    def found_together(self) -> Transport:
        """Transport coefficients of all runs of the state point together, with errors."""
        runs = self.peers or [self]
        return runs[0].found_together if runs[0] is not self else transport(self.entry.spec, [r.kept for r in runs])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaCorpus(RecordedCorpus[PlasmaRecord]):
    """Runs; those of a state point, size and part are made known to each other."""

    FORMAT = ("metalforge-plasma-corpus", "1")
    RECORDS = "runs"
    RECORD, ENTRY = PlasmaRecord, PlasmaEntry

    def __post_init__(self) -> None:
        together: dict[object, list[PlasmaRecord]] = {}
        for run in self.records:
            together.setdefault((run.entry.place, run.entry.particles, run.entry.part), []).append(run)
        for runs in together.values():
            for run in runs:
                run.peers[:] = runs


def rounded(columns: Doubles) -> Floats:
    """Return columns as files keep them."""
    kept = np.asarray(columns, np.float32).copy()
    rest = kept[len(ENERGIES) :]
    mantissa, exponent = np.frexp(rest)
    kept[len(ENERGIES) :] = np.ldexp(np.round(mantissa * (1 << BITS)) / (1 << BITS), exponent)
    return kept


WINDOW = 0.05
"""The part of a run that heads see."""


class PlasmaGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs at one kappa; couplings are given as Gamma / Gamma_m."""

    kappa: float
    particles: int
    train: tuple[float, ...]
    test: tuple[float, ...]
    time: float
    warmup: float = 100.0
    replicas: int = 4
    precision: Precision = "f64"
    """Of pair forces."""

    def __post_init__(self) -> None:
        if set(self.train) & set(self.test) or not self.train or not self.test:
            raise SpecError(f"a grid wants couplings to train and others to test. Got {self.train} and {self.test}")


PLASMA_GRIDS = msgspec.toml.decode(
    files(__package__).joinpath("grids.toml").read_bytes(),
    type=dict[str, tuple[PlasmaGrid, ...]],
)


def plasma_entries(grid: str, seed: int = 2026, part: str = "all") -> list[PlasmaEntry]:
    """Return the runs of a part of a grid by their kappa, those of few pairs first.

    Each has a stream that does not depend on what is asked for.
    """
    runs = [
        (one, of, ratio, replica)
        for one in find("grid of plasma runs", grid, PLASMA_GRIDS)
        for of in PARTS
        for ratio in (one.train if of == "train" else one.test)
        for replica in range(one.replicas)
    ]
    entries = [
        PlasmaEntry(
            part=of,
            gamma=float(f"{ratio * melting_gamma(one.kappa):.4g}"),
            kappa=one.kappa,
            particles=one.particles,
            seed=seed + PARTS.index(of),
            stream=stream,
            warmup=one.warmup,
            precision=one.precision,
            window=WINDOW * one.time,
            time=one.time,
            shuffled=of == "test" and replica == 0,
        )
        for stream, (one, of, ratio, replica) in enumerate(runs)
        if part in (of, "all")
    ]
    return sorted(entries, key=lambda entry: -entry.kappa)


EARLY, LATE = 4, 10
"""Blocks between which displacements are diffusion: 40 and 100 / omega_p."""


def record_plasma(
    entries: Sequence[PlasmaEntry], *, engine: Engine | None = None, workers: int = 1
) -> Iterator[PlasmaRecord]:
    """Run these; they come in order of kappa, size and time step, otherwise as given."""

    def together(e: PlasmaEntry) -> tuple[Any, ...]:
        return e.kappa, e.particles, e.precision, e.spec.sample_steps, e.time, e.window, e.warmup

    many = isinstance(engine, BatchEngine)
    for _, group in groupby(sorted(entries, key=together), together):
        if engine is not None and many:
            yield from _runs(list(group), engine)
        else:
            yield from in_processes(_alone, group, workers)


def _alone(entry: PlasmaEntry) -> PlasmaRecord:
    return _runs([entry], cpu_engine(threads=1))[0]


class _Following:
    """One run as it goes: its window, and what its segments leave."""

    def __init__(self, entry: PlasmaEntry) -> None:
        self.entry, self.spec = entry, entry.spec
        self._looks = Looks(self.spec)
        self._window: list[Doubles] = []
        self._raw: list[tuple[dict[str, Doubles], Doubles, Doubles]] = []
        """What is needed to put frames in another order."""
        self._far = Correlations(self.spec.particles, segment=self.spec.segment_blocks, origins=LATE + 1, spacing=1)
        self._temperature: list[Doubles] = []
        self._stress: list[Doubles] = []

    def take(self, seen: ParticleSamples, positions: Doubles, velocities: Doubles) -> None:
        """Take a block and where particles are at its end; it belongs to the window where it has frames."""
        series = series_of(self.spec, seen.sums, 0.0)
        self._temperature.append(2 * series["kinetic"] / (3 * self.spec.particles - 3))
        self._stress.append(np.array([series[f"stress_{name}"] for name in STRESSES]))
        self._far.add(positions[None], velocities[None])
        if len(seen.positions):
            self._window.append(self._looks.take(series, seen.positions, seen.velocities))
            if self.entry.shuffled:
                # Copies: a view would keep the frames of all replicas.
                self._raw.append((series, seen.positions.copy(), seen.velocities.copy()))

    def record(self) -> PlasmaRecord:
        """Return the run."""
        shuffled = rounded(self._in_another_order()) if self.entry.shuffled else None
        window = rounded(np.concatenate(self._window, axis=1))
        return PlasmaRecord(entry=self.entry, window=window, segments=self._segments(), shuffled=shuffled)

    def _in_another_order(self) -> Doubles:
        """Return the columns of the window with its frames in a random order, lags and all."""
        series = {name: np.concatenate([one[name] for one, _, _ in self._raw]) for name in self._raw[0][0]}
        positions, velocities = (np.concatenate([one[k] for one in self._raw]) for k in (1, 2))
        order = np.random.default_rng([self.entry.seed, self.entry.stream]).permutation(len(positions))
        mixed = {name: column.reshape(len(order), -1)[order].ravel() for name, column in series.items()}
        return Looks(self.spec).take(mixed, positions[order], velocities[order])

    def _segments(self) -> Doubles:
        spec = self.spec
        gone, _, counts = self._far.segments()
        time = spec.segment_blocks * spec.block_time
        bins = stress_bins(spec.kappa, time)
        rows = []
        for i in range(len(self._stress) // spec.segment_blocks):
            blocks = slice(i * spec.segment_blocks, (i + 1) * spec.segment_blocks)
            mean = gone[i] / counts[i]
            diffusion = (mean[LATE] - mean[EARLY]) / (6 * (LATE - EARLY) * spec.block_time)
            stress = np.concatenate(self._stress[blocks], axis=1)
            power = stress_power(stress, spec.sample_time, spec.length**3, bins)
            rows.append([np.concatenate(self._temperature[blocks]).mean(), diffusion, *power])
        return np.array(rows)


def _runs(entries: Sequence[PlasmaEntry], engine: Engine) -> list[PlasmaRecord]:
    """Run entries of one kappa, size, time step and length together."""
    specs = [entry.spec for entry in entries]
    first = specs[0]
    particles, following = [begin(spec) for spec in specs], [_Following(entry) for entry in entries]
    rooms = Rooms(first, engine, len(specs))

    def advance(motions: Sequence[Motion], samples: int = 0, frames: int = 0) -> list[ParticleSamples]:
        """Move all by a block; none may be lost."""
        found = []
        for its in rooms.advance(particles, [Asked(motion, first.block_steps, samples, frames) for motion in motions]):
            if isinstance(its, LostParticleError):
                raise its
            found.append(its)
        return found

    bath, free = [spec.langevin(FRICTION) for spec in specs], [spec.nve for spec in specs]
    for _ in range(round(entries[0].warmup / first.block_time)):
        advance(bath)
    for still in particles:
        still.stop_drifting()
    samples = first.block_steps // first.sample_steps
    watched = round(entries[0].window / first.block_time)
    with ThreadPoolExecutor(default_threads() if len(entries) > 1 else 1) as pool:
        taken: list[Future[None]] = []
        for block in range(round(entries[0].time / first.block_time)):
            frames = round(first.block_time / FRAME_TIME) if block < watched else 0
            seen = advance(free, samples, frames)
            # What a block gave is taken up while the next one is on its way.
            for job in taken:
                job.result()
            taken = [
                pool.submit(run.take, its, one.unwrapped, one.velocities)
                for run, its, one in zip(following, seen, particles, strict=True)
            ]
        for job in taken:
            job.result()
        return list(pool.map(_Following.record, following))
