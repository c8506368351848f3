"""Chains of links that move at once on one engine.

Sweeps are made in stretches, and the host takes the rows of one while the engine makes the next: sweeps of warm-up and
of measurement are the same updates.
"""

from collections.abc import Callable, Sequence

from metalforge.campaign import Faults, PointChain
from metalforge.core import ChainFaultError
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.chain import Chain

from .point import LatticePoint

STRETCH = 64
"""Sweeps between two looks at whether the campaign stops."""


class LinksTogether:
    """Chains as a `ChainBatch`."""

    def __init__(self, members: Sequence[PointChain]) -> None:
        self._batch = ChainBatch(_chains(members))
        self._fresh = True

    def move(self, members: Sequence[PointChain], stopping: Callable[[], bool]) -> Faults:
        """Make sweeps up to the least that is left for one of them."""
        faults: Faults = {}
        batch = self._batch
        if not self._fresh:
            batch.take_up(_chains(members))
        self._fresh = False
        left = min(one.left for one in members)
        under_way = min(left, _stretch(members, 0))
        batch.start(under_way)
        while under_way:
            found, made, left = batch.collect(), under_way, left - under_way
            under_way = 0 if stopping() else min(left, _stretch(members, made))
            if not under_way or _is_measured(members, made):
                batch.bring_back()  # the last rows are looked at with the links after them
            if under_way:
                batch.start(under_way)
            for i, one in enumerate(members):
                try:
                    if one not in faults:
                        one.absorb(found[i])
                except ChainFaultError as error:
                    faults[one] = error
        return faults


def _stretch(members: Sequence[PointChain], made: int) -> int:
    """Return how many sweeps are made next, after `made` that are not absorbed: up to links that the host measures."""
    runs = [point.run for point in _points(members)]
    return min([STRETCH, *(r.besides.until_due(r.log.end + made) for r in runs if r.besides.observables)])


def _is_measured(members: Sequence[PointChain], made: int) -> bool:
    """Return whether the host measures the links of any chain after `made` sweeps that are not absorbed."""
    return any(point.run.besides.is_due(point.run.log.end + made - 1) for point in _points(members))


def _points(members: Sequence[PointChain]) -> list[LatticePoint]:
    return [one for one in members if isinstance(one, LatticePoint)]


def _chains(members: Sequence[PointChain]) -> list[Chain]:
    return [point.run.chain for point in _points(members)]
