"""Runs that go together: one launch moves the particles of all, each with the bits of a run alone.

Runs of one state point end when they have said enough, at the border of a segment: the larger of the relative errors of
D_N* and eta*, by the jackknife over all segments, must be at most the one that was asked for. Stopping when an error
looks small picks runs whose error is underestimated: with few segments an error is itself uncertain by
1 / sqrt(2 (segments - 1)), so that many are waited for at least.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from metalforge.core import SpecError, remove_half_written
from metalforge.native import Engine, default_threads

from .box import LostParticleError, Rooms
from .references import Reference, references
from .run import PlasmaBlock, PlasmaJob, PlasmaRun
from .spec import PlasmaSpec
from .transport import Transport, transport

OF_EACH = "replica-{:04d}"
"""The folder of a run, within that of all."""
FEWEST_SEGMENTS = 6
"""Of all runs together: fewer do not end a run, whatever error they have."""


def replicas_of(spec: PlasmaSpec, job: PlasmaJob, count: int) -> list[tuple[PlasmaSpec, PlasmaJob]]:
    """Return specs and jobs of replicas: streams that follow each other, and a folder and a trace each."""
    if count < 1 or spec.stream + count > 2**32:
        raise SpecError(f"`replicas` must be at least 1, with streams below 2^32. Got {count}")
    made = []
    for r in range(count):
        name = OF_EACH.format(r)
        files: dict[str, str | None] = {"out": job.out and str(Path(job.out) / name), "trace": None}
        if job.trace is not None:
            path = Path(job.trace)
            files["trace"] = str(path.with_name(f"{path.stem}.{name}{path.suffix}"))
        replica = msgspec.structs.replace(spec, stream=spec.stream + r)
        made.append((replica, msgspec.structs.replace(job, **files)))
    return made


def folders_of(path: Path) -> list[Path]:
    """Return the folders of the replicas that are kept in one, or a single run's as it is."""
    return sorted(path.glob(OF_EACH.format(0).replace("0", "[0-9]"))) or [path]


def resumed(
    path: Path,
    *,
    time: float | None = None,
    engine: Callable[[str], Engine],
    allow_different_isa: bool = False,
) -> list[PlasmaRun]:
    """Return the runs of a folder of replicas, or the one of a checkpoint, to be continued on one engine.

    `engine` opens it, given the name of the one that the first of them was on.
    """
    runs: list[PlasmaRun] = []
    for one in folders_of(path):
        opened = runs[0].engine if runs else engine
        runs.append(PlasmaRun.resume(one, time=time, engine=opened, allow_different_isa=allow_different_isa))
    return runs


class PlasmaReplicas:
    """Runs of one size of box, kappa and time step, on one engine; couplings, seeds and streams are each one's own."""

    def __init__(self, runs: Sequence[PlasmaRun]) -> None:
        if not runs:
            raise SpecError("replicas need at least one run")
        self.runs = list(runs)
        self.engine: Engine = runs[0].engine
        for run in runs:
            if run.engine is not self.engine or _shape(run.spec) != _shape(runs[0].spec):
                raise SpecError(
                    "replicas must have one engine, and the same particles, kappa, tol, precision and steps of a "
                    f"block. Got {run.spec} beside {runs[0].spec}"
                )
        self._rooms = Rooms(runs[0].spec, self.engine, len(runs))

    @property
    def remaining(self) -> int:
        """Blocks that are still to do, of all runs."""
        return sum(run.remaining for run in self.runs)

    def step(self) -> list[PlasmaBlock | None]:
        """Do one block of every run that has not ended; nothing for those that have.

        A run that fails raises, when the others have done theirs, and stays where it was.
        """
        going = [run for run in self.runs if run.remaining > 0]
        if not going:
            return [None] * len(self.runs)
        began = time.perf_counter()
        seen = self._rooms.advance([run.particles for run in going], [run.asks() for run in going])
        seconds = (time.perf_counter() - began) / len(going)  # the share of each
        moved = [(run, its) for run, its in zip(going, seen, strict=True) if not isinstance(its, LostParticleError)]
        with ThreadPoolExecutor(min(default_threads(), len(going))) as pool:  # to look takes longer than to move them
            blocks = dict(pool.map(lambda its: (id(its[0]), its[0].note(its[1], seconds)), moved))
        for its in seen:
            if isinstance(its, LostParticleError):
                raise its
        return [blocks.get(id(run)) for run in self.runs]

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_block: Callable[[int, PlasmaBlock], None] | None = None,
        enough: Callable[[Sequence[PlasmaRun]], bool] | None = None,
        checkpoint_every_s: float = 60.0,
    ) -> bool:
        """Run all to the end of their jobs, or until `should_stop`; return whether they came to the end.

        `enough` ends them before, asked between blocks; without it that is the jackknife's rule, where jobs have one.
        Either way every run whose job keeps files leaves its checkpoint; one run alone does when it was stopped.
        """
        for run in self.runs:
            run.job.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            if run.job.out:
                remove_half_written(run.job.checkpoint.parent)
        self.save()  # runs that are killed in their first minute can be resumed too
        saved_at = time.monotonic()
        enough = enough or partial(said_enough, target=self.runs[0].job.until_error)
        while self.remaining > 0 and not enough(self.runs):
            if should_stop():
                self.save()
                if len(self.runs) == 1 and not self.runs[0].job.out:
                    self.runs[0].save()
                return False
            for number, block in enumerate(self.step()):
                if block is not None and on_block is not None:
                    on_block(number, block)
            if time.monotonic() - saved_at > checkpoint_every_s:
                self.save()
                saved_at = time.monotonic()
        self.save()
        return True

    def save(self) -> None:
        """Write the checkpoint of every run whose job keeps files."""
        for run in self.runs:
            if run.job.out:
                run.save()


