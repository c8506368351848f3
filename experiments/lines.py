"""Outcomes of long studies, a line of JSON each: a job whose outcomes are in the file is not run again."""

import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.files import cache_folder, naming, read_bytes

from .protocol import Progress, Settings

S = TypeVar("S", bound=msgspec.Struct)
J = TypeVar("J")
TABLE = "table"
"""The shard that runs nothing and makes the table of what is there."""


class Job(NamedTuple, Generic[J]):
    """One part of a long study: its name, the keys of its outcomes, and what is to be run."""

    name: str
    keys: Iterable[Hashable]
    what: J


class OutcomeFile(Generic[S]):
    """The outcomes of a study in a file, each once by its key. A quick run has no file and keeps nothing."""

    def __init__(self, settings: Settings, name: str, kind: type[S], key: Callable[[S], Hashable]) -> None:
        self._settings, self._kind, self._key = settings, kind, key
        self._path = Path(settings.file) if settings.file else cache_folder() / name
        self.known: dict[Hashable, S] = {}
        self._read()

    def run(
        self, jobs: Iterable[Job[J]], work: Callable[[J], Sequence[S]], progress: Progress, *, longest_s: float = inf
    ) -> dict[Hashable, S]:
        """Run the jobs of this shard that are not in the file, and return all outcomes by their keys.

        No job is begun that might end more than `longest_s` after the first.
        """
        wanted = [job for job in jobs if self._settings.only in job.name]
        mine = [job for job in shard_of(wanted, self._settings.shard) if not set(job.keys) <= self.known.keys()]
        began, longest = time.monotonic(), 0.0
        for number, job in enumerate(mine):
            before = time.monotonic()
            if not self._settings.quick and before - began + longest > longest_s:
                break
            progress(number, len(mine), job.name)
            found = work(job.what)
            longest = max(longest, time.monotonic() - before)
            if not self._settings.quick:
                append_lines(self._path, found)
            self.known |= {self._key(one): one for one in found}
        self._read()  # other shards may have added theirs meanwhile
        return self.known

    def _read(self) -> None:
        if not self._settings.quick:
            self.known |= {self._key(one): one for one in read_lines(self._path, self._kind)}


def read_lines(path: Path, kind: type[S]) -> list[S]:
    """Return the outcomes in a file, none if it is not there; lines that a kill cut off are left out."""
    if not path.exists():
        return []
    lines = [line for line in read_bytes(path).split(b"\n") if line]
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except msgspec.MsgspecError:
            continue
    if lines and not found:
        raise SpecError(f"{path} is not a file of this experiment: none of its {len(lines)} lines is an outcome")
    return found


def append_lines(path: Path, outcomes: Sequence[msgspec.Struct]) -> None:
    """Add lines in one write: two shards may add to one file, and what a killed one left begins no line of ours."""
    with naming(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b"\n" + b"\n".join(msgspec.json.encode(outcome) for outcome in outcomes) + b"\n")
        finally:
            os.close(file)


def shard_of(jobs: list[J], shard: str) -> list[J]:
    """Return the jobs of a shard `i/n`; all for an empty one. Neighbours go to different shards: cases cost alike."""
    if not shard:
        return jobs
    if shard == TABLE:
        return []
    number, _, count = shard.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise SpecError(
            f"`shard` must be i/n with 1 <= i <= n, or {TABLE}. Got {shard}\nhint: --shard 1/4, then 2/4, and so on"
        )
    return jobs[int(number) - 1 :: int(count)]
