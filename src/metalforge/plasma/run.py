"""A run of the plasma: warm-up in a bath, then NVE in blocks, with series, correlations and a checkpoint.

Each block begins with new lists of neighbours, so its bits follow from where the particles stand: a run that was
interrupted and resumed at a border gives the numbers of one that was not.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Form, PathLike, Phase, SpecError, naming, read_sealed
from metalforge.native import Engine, ParticleSamples, cpu_engine
from metalforge.statistics import Value, quoted

from .box import PLACES, Asked, begin, particles_of, spec_of, write_checkpoint
from .observables import (
    SERIES,
    WaveVectors,
    mode_powers,
    pair_distribution,
    series_of,
    thermodynamics,
)
from .references import Reference, references
from .spec import PlasmaSpec
from .transport import Correlations, Transport, TransportSegment, segment_of, transport
from .warmup import FRICTION, WarmupEnd, judge, looks_at

Floats = NDArray[np.float64]
FORM = Form("metalforge-plasma", "2")
LOOK_BLOCKS, LOOK_BINS, LOOK_WAVES = 5, 200, 6.5
"""Blocks between looks at the structure, bins of g(r), and the largest k of S(k)."""
BRAGG = 10.0
"""|rho_k|^2 / N of one wave vector, over time, that no fluid has: its largest S(k) is 3 where it freezes."""

PEAK_WIDTH = 0.25
"""Of the bins of k in which the peak of S(k) is looked for: the largest of single lengths would be one of noise."""
GOOD_DRIFT, GOOD_RMS = 1e-3, 1e-2
"""Of the energy, in kT a particle."""
TOO_SHORT = (
    "shorter than a segment of {:g}/omega_p: displacements and stress are not followed long enough for D* and eta*"
)


class PlasmaJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a run is, in 1/omega_p, and what it leaves behind. Both times are made of whole blocks.

    With `until_error` it ends when D_N* and eta* are known to that part of themselves, at the latest after `time`.
    """

    warmup: float
    time: float
    out: str | None = None
    trace: str | None = None
    until_error: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1e9 or not 0 < self.time < 1e9:
            raise SpecError(f"a run needs 0 <= warmup < 1e9 and 0 < time < 1e9. Got {self.warmup} and {self.time}")
        if self.until_error is not None and not 0 < self.until_error < 1:
            raise SpecError(f"`until_error` is a part, > 0 and < 1. Got {self.until_error}\nhint: 0.05 is 5 %")

    @property
    def checkpoint(self) -> Path:
        """Where the run's state is kept."""
        return Path(self.out) / "checkpoint.h5" if self.out else Path("metalforge-plasma.h5")


class PlasmaSummary(Transport, frozen=True, kw_only=True):
    """What a run found; `gamma_measured` has the error of its samples.

    It is that of the temperature that NVE found, to which the other numbers belong.
    """

    u_over_gamma: Value
    """Potential energy of pairs per particle, in Q^2/(4 pi eps0 a), with its tail."""
    pressure: Value
    """beta P / n, with its tail."""
    energy_drift_kt: float
    """The slope of the energy times the length of the run, in kT a particle."""
    energy_rms_kt: float
    """The energy's fluctuation in kT a particle."""
    references: dict[str, tuple[Reference, ...]]
    """What was published for a fluid of this coupling, by name."""
    s_max: Value
    """The largest S(k), over a bin of k, and the k it is at; the error is that of the noise of its modes."""
    s_max_k: float
    crystalline: bool
    """Whether a single wave vector stands out as no fluid's does: then nothing here is a fluid's number."""
    doubts: tuple[str, ...]
    """Why numbers of this run should not be believed, in words."""
    warmup: WarmupEnd
    time: float
    samples: int
    atom_steps_per_second: float
    threads: int
    isa: str
    spec: PlasmaSpec


class PlasmaBlock(NamedTuple):
    """What a block gave: its phase and its samples by name."""

    phase: Phase
    samples: dict[str, Floats]


