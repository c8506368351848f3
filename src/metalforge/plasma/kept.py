"""Runs of one state point that were kept, put together: what `metalforge plasma transport` says of them."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from metalforge.core import SpecError

from .references import Reference, references
from .replicas import folders_of, found_together
from .run import PlasmaRun
from .spec import PlasmaSpec
from .transport import Transport


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """Transport of several runs, with what is published for their measured coupling."""

    transport: Transport
    references: dict[str, tuple[Reference, ...]]
    time: float
    """Of all runs."""
    spec: PlasmaSpec
    """Of the first of them; the others differ in seed and stream."""


def read_replicas(paths: Sequence[Path]) -> Replicas:
    """Return what checkpoints, or folders of runs and of replicas, say together; they must be of one state point.

    Raises
    ------
    SpecError
        No file, one that is no checkpoint, runs that differ in more than their random numbers, a run that is given
        twice or has not measured yet, or a crystal.
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
    return Replicas(transport=found, references=published, time=sum(run.time for run in runs), spec=runs[0].spec)


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
