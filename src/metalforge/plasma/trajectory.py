r"""A trajectory in segments, with a row each: warm-up in a bath, then NVE; what it leaves are sums that add up.

A row is the mean of what was sampled in a segment of time T, so that D*, eta* and their errors follow from rows alone,
of one trajectory or of many:

    kinetic, phi, potential, virial    of all particles, as in `observables.SERIES`
    energy_rms                         how far the energy was from its mean
    momentum                           |sum v| over what N particles of this temperature have by chance, sqrt(3 N) v_th
    restless                           errors by which the energies of the third and the last quarter differ
    bragg                              the largest |rho_k|^2 / N of a wave vector: some units in a fluid, N in a crystal
    order                              |rho_k| / N of the shortest wave vectors of a bcc crystal along the axes: 0 to 1
    temperature, diffusion_msd, ...    of `TransportSegment`; stress_J is the stress's power at J 2 pi / T

Each segment begins with new lists of neighbours, so its bits follow from where the particles stand: a trajectory that
goes on from a checkpoint gives the bits of one that was never interrupted.
"""

import hashlib
import math
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import permutations, product
from pathlib import Path
from typing import Self, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import (
    ChainFaultError,
    CountedWarmUp,
    Form,
    LoggedRun,
    Measurements,
    Phase,
    Row,
    RowLog,
    RunNotes,
    SpecError,
    naming,
    read_sealed,
)
from metalforge.native import Engine, ParticleSamples, default_threads

from .box import (
    PLACES,
    Asked,
    LostParticleError,
    Particles,
    Rooms,
    begin,
    particles_of,
    places,
    spec_of,
    write_checkpoint,
)
from .observables import WaveVectors, mode_powers, series_of
from .spec import MASS, PlasmaSpec
from .transport import ORIGINS, Correlations, TransportSegment, segment_of, stress_bins
from .two_phase import holding, lower_half, require_stages, stage_of
from .warmup import FRICTION, restlessness

Floats = NDArray[np.float64]
FORM = Form("metalforge-plasma-trajectory", "2")
NOTHING_BESIDES = Measurements()
WAVES = 5.5
"""The largest k that crystals are looked for at: their first peaks are at 4.3 and 5."""
SEEN = ("kinetic", "phi", "potential", "virial", "energy_rms", "momentum", "restless", "bragg", "order")
TRANSPORT = ("temperature", "diffusion_msd", "diffusion_vacf")


def columns_of(kappa: float, time: float) -> tuple[str, ...]:
    """Return the columns of rows whose segments have this length."""
    return (*SEEN, *TRANSPORT, *(f"stress_{bin}" for bin in range(stress_bins(kappa, time))))


def segment_time(spec: PlasmaSpec, wanted: float) -> float:
    """Return how long a segment is: whole blocks, as near to what is wanted as they come; 0 wants the usual."""
    blocks = spec.segment_blocks if wanted == 0 else max(1, round(wanted / spec.block_time))
    return blocks * spec.block_time


def segments_from(columns: Mapping[str, Sequence[float] | Floats], time: float) -> list[TransportSegment]:
    """Return what rows leave for transport."""
    power = [columns[name] for name in columns if name.startswith("stress_")]
    return [
        TransportSegment(
            time=time,
            temperature=float(temperature),
            diffusion_msd=float(by_msd),
            diffusion_vacf=float(by_vacf),
            stress_power=tuple(map(float, values)),
        )
        for temperature, by_msd, by_vacf, *values in zip(*(columns[n] for n in TRANSPORT), *power, strict=True)
    ]


