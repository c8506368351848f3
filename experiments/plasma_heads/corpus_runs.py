"""Runs of the plasma for a corpus, on cores or on a GPU.

A run warms up in a bath for a fixed time, and is followed at constant energy. Its window is looked at every
0.2 / omega_p, particle by particle; beyond it only sums are kept, and where particles are at the end of every block,
of which displacements over 40 to 100 / omega_p are made. On a GPU all runs of one kappa, size and time step move
together; on cores each goes alone, in so many processes.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np

from experiments.protocol import in_processes
from metalforge.conductor.plasma.frames import FRAME_TIME, Looks
from metalforge.core.arrays import Doubles
from metalforge.native import default_threads
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.engine import BatchEngine, Engine, Motion, ParticleSamples
from metalforge.plasma.box import Asked, LostParticleError, Rooms, begin
from metalforge.plasma.correlations import Correlations
from metalforge.plasma.observables import STRESSES, series_of
from metalforge.plasma.spec import PlasmaSpec
from metalforge.plasma.transport import stress_bins, stress_power
from metalforge.plasma.warmup import FRICTION

from .corpus import PlasmaEntry, PlasmaRecord, rounded

EARLY, LATE = 4, 10
"""Blocks between which displacements are diffusion: 40 and 100 / omega_p."""


def record_plasma(
    entries: Sequence[PlasmaEntry], *, engine: Engine | None = None, workers: int = 1
) -> Iterator[PlasmaRecord]:
    """Run these; they come in order of kappa, size and time step, otherwise as given."""

    def together(entry: PlasmaEntry) -> tuple[Any, ...]:
        return (
            entry.kappa,
            entry.particles,
            entry.precision,
            entry.spec.sample_steps,
            entry.time,
            entry.window,
            entry.warmup,
        )

    many = isinstance(engine, BatchEngine)
    for _, group in groupby(sorted(entries, key=together), together):
        if engine is not None and many:
            yield from _runs(list(group), engine)
        else:
            yield from in_processes(_alone, group, workers)


def _alone(entry: PlasmaEntry) -> PlasmaRecord:
    return _runs([entry], cpu_engine(threads=1))[0]


class _Replicas:
    """Particles of several runs that move by the same number of steps, in one batch; none may be lost."""

    def __init__(self, specs: Sequence[PlasmaSpec], engine: Engine) -> None:
        self.particles = [begin(spec) for spec in specs]
        self._rooms = Rooms(specs[0], engine, len(specs))

    def advance(
        self, motions: Sequence[Motion], steps: int, *, samples: int = 0, frames: int = 0
    ) -> list[ParticleSamples]:
        found = []
        asked = [Asked(motion, steps, samples, frames) for motion in motions]
        for its in self._rooms.advance(self.particles, asked):
            if isinstance(its, LostParticleError):
                raise its
            found.append(its)
        return found


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
    replicas, following = _Replicas(specs, engine), [_Following(entry) for entry in entries]
    bath, free = [spec.langevin(FRICTION) for spec in specs], [spec.nve for spec in specs]
    for _ in range(round(entries[0].warmup / first.block_time)):
        replicas.advance(bath, first.block_steps)
    for still in replicas.particles:
        still.stop_drifting()
    samples = first.block_steps // first.sample_steps
    watched = round(entries[0].window / first.block_time)
    with ThreadPoolExecutor(default_threads() if len(entries) > 1 else 1) as pool:
        taken: list[Future[None]] = []
        for block in range(round(entries[0].time / first.block_time)):
            frames = round(first.block_time / FRAME_TIME) if block < watched else 0
            seen = replicas.advance(free, first.block_steps, samples=samples, frames=frames)
            # What a block gave is taken up while the next one is on its way.
            for job in taken:
                job.result()
            taken = [
                pool.submit(run.take, its, one.unwrapped, one.velocities)
                for run, its, one in zip(following, seen, replicas.particles, strict=True)
            ]
        for job in taken:
            job.result()
        return list(pool.map(_Following.record, following))
