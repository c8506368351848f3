"""The chains that one producer holds, in memory and on disk; files move them to another."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.store.chain_files import CheckpointStoreError
from metalforge.core import MetalforgeError, SpecError

from .equipment import Tools
from .ladder import PointLadder, unpacked

SHARE = 0.05
"""Part of the run time of chains that move together which their checkpoints may cost."""


class ChainPool:
    """Takes up chains by what the journal knows of them, keeps their files, and gives them away."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held: dict[str, PointLadder] = {}
        self._saved: dict[str, tuple[float, float]] = {}
        """When each chain was saved last, and how long that took."""
        self._written: dict[str, int] = {}
        """The updates of each chain that are in its file."""
        self._said: list[str] = []
        self._troubled = False

    def __contains__(self, chain: str) -> bool:
        return chain in self._held

    def take(self, chain: str) -> PointLadder:
        """Return a chain that is held, alone or as the first of its ladder."""
        return self._held[chain]

    def open(self, known: Sequence[ChainLog]) -> None:
        """Take up a chain, or those of a ladder, from a checkpoint or new."""
        files, first = self._tools.files, known[0].id
        path = Path()
        try:
            with files.reading(first) as path:
                found = self._taken_up(known, path)
            if known[0].rows and not found.points[0].taken_up_at and self._tools.checks != "none":
                # The last checkpoint is from beyond what the journal has with all checks.
                with files.reading(first, before=True) as path:
                    found = self._taken_up(known, path)
        except CheckpointStoreError:
            raise
        except MetalforgeError as error:
            if files.has(first):
                where = files.where(first)
                raise SpecError(
                    f"chain {first} cannot go on from its checkpoint: {str(error).replace(str(path), where)}\n"
                    f"hint: remove {where} to compute the chain again from its start, bit for bit"
                ) from error
            raise
        self._held[first] = found
        self._saved[first] = (time.monotonic(), 0.0)

    def _taken_up(self, known: Sequence[ChainLog], path: Path) -> PointLadder:
        """Return chains from one checkpoint, or all from their start where one of them cannot go on from it."""
        point = self._tools.spec.theory.point
        with unpacked(path, [one.id for one in known]) as parts:
            found = PointLadder([point(one, self._tools, part) for one, part in zip(known, parts, strict=True)])
        return found if found.in_step else PointLadder([point(one, self._tools) for one in known])

    def keep(self, chain: str, together: int = 1) -> bool:
        """Write a checkpoint if it is due: no more often than asked for, and no more than `SHARE` of the time.

        So many move `together` in that time, and wait while one is written.
        """
        saved, cost = self._saved[chain]
        due = time.monotonic() - saved >= max(self._tools.spec.running.checkpoint_s, together * cost / SHARE)
        return due and self.save(chain)

    def save(self, chain: str) -> bool:
        """Write a checkpoint now; return whether it is kept. A place that does not take it has the one before."""
        held, files = self._held[chain], self._tools.files
        began = time.monotonic()
        kept = self._tried(lambda: files.save(chain, held.save, keep=self._tools.checks != "none"))
        ended = time.monotonic()
        self._saved[chain] = (ended, ended - began)
        if kept:
            self._written[chain] = held.rows
        return kept

    def save_all(self) -> None:
        """Write all chains whose files are older than they are; a place that does not take one is not asked on."""
        for chain in sorted(self._held):
            if self._held[chain].rows != self._written.get(chain) and not self.save(chain):
                return

    def _tried(self, ask: Callable[[], None]) -> bool:
        """Return whether the checkpoints' place does what it is asked; where it does not, the journal is told once."""
        try:
            ask()
        except CheckpointStoreError as error:
            if not self._troubled:
                self._said.append(f"{error.first_line}: chains go on, and what was kept before stays")
            self._troubled = True
            return False
        return True

    def take_said(self) -> list[str]:
        """Return what the journal should say of the checkpoints, and did not."""
        said, self._said = self._said, []
        return said

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
        if from_start:
            self._tools.files.forget(chain)

    def forget(self) -> None:
        """Drop all chains as they are: what held their fields is gone."""
        self._held.clear()
