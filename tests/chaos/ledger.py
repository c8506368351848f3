"""Outcomes of long attacks, a line a batch in one file, to which every part adds.

A batch that is in the file is not run again; a part begins none that might end after `PART_S`. METALFORGE_CHAOS_FILE
names the file, build/chaos.jsonl where it is not set.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

import metalforge
from metalforge.core.installation import checked_out_commit

ROOT = Path(__file__).parents[2]
PART_S = float(os.environ.get("METALFORGE_CHAOS_SECONDS", "2200"))
"""Longest time of a part."""

Attack = Callable[[int], tuple[dict[str, float], list[str]]]
"""A seed -> what was done, by its name, and the faults that were found."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed did, by its name, and the faults that it found; `commit` is that of the source tree."""

    attack: str
    seed: int
    done: dict[str, float]
    faults: tuple[str, ...]
    seconds: float
    commit: str = ""


def file() -> Path:
    """Return where outcomes are kept."""
    return Path(os.environ.get("METALFORGE_CHAOS_FILE") or ROOT / "build" / "chaos.jsonl")


def counted(names: Iterable[str]) -> dict[str, float]:
    """Return how often each name is there."""
    return {name: float(count) for name, count in sorted(Counter(names).items())}


def written(path: Path) -> list[Batch]:
    """Return all batches of a file, none if it is not there; lines that a kill cut off are left out."""
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(line, type=Batch))
    return found


def read(path: Path) -> list[Batch]:
    """Return what stands of a file: of a seed that was run again its last batch."""
    return list({(batch.attack, batch.seed): batch for batch in written(path)}.values())


def add_up(attack: str, seeds: Sequence[int], run: Attack) -> list[str]:
    """Run the seeds that are not in the file yet, as many as there is time for; return the faults of all in it."""
    path = file()
    known = {batch.seed for batch in read(path) if batch.attack == attack}
    began, longest = time.monotonic(), 0.0
    commit = checked_out_commit(Path(metalforge.__file__).parent)
    for seed in (seed for seed in seeds if seed not in known):
        before = time.monotonic()
        if before - began + longest > PART_S:
            break
        done, faults = run(seed)
        seconds = time.monotonic() - before
        longest = max(longest, seconds)
        batch = Batch(attack=attack, seed=seed, done=done, faults=tuple(faults), seconds=seconds, commit=commit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            # One write, begun on a line of its own: another part may add to the file, and one may have been killed.
            stream.write(b"\n" + msgspec.json.encode(batch) + b"\n")
    return [f"{attack} {b.seed}: {fault}" for b in read(path) if b.attack == attack for fault in b.faults]
