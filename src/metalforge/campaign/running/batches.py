"""Chains of several orders moved at once: those that are alike in a batch, where the engine has batches.

What a chain is does not depend on who is moved beside it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from metalforge.core import ChainFaultError, PlacementError

from .point import PointChain

KEPT = 4
"""Batches that are kept for chains of the same kind and number: what an engine records for one takes it some time."""

Kind = tuple[object, ...]
Faults = dict[PointChain, ChainFaultError]
"""What went wrong with which."""


class PointBatch(Protocol):
    """Room for so many chains of one kind."""

    def move(self, members: Sequence[PointChain], stopping: Callable[[], bool]) -> Faults:
        """Move as many as it has room for, by no more than is left for one of them, or to where the campaign stops."""


class Together:
    """Moves what it is given, as batches where the engine has them, and remembers those it made."""

    def __init__(self, *, batches: bool = False) -> None:
        self._has_batches = batches
        self._batches: dict[tuple[Kind, int], PointBatch] = {}
        self._most: dict[Kind, int] = {}
        """Chains of a kind that fit at once, where all that were there did not."""
        self.said: list[str] = []
        """What was found out, for people."""

    def advance(self, held: Sequence[PointChain], stopping: Callable[[], bool]) -> Faults:
        """Move all until each order is done or the campaign stops; return what went wrong with which of them."""
        faults: Faults = {}
        kinds = {one: one.kind if self._has_batches else None for one in held}
        while not stopping() and (moving := [one for one in held if one not in faults and one.left]):
            groups: dict[Kind, list[PointChain]] = {}
            for one in moving:
                if (kind := kinds[one]) is not None:
                    groups.setdefault(kind, []).append(one)
                else:
                    try:
                        one.update()
                    except ChainFaultError as error:
                        faults[one] = error
            for kind, members in groups.items():
                most = self._most.get(kind, len(members))
                for begin in range(0, len(members), most):
                    part = members[begin : begin + most]
                    if (batch := self._batch(kind, part)) is not None:
                        faults |= batch.move(part, stopping)
        return faults

    def _batch(self, kind: Kind, members: Sequence[PointChain]) -> PointBatch | None:
        """Return a batch for these; None where they do not fit at once, and fewer are to be tried."""
        key = kind, len(members)
        batch = self._batches.pop(key, None)
        if batch is None:
            while len(self._batches) >= KEPT:
                del self._batches[next(iter(self._batches))]
            try:
                batch = members[0].theory.batch(members)
            except PlacementError as error:
                if len(members) == 1:
                    raise
                self._batches.clear()
                self._most[kind] = half = len(members) // 2
                reason = str(error).partition("\n")[0]
                self.said.append(f"{len(members)} chains at once do not fit, {half} are tried: {reason}")
                return None
        self._batches[key] = batch  # the one that was used last comes last
        return batch
