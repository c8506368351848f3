"""The chains that one producer holds, in memory and on disk; files move them to another."""

import time
from pathlib import Path

from metalforge.core.errors import MetalforgeError, SpecError

from .equipment import Tools
from .ladder import PointLadder, unpacked
from .orders import Brief
from .point import PointChain

SHARE = 0.05
"""Part of the run time of chains that move together which their checkpoints may cost."""


class ChainPool:
    """Takes up chains by their briefs, keeps their files, and gives them away."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held: dict[str, PointLadder] = {}
        self._saved: dict[str, tuple[float, float]] = {}
        """When each chain was saved last, and how long that took."""
        self._written: dict[str, int] = {}
        """The updates of each chain that are in its file."""

    def __contains__(self, chain: str) -> bool:
        return chain in self._held

    def take(self, chain: str) -> PointLadder:
        """Return a chain that is held, alone or as the first of its ladder."""
        return self._held[chain]

    def open(self, brief: Brief) -> None:
        """Take up a chain, or a ladder by its first one, from its checkpoint or new."""
        path = self._tools.path(brief.id)
        briefs = (brief, *brief.others)
        settle(path, min(one.settled for one in briefs))
        for _, newer in _newer(path):
            newer.unlink()
        try:
            with unpacked(path, [one.id for one in briefs]) as files:
                points = [PointChain(one, self._tools, file) for one, file in zip(briefs, files, strict=True)]
                found = PointLadder(points)
            if not found.in_step:
                # One of them had to begin again: so do all.
                found = PointLadder([PointChain(one, self._tools) for one in briefs])
        except MetalforgeError as error:
            if path.exists():
                raise SpecError(
                    f"chain {brief.id} cannot go on from its checkpoint: {error}\n"
                    f"hint: remove {path} to compute the chain again from its start, bit for bit"
                ) from error
            raise
        self._held[brief.id] = found
        self._saved[brief.id] = (time.monotonic(), 0.0)

    def keep(self, chain: str, together: int = 1) -> bool:
        """Write a checkpoint if it is due: no more often than asked for, and no more than `SHARE` of the time.

        So many move `together` in that time, and wait while one is written.
        """
        saved, cost = self._saved[chain]
        due = time.monotonic() - saved >= max(self._tools.spec.running.checkpoint_s, together * cost / SHARE)
        if due and (self._tools.checks == "none" or not _newer(self._tools.path(chain))):
            self.save(chain)
            return True
        return False

    def save(self, chain: str) -> None:
        """Write a checkpoint now."""
        path, rows = self._tools.path(chain), self._held[chain].rows
        path.parent.mkdir(exist_ok=True)
        began = time.monotonic()
        if self._tools.checks != "none":
            path = path.with_name(f"{chain}.{rows}.next")
        self._held[chain].save(path)
        ended = time.monotonic()
        self._saved[chain] = (ended, ended - began)
        self._written[chain] = rows

    def save_all(self) -> None:
        """Write all chains whose files are older than they are."""
        for chain in sorted(self._held):
            if self._held[chain].rows != self._written.get(chain):
                self.save(chain)

    def release(self, chain: str) -> int:
        """Write a chain to its file and forget it; return the update it is at."""
        self.save(chain)
        return self.drop(chain)

    def drop(self, chain: str) -> int:
        """Forget a chain as it is; return the update it is at."""
        return self._held.pop(chain).rows

    def doubt(self, chain: str, *, from_start: bool) -> None:
        """Forget a chain that cannot be as it should be, and its file too where that may be so already."""
        self.drop(chain)
        path = self._tools.path(chain)
        for _, newer in _newer(path):
            newer.unlink()
        if from_start:
            path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop all chains as they are: what held their fields is gone."""
        self._held.clear()


def settle(path: Path, updates: int) -> None:
    """Say of the chain that is kept at `path` that the journal has so many of its updates with all their checks.

    Where configurations are checked, a checkpoint takes the place of the one before when that is so: it was written
    when some of them were on their way, and only from before them they can be computed again.
    """
    for rows, newer in _newer(path):
        if rows <= updates:
            newer.replace(path)


def _newer(path: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a chain that wait for checks, with their updates, in order."""
    return sorted((int(newer.suffixes[-2][1:]), newer) for newer in path.parent.glob(f"{path.stem}.*.next"))
