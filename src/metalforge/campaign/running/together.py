"""Chains of several orders moved at once: those that are alike in a batch, where the engine has batches.

While an engine makes sweeps the host takes the rows of those before. What a chain is does not depend on who is moved
beside it.
"""

from collections.abc import Callable, Sequence

from metalforge.core.errors import PlacementError
from metalforge.core.rows import ChainFaultError
from metalforge.lattice.batch import ChainBatch, kind_of

from .ladder import PointLadder

STRETCH = 64
"""Updates between two looks at whether the campaign stops."""
KEPT = 4
"""Batches that are kept for chains of the same kind and number: what an engine records for one takes it some time."""

Kind = tuple[object, ...]


class Together:
    """Moves what it is given, as batches where the engine has them, and remembers those it made."""

    def __init__(self, *, batches: bool = False) -> None:
        self._has_batches = batches
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
        together = {one for one in held if self._has_batches and one.in_batches}
        while not stopping() and (moving := [one for one in held if one not in faults and one.room]):
            groups: dict[Kind, list[PointLadder]] = {}
            for one in moving:
                if one in together:
                    groups.setdefault((*kind_of(one.chains[0]), len(one.points)), []).append(one)
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
        batch = self._batch(kind, members)
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
            for i, one in enumerate(members):
                own = slice(i * batch.rungs, (i + 1) * batch.rungs)
                try:
                    if one not in faults:
                        one.absorb(found[own], batch.chains[own])
                except ChainFaultError as error:
                    faults[one] = str(error)
        return faults

    def _batch(self, kind: Kind, members: Sequence[PointLadder]) -> ChainBatch | None:
        """Return a batch of these; None where they do not fit at once, and fewer are to be tried."""
        chains = [chain for one in members for chain in one.chains]
        energies = [energy for one in members for energy in one.energies()]
        key = kind, len(members)
        batch = self._batches.pop(key, None)
        if batch is not None:
            batch.take_up(chains, energies)
        else:
            while len(self._batches) >= KEPT:
                del self._batches[next(iter(self._batches))]
            try:
                batch = ChainBatch(chains, rungs=len(members[0].points), energies=energies)
            except PlacementError as error:
                if len(members) == 1:
                    raise
                self._batches.clear()
                self._most[kind] = half = len(members) // 2
                what = "chains" if len(members) == len(chains) else "ladders"
                reason = str(error).partition("\n")[0]
                self._said.append(f"{len(members)} {what} at once do not fit, {half} are tried: {reason}")
                return None
        self._batches[key] = batch  # the one that was used last comes last
        return batch
