"""Outcomes of long experiments, a line of JSON each: what is in the file is not run again, whoever ran it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.files import cache_folder, naming, read_bytes

from .protocol import Settings

S = TypeVar("S", bound=msgspec.Struct)
J = TypeVar("J")
TABLE = "table"
"""The shard that runs nothing and makes the table of what is there."""


def file_of(settings: Settings, name: str) -> Path:
    """Return the file of an experiment: the one that was named, or one in the cache folder."""
    return Path(settings.file) if settings.file else cache_folder() / name


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