class Watch(NamedTuple):
    """Somebody who is given the blocks of the first `time` of NVE, with places and speeds at every sample."""

    time: float
    take: Callable[[dict[str, Floats], Floats, Floats], None]
    """Samples by name, positions as if the box had no borders, velocities; the latter (samples, n, 3)."""


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes on besides particles and series."""

    job: PlasmaJob
    step: int
    warmup: WarmupEnd | None
    measured: int
    looks: int


_STATES = msgspec.json.Decoder(_State)


class PlasmaRun:
    """A run of `job` at a state point, from its start; `resume` gives one from a checkpoint."""

    def __init__(
        self, spec: PlasmaSpec, job: PlasmaJob, *, threads: int | None = None, engine: Engine | None = None
    ) -> None:
        if spec.start == "two-phase":
            raise SpecError(
                "`start` two-phase is made by the warm-up of a campaign, half of which melts\n"
                "hint: metalforge scan --preset plasma-freezing"
            )
        self.spec, self.job = spec, job
        self.engine: Engine = engine or cpu_engine(threads=threads)
        self.particles = begin(spec)
        self.warmup = judge(np.empty(0), 0.0, job.warmup)
        """How the warm-up ended; None while it goes on."""
        self.measured = 0
        """Blocks of NVE."""
        self.correlations = Correlations(spec.particles, segment=spec.segment_blocks * spec.block_frames)
        self._waves = WaveVectors.up_to(LOOK_WAVES, spec.length)
        self._looks = 0
        self._g, self._powers = np.zeros(LOOK_BINS), np.zeros(len(self._waves.lengths))
        self._samples: dict[str, list[Floats]] = {name: [] for name in SERIES}
        self.seconds, self.steps = 0.0, 0
        """Of this process, in the kernels."""
        self.watch: Watch | None = None
        """Who looks at every sample of the first part of NVE; a checkpoint does not keep it."""

    @property
    def phase(self) -> Phase:
        """What the next block belongs to."""
        return "warmup" if self.warmup is None else "measure"

    @property
    def time(self) -> float:
        """Of NVE so far."""
        return self.measured * self.spec.block_time

    @property
    def remaining(self) -> int:
        """Blocks that are still to do, with no longer warm-up than was asked for."""
        total = math.ceil(self.job.time / self.spec.block_time - 1e-9)
        asked = math.ceil(self.job.warmup / self.spec.block_time - 1e-9)
        done = self.particles.step // self.spec.block_steps
        return total - self.measured + (max(1, asked - done) if self.warmup is None else 0)

    @property
    def series(self) -> dict[str, Floats]:
        """Samples of NVE by name, one array each."""
        for name, parts in self._samples.items():
            if len(parts) > 1:
                self._samples[name] = [np.concatenate(parts)]
        return {name: parts[0] if parts else np.empty(0) for name, parts in self._samples.items()}

    @property
    def pair_distribution(self) -> tuple[Floats, Floats]:
        """Return r and g(r), means of all looks."""
        width = self.spec.length / 2 / LOOK_BINS
        return np.asarray(width * (np.arange(LOOK_BINS) + 0.5), np.float64), self._g / max(1, self._looks)

    @property
    def structure_factor(self) -> tuple[Floats, Floats]:
        """Return k and S(k), means of all looks and of the wave vectors of a length."""
        k, at = np.unique(self._waves.lengths, return_inverse=True)
        powers = self._powers / max(1, self._looks)
        return k, np.bincount(at, powers) / np.bincount(at)

    def structure_peak(self) -> tuple[float, Value]:
        """Return where S(k) is largest, over bins of k, and how large; a mode's |rho_k|^2 scatters by its mean."""
        bins = (self._waves.lengths / PEAK_WIDTH).astype(int)
        counts = np.maximum(1, np.bincount(bins))
        means = np.bincount(bins, self._powers / max(1, self._looks)) / counts
        at = int(np.argmax(means))
        k = float(self._waves.lengths[bins == at].mean())
        return k, Value(mean=float(means[at]), error=float(means[at] / math.sqrt(counts[at] * max(1, self._looks))))

    def has_sample(self, line: dict[str, Any]) -> bool:
        """Whether a line of a trace is the last sample of this run, or one before it."""
        columns = [name for name in SERIES if name in line and len(self.series[name])]
        if self.phase == "warmup" or line.get("phase") != "measure":
            return line.get("phase") == "warmup" and set(line) == {"phase", *SERIES}
        at = round(float(line["time"]) / self.spec.sample_time) - 1
        return len(columns) == len(SERIES) and all(
            0 <= at < len(self.series[name]) and self.series[name][at] == line[name] for name in columns
        )

    @property
    def crystalline(self) -> bool:
        """Whether a single wave vector stands out as no fluid's does."""
        return self._looks > 0 and bool(self._powers.max() / self._looks > BRAGG * (1 + 2 / math.sqrt(self._looks)))

    def segments(self) -> list[TransportSegment]:
        """Return what whole segments of the run leave for transport; of a run that is shorter than one, the whole."""
        samples = self.spec.segment_blocks * (self.spec.block_steps // self.spec.sample_steps)
        whole = self.measured // self.spec.segment_blocks
        series, sums = self.series, self.correlations.segments()
        return [
            segment_of(
                self.spec,
                {name: column[i * samples : (i + 1) * samples] for name, column in series.items()},
                *(array[i] for array in sums),
            )
            for i in range(max(1, whole))
        ]

    def transport(self) -> Transport:
        """Return diffusion and viscosity with errors."""
        return transport(self.spec, [self.segments()])

    def asks(self) -> Asked:
        """What the next block is."""
        spec = self.spec
        samples = spec.block_steps // spec.sample_steps
        if self.phase == "warmup":
            return Asked(spec.langevin(FRICTION), spec.block_steps, samples, 0)
        watched = self.watch is not None and self.time < self.watch.time - 1e-9
        return Asked(spec.nve, spec.block_steps, samples, samples if watched else spec.block_frames)

    def note(self, seen: ParticleSamples, seconds: float) -> PlasmaBlock:
        """Take up a block that particles have gone, in so many seconds of kernels."""
        spec, phase = self.spec, self.phase
        self.seconds += seconds
        self.steps += spec.block_steps
        made = series_of(spec, seen.sums, self.time)
        if phase == "warmup":
            self._warm_up(made)
        else:
            for name, column in made.items():
                self._samples[name].append(column)
            if self.watch is not None and self.time < self.watch.time - 1e-9:
                self.watch.take(made, seen.positions, seen.velocities)
            every = len(seen.positions) // spec.block_frames  # more than one where somebody watches
            frames = slice(every - 1, None, every)
            self.correlations.add(seen.positions[frames], seen.velocities[frames])
            if self.measured % LOOK_BLOCKS == 0:
                self._look()
            self.measured += 1
        return PlasmaBlock(phase, made)

    def _warm_up(self, made: dict[str, Floats]) -> None:
        self._samples["potential"].append(made["potential"])
        done = self.particles.step * self.spec.step_time
        if not looks_at(done, self.job.warmup, self.spec.block_time):
            return
        self.warmup = judge(self.series["potential"], done, self.job.warmup)
        if self.warmup is not None:
            self._samples["potential"] = []
            self.particles.stop_drifting()

    def _look(self) -> None:
        self._g += pair_distribution(self.particles.positions, self.spec.length, LOOK_BINS)
        self._powers += mode_powers(self.particles.positions, self.spec.length, self._waves)
        self._looks += 1

    def run(self, **options: Any) -> bool:
        """Run to the end of the job, as `PlasmaReplicas.run` does it; return whether it came there."""
        from .replicas import PlasmaReplicas

        return PlasmaReplicas([self]).run(**options)

    def save(self, path: PathLike | None = None) -> None:
        """Write the checkpoint; one that is there already is replaced whole or not at all."""
        state = _State(
            job=self.job,
            step=self.particles.step,
            warmup=self.warmup,
            measured=self.measured,
            looks=self._looks,
        )
        looks = {"pair_counts": self._g, "mode_powers": self._powers}
        kept = {f"series/{name}": column for name, column in self.series.items() if column.size}
        correlations = {f"correlations/{name}": values for name, values in self.correlations.state().items()}
        write_checkpoint(
            path or self.job.checkpoint,
            FORM,
            self.spec,
            self.engine,
            self.particles,
            looks | kept | correlations,
            {"state_json": state},
        )

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        time: float | None = None,
        threads: int | None = None,
        engine: Engine | Callable[[str], Engine] | None = None,
        allow_different_isa: bool = False,
    ) -> Self:
        """Return the run of a checkpoint (or of its folder), to be continued; `time` is a new total.

        `engine` may be what opens one, given the name of the engine that the run was on.
        """
        path = path / "checkpoint.h5" if path.is_dir() else path
        names = (*PLACES, "pair_counts", "mode_powers", "spec_json", "state_json")
        sealed = read_sealed(path, FORM, names, groups=("series", "correlations"))
        with naming(path, "read"):
            spec, state = spec_of(sealed), _STATES.decode(sealed.texts["state_json"])
            job = state.job if time is None else msgspec.structs.replace(state.job, time=time)
            if job.out is not None:  # where it was read, which need not be where it was begun
                job = msgspec.structs.replace(job, out=str(path.parent))
            began_on = sealed.engine
            run = cls(spec, job, threads=threads, engine=engine(began_on) if callable(engine) else engine)
            if _bits_of(run.engine.name) != _bits_of(began_on) and not allow_different_isa:
                raise SpecError(
                    f"was computed on `{began_on}`, here is `{run.engine.name}`: a trajectory goes "
                    "on bit for bit on its own alone\nhint: --allow-different-isa continues it with another rounding"
                )
            run.particles = particles_of(sealed, spec, state.step)
            run.warmup, run.measured, run._looks = state.warmup, state.measured, state.looks
            arrays = sealed.arrays
            run._g, run._powers = arrays["pair_counts"], arrays["mode_powers"]
            run._samples |= {name: [arrays[f"series/{name}"]] for name in SERIES if f"series/{name}" in arrays}
            group = {n.removeprefix("correlations/"): v for n, v in arrays.items() if n.startswith("correlations/")}
            run.correlations = Correlations.of(group)
        return run

    def summary(self) -> PlasmaSummary:
        """Return means with Gamma-method errors; needs at least one block of NVE."""
        spec, series = self.spec, self.series
        if self.warmup is None or not self.measured:
            raise SpecError("a summary needs a block of measurement; the run is still warming up")
        seen = thermodynamics(spec, series["kinetic"], series["phi"], series["virial"])
        gamma = quoted(seen.gamma)
        energy = (series["kinetic"] + series["potential"]) / spec.particles
        centred = series["time"] - series["time"].mean()
        slope = float(centred @ energy / (centred @ centred)) if len(energy) > 1 else 0.0
        drift, rms = slope * self.time * gamma.mean, float(energy.std()) * gamma.mean
        s_max_k, s_max = self.structure_peak()
        moved = msgspec.structs.asdict(self.transport()) | {"gamma_measured": gamma}
        return PlasmaSummary(
            **moved,
            u_over_gamma=quoted(seen.u_over_gamma),
            pressure=quoted(seen.pressure),
            references=references(gamma.mean, spec.kappa),
            energy_drift_kt=drift,
            energy_rms_kt=rms,
            s_max=s_max,
            s_max_k=s_max_k,
            crystalline=self.crystalline,
            doubts=self._doubts(self.warmup, drift, rms),
            warmup=self.warmup,
            time=self.time,
            samples=len(energy),
            atom_steps_per_second=spec.particles * self.steps / self.seconds if self.seconds else 0.0,
            threads=self.engine.threads,
            isa=self.engine.name.removeprefix("cpu:"),
            spec=spec,
        )

    def _doubts(self, warmup: WarmupEnd, drift: float, rms: float) -> tuple[str, ...]:
        segment = self.spec.segment_blocks * self.spec.block_time
        found = {
            "this is a crystal: its numbers are no fluid's": self.crystalline,
            TOO_SHORT.format(segment): self.time < segment,
            "the warm-up ended at its longest, and the energy was not steady yet": warmup.reason == "longest",
            f"the energy drifts by more than {GOOD_DRIFT:g} kT a particle: a smaller `--dt` is wanted": abs(drift)
            > GOOD_DRIFT,
            f"the energy scatters by more than {GOOD_RMS:g} kT a particle: a smaller `--dt` is wanted": rms > GOOD_RMS,
        }
        return tuple(words for words, holds in found.items() if holds)


def _bits_of(engine: str) -> str:
    """What an engine's name says of the bits of particles: a build of the CPU's kernels, or a kind of card."""
    return engine if engine.startswith("cpu:") else engine.partition(":")[0]