def _shape(spec: PlasmaSpec) -> tuple[object, ...]:
    return spec.particles, spec.kappa, spec.tol, spec.precision, spec.block_steps, spec.sample_steps, spec.block_frames


def at_border(runs: Sequence[PlasmaRun]) -> bool:
    """Return whether all runs stand at the end of a segment of measurement."""
    return all(run.measured > 0 and run.measured % run.spec.segment_blocks == 0 for run in runs)


def found_together(runs: Sequence[PlasmaRun]) -> Transport:
    """Return what all segments of the runs say."""
    return transport(runs[0].spec, [run.segments() for run in runs])


def relative_error(found: Transport) -> float:
    """Return the larger of the relative errors of D_N* and eta*; infinite where there is no jackknife yet."""
    both = found.diffusion, found.viscosity
    return max(
        math.inf if one.error is None or not math.isfinite(one.error) else one.error / abs(one.mean) for one in both
    )


def said_enough(runs: Sequence[PlasmaRun], target: float | None) -> bool:
    """Return whether runs of one state point may end: the jackknife's rule. Without a target they may not."""
    if target is None or not at_border(runs):
        return False
    found = found_together(runs)
    return found.segments >= FEWEST_SEGMENTS and relative_error(found) <= target


class KeptRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Transport of several runs, with what is published for their measured coupling."""

    transport: Transport
    references: dict[str, tuple[Reference, ...]]
    time: float
    """Of all runs."""
    spec: PlasmaSpec
    """Of the first of them; the others differ in seed and stream."""


def read_replicas(paths: Sequence[Path]) -> KeptRuns:
    """Return what checkpoints, or folders of runs and of replicas, say together.

    They must be of one state point, have measured, and be no crystals; none may be given twice.
    """
    if not paths:
        raise SpecError("transport needs the checkpoint of a run. Got none\nhint: metalforge plasma run --out DIR")
    paths = [one for path in paths for one in folders_of(path)]
    runs: list[PlasmaRun] = []
    for path in paths:
        run = PlasmaRun.resume(path, threads=1, allow_different_isa=True)
        if not run.measured:
            raise SpecError(f"{path}: is still warming up\nhint: continue it with `plasma run --resume {path}`")
        if run.crystalline:
            raise SpecError(f"{path}: is a crystal, and has no viscosity of a fluid\nhint: leave it out")
        for other, name in zip(runs, paths, strict=False):
            _require_replica(other.spec, name, run.spec, path)
        runs.append(run)
    found = found_together(runs)
    published = references(found.gamma_measured.mean, runs[0].spec.kappa)
    return KeptRuns(transport=found, references=published, time=sum(run.time for run in runs), spec=runs[0].spec)


def _require_replica(one: PlasmaSpec, first: Path, two: PlasmaSpec, second: Path) -> None:
    for name in ("gamma", "kappa", "particles", "tol", "step_time"):
        here, there = getattr(one, name), getattr(two, name)
        if here != there:
            raise SpecError(
                f"runs must be of one state point. Got `{name}` {here:g} in {first} and {there:g} in {second}"
            )
    if (one.seed, one.stream) == (two.seed, two.stream):
        raise SpecError(
            f"{first} and {second} are the same run: seed {one.seed}, stream {one.stream}\n"
            "hint: runs of their own have a --seed or --stream of their own"
        )