class _TrajectoryNotes(RunNotes[CountedWarmUp], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a checkpoint says beside particles and rows."""

    segment: float
    step: int


_NOTES = msgspec.json.Decoder(_TrajectoryNotes)


class TrajectoryRun(LoggedRun[CountedWarmUp]):
    """A trajectory that moves segment by segment, with its rows in `log`; `particles` continue where others stand.

    `besides` are measured on the particles at the end of segments.
    """

    def __init__(
        self,
        spec: PlasmaSpec,
        segment: float,
        warmup: CountedWarmUp,
        *,
        engine: Engine,
        particles: Particles | None = None,
        fill: float = math.nan,
        besides: Measurements = NOTHING_BESIDES,
    ) -> None:
        self.spec, self.engine = spec, engine
        self.segment = segment_time(spec, segment)
        self.particles = particles or begin(spec)
        self.besides = besides
        columns = (*columns_of(spec.kappa, self.segment), *besides.names)
        super().__init__(warmup, RowLog(columns, fill=fill, held=besides.names))
        crystal, others = bcc_waves(spec), WaveVectors.up_to(WAVES, spec.length)
        self._crystal = len(crystal.lengths)
        integers = np.concatenate([crystal.integers, others.integers])
        self._waves = WaveVectors(integers, np.concatenate([crystal.lengths, others.lengths]))
        self._held = None
        if spec.start == "two-phase":
            require_stages(warmup.total)
            self._held = lower_half(places(spec), spec.length)

    @property
    def kind(self) -> tuple[object, ...]:
        """What trajectories have in common that may move together: couplings, seeds and streams are each one's own."""
        spec = self.spec
        shape = spec.particles, spec.kappa, spec.tol, spec.precision, spec.step_time, self.segment
        return self.engine.name, *shape

    @property
    def blocks(self) -> int:
        """Blocks of a segment, after each of which the structure is looked at."""
        return round(self.segment / self.spec.block_time)

    @cached_property
    def _alone(self) -> "TrajectoryBatch":
        return TrajectoryBatch([self])

    def step(self) -> Row:
        """Follow one segment and return its row; one that fails raises and leaves the run where it was."""
        (row,) = self._alone.step([self])
        if isinstance(row, ChainFaultError):
            raise row
        return row

    def following(self) -> "Following":
        """Follow one segment by asking for one move after the other, and return its row: whoever moves decides where.

        One that fails, or is told of a lost particle, raises and leaves the run where it was.
        """
        spec, phase = self.spec, self.phase
        before = self.particles.copy()
        if phase == "measure" and not self.measured:
            self.particles.stop_drifting()
        sums: list[Floats] = []
        moved = Correlations(spec.particles, segment=self.blocks * spec.block_frames)
        powers, order = np.zeros(len(self._waves.lengths) - self._crystal), 0.0
        try:
            if not (np.isfinite(before.positions).all() and np.isfinite(before.velocities).all()):
                raise ChainFaultError(f"segment {self.log.end} at Gamma {spec.gamma:g} begins with no finite particles")
            for _ in range(self.blocks):
                for seen in (yield from self._block(phase)):
                    sums.append(seen.sums)
                    moved.add(seen.positions, seen.velocities)
                modes = mode_powers(self.particles.positions, spec.length, self._waves)
                powers += modes[self._crystal :] / self.blocks
                order += float(np.sqrt(modes[: self._crystal] / spec.particles).mean()) / self.blocks
            values = self._summed(np.concatenate(sums), moved) | {"bragg": float(powers.max()), "order": order}
            values |= self.besides.of(self.particles, self.log.end, phase)
            if not all(map(math.isfinite, values.values())):
                raise ChainFaultError(f"segment {self.log.end} at Gamma {spec.gamma:g} gave no finite observables")
        except (LostParticleError, ChainFaultError) as error:
            self.particles = before
            raise ChainFaultError(str(error).partition("\n")[0]) from error
        if phase == "warmup":
            self.warmup = msgspec.structs.replace(self.warmup, done=self.warmup.done + 1)
        row = Row(self.log.end, phase, values)
        self.log.add(row)
        return row

    def _block(self, phase: Phase) -> Generator[Asked, ParticleSamples, list[ParticleSamples]]:
        """Ask for the moves of a block: free, in the bath, or by the stage of a two-phase warm-up."""
        spec, motion = self.spec, self.spec.nve
        if phase == "warmup":
            motion = spec.langevin(FRICTION)
            if self._held is not None:
                motion, holds = stage_of(spec, self.warmup.done, self.warmup.total)
                if holds:
                    return (yield from holding(self.particles, self._held, spec, motion))
        samples = spec.block_steps // spec.sample_steps
        return [(yield Asked(motion, spec.block_steps, samples, spec.block_frames))]

    def _summed(self, sums: Floats, moved: Correlations) -> dict[str, float]:
        """Return what a segment is summed up by."""
        spec = self.spec
        series = series_of(spec, sums, 0.0)
        energy = series["kinetic"] + series["potential"]
        values = {name: float(series[name].mean()) for name in ("kinetic", "phi", "potential", "virial")}
        values["energy_rms"] = float(energy.std())
        drift = self.particles.velocities.sum(axis=0)
        # sum of 3 N squares of mean v_th^2 = 2 K / (3 N m)
        thermal = math.sqrt(max(2 * values["kinetic"] / MASS, 1e-300))
        values["momentum"] = float(np.sqrt(drift @ drift)) / thermal
        values["restless"] = restlessness(series["potential"])
        left = segment_of(spec, series, *(added[0] for added in moved.segments()))
        values |= {name: getattr(left, name) for name in TRANSPORT}
        return values | {f"stress_{bin}": power for bin, power in enumerate(left.stress_power)}

    def digest(self) -> str:
        """Identify where the particles are, and where they go."""
        particles = self.particles
        seen = hashlib.sha256(particles.positions.tobytes() + particles.boxes.tobytes())
        seen.update(particles.velocities.tobytes())
        return seen.hexdigest()[:32]

    def save(self, path: Path, *, first: int | None = None) -> None:
        """Write a checkpoint with the rows from `first` on; an old one is replaced whole or not at all."""
        noted, rows = self._noted(first)
        notes = _TrajectoryNotes(segment=self.segment, step=self.particles.step, **noted)
        series = {f"series/{name}": values for name, values in rows.items()}
        write_checkpoint(path, FORM, self.spec, self.engine, self.particles, series, {"notes_json": notes})

    @classmethod
    def load(
        cls, path: Path, *, engine: Engine, fill: float = math.nan, besides: Measurements = NOTHING_BESIDES
    ) -> Self:
        """Return the run of a checkpoint, to be continued on the engine that it was made on."""
        sealed = read_sealed(path, FORM, (*PLACES, "spec_json", "notes_json"))
        with naming(path, "read"):
            if sealed.engine != engine.name:
                raise SpecError(
                    f"was computed on `{sealed.engine}`, here is `{engine.name}`: a trajectory goes on "
                    "bit for bit on its own alone"
                )
            spec, notes = spec_of(sealed), _NOTES.decode(sealed.texts["notes_json"])
            particles = particles_of(sealed, spec, notes.step)
            run = cls(spec, notes.segment, notes.warmup, engine=engine, particles=particles, fill=fill, besides=besides)
        rows = {name.removeprefix("series/"): c for name, c in sealed.arrays.items() if name.startswith("series/")}
        run._take_up(path, notes, rows)
        return run


Following: TypeAlias = Generator[Asked, ParticleSamples, Row]


def _goes_on(following: Following, seen: ParticleSamples | LostParticleError | None) -> Asked | Row | ChainFaultError:
    """Tell a run what was seen of it, and return what it asks for next, or its row, or what failed."""
    try:
        if seen is None:
            return next(following)
        return following.throw(seen) if isinstance(seen, LostParticleError) else following.send(seen)
    except StopIteration as end:
        row: Row = end.value
        return row
    except ChainFaultError as error:
        return error


class TrajectoryBatch:
    """Room of an engine for trajectories of one kind that move in one launch, each with the bits it has alone."""

    def __init__(self, runs: Sequence[TrajectoryRun]) -> None:
        self._rooms = Rooms(runs[0].spec, runs[0].engine, len(runs))

    def step(self, runs: Sequence[TrajectoryRun]) -> list[Row | ChainFaultError]:
        """Follow one segment of each; return its row, or how it failed: then it stays where it was.

        Those move at once that ask for as many steps. What runs see they look at on all cores of this process: that
        takes longer than a card takes to move them.
        """
        following = [run.following() for run in runs]
        asked: dict[int, Asked] = {}
        ends: dict[int, Row | ChainFaultError] = {}
        moved, seen = list(range(len(runs))), list[ParticleSamples | LostParticleError | None]([None] * len(runs))
        with ThreadPoolExecutor(min(default_threads(), len(runs))) as pool:
            each = pool.map if len(runs) > 1 else map
            while True:
                for n, its in zip(moved, each(_goes_on, [following[n] for n in moved], seen), strict=True):
                    if isinstance(its, Asked):
                        asked[n] = its
                    else:
                        ends[n] = its
                if not asked:
                    return [ends[n] for n in range(len(runs))]
                looks = next(iter(asked.values()))[1:]  # a half that is held asks for frames, all others for blocks
                moved = [n for n, its in asked.items() if its[1:] == looks]
                seen = [*self._rooms.advance([runs[n].particles for n in moved], [asked.pop(n) for n in moved])]


def bytes_of(spec: PlasmaSpec) -> int:
    """Return what a trajectory takes in memory: its lists of neighbours, the frames of a block and those it is from."""
    pairs = spec.particles * (spec.cutoff + 0.5) ** 3 / 2
    return round(12 * pairs + spec.particles * 48 * (ORIGINS + spec.block_frames + 8))


def bcc_waves(spec: PlasmaSpec) -> WaveVectors:
    """Return the wave vectors (1, 1, 0) and alike of a bcc crystal along the axes of the box, as starts have it."""
    side = max(1, round(math.cbrt(spec.particles / 2)))
    signed = {
        tuple(s * side * x for s, x in zip(signs, axes, strict=True))
        for axes in permutations((1, 1, 0))
        for signs in product((1, -1), repeat=3)
    }
    half = np.array(sorted(n for n in signed if n > (0, 0, 0)))
    return WaveVectors(half, np.asarray(2 * math.pi / spec.length * np.sqrt((half**2).sum(axis=1)), np.float64))
