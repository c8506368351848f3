"""Chains of several orders moved at once: those that are alike in a batch, where the engine has batches.

While an engine makes sweeps the host takes the rows of those before. What a chain is does not depend on who is moved
beside it.
"""

from collections.abc import Callable, Sequence

from metalforge.core.errors import PlacementError
from metalforge.lattice.batch import ChainBatch, kind_of
from metalforge.lattice.chain import Chain
from metalforge.lattice.run import ChainFaultError
from metalforge.native.engine import BatchEngine

from .ladder import PointLadder

STRETCH = 64
"""Updates between two looks at whether the campaign stops."""
KEPT = 4
"""Batches that are kept for chains of the same kind and number: what an engine records for one takes it some time."""

Kind = tuple[object, ...]


class Together:
    """Moves what it is given, and remembers the batches it made."""

    def __init__(self) -> None:
        self._batches: dict[tuple[Kind, int], ChainBatch] = {}
        self._most: dict[Kind, int] = {}
        """Chains of a kind that fit at once, where all that were there did not."""
        self._said: list[str] = []

    def take_said(self) -> list[str]:
        """Return what was found out since the last call, for people."""
        said, self._said = self._said, []
        return said

    def advance(self, held: Sequence[PointLadder], stopping: Callable[[], bool]) -> dict[PointLadder, str]:
        """Move all until each order is done or the campaign stops; return what went wrong with which of them."""
        faults: dict[PointLadder, str] = {}
        while not stopping() and (moving := [one for one in held if one not in faults and one.room]):
            groups: dict[Kind, list[PointLadder]] = {}
            for one in moving:
                if one.in_batches and isinstance(one.points[0].field.engine, BatchEngine):
                    groups.setdefault(kind_of(one.points[0].run.chain), []).append(one)
                else:
                    try:
                        one.update()
                    except ChainFaultError as error:
                        faults[one] = str(error)
            for kind, members in groups.items():
                most = self._most.get(kind, len(members))
                for begin in range(0, len(members), most):
                    faults |= self._move(kind, members[begin : begin + most], stopping)
        return faults

    def _move(self, kind: Kind, members: Sequence[PointLadder], stopping: Callable[[], bool]) -> dict[PointLadder, str]:
        """Move chains of one kind by the least that is left for one of them, or to where the campaign stops."""
        faults: dict[PointLadder, str] = {}
        batch = self._batch(kind, [one.points[0].run.chain for one in members])
        if batch is None:
            return faults
        left = min(one.room for one in members)
        under_way = min(left, STRETCH)
        batch.start(under_way)
        while under_way:
            found, left = batch.collect_columns(), left - under_way
            under_way = 0 if stopping() else min(left, STRETCH)
            if under_way:
                batch.start(under_way)
            else:
                batch.bring_back()  # whoever looks at the last rows may look at the links too
            for one, columns in zip(members, found, strict=True):
                try:
                    if one not in faults:
                        one.points[0].absorb(columns)
                except ChainFaultError as error:
                    faults[one] = str(error)
        return faults

    def _batch(self, kind: Kind, chains: Sequence[Chain]) -> ChainBatch | None:
        """Return a batch of these chains; None where they do not fit at once, and fewer are to be tried."""
        key = kind, len(chains)
        batch = self._batches.pop(key, None)
        if batch is not None:
            batch.take_up(chains)
        else:
            while len(self._batches) >= KEPT:
                del self._batches[next(iter(self._batches))]
            try:
                batch = ChainBatch(chains)
            except PlacementError as error:
                if len(chains) == 1:
                    raise
                self._batches.clear()
                self._most[kind] = len(chains) // 2
                reason = str(error).partition("\n")[0]
                self._said.append(f"{len(chains)} chains at once do not fit, {len(chains) // 2} are tried: {reason}")
                return None
        self._batches[key] = batch  # the one that was used last comes last
        return batch
