"""Batches of a campaign, one class for each physics: they move ladders of one kind at once.

A batch of links makes sweeps in stretches, and the host takes the rows of one while the engine makes the next: sweeps
of warm-up and of measurement are the same updates. A batch of particles makes a segment, thousands of steps: before
the next one a bath may be left.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from metalforge.core.rows import ChainFaultError
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.chain import Chain
from metalforge.plasma.trajectory import TrajectoryBatch

from .ladder import PointLadder
from .plasma_point import PlasmaPoint

STRETCH = 64
"""Sweeps between two looks at whether the campaign stops."""

Faults = dict[PointLadder, ChainFaultError]
"""What went wrong with which."""


class LadderBatch(Protocol):
    """Room for so many ladders of one kind."""

    def move(self, members: Sequence[PointLadder], stopping: Callable[[], bool]) -> Faults:
        """Move as many as it has room for, by no more than is left for one of them, or to where the campaign stops."""


def batch_for(members: Sequence[PointLadder]) -> LadderBatch:
    """Return room for these and as many others of their kind; raises `PlacementError` where they do not fit."""
    particles = isinstance(members[0].points[0], PlasmaPoint)
    return ParticlesTogether(members) if particles else LinksTogether(members)


class LinksTogether:
    """Chains, or ladders of them, as a `ChainBatch`."""

    def __init__(self, members: Sequence[PointLadder]) -> None:
        self._batch = ChainBatch(_chains(members), rungs=len(members[0].points), energies=_energies(members))
        self._fresh = True

    def move(self, members: Sequence[PointLadder], stopping: Callable[[], bool]) -> Faults:
        """Make sweeps up to the least that is left for one of them."""
        faults: Faults = {}
        batch = self._batch
        if not self._fresh:
            batch.take_up(_chains(members), _energies(members))
        self._fresh = False
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
                    faults[one] = error
        return faults


class ParticlesTogether:
    """Trajectories as a `TrajectoryBatch`."""

    def __init__(self, members: Sequence[PointLadder]) -> None:
        self._batch = TrajectoryBatch([point.run for point in _trajectories(members)])

    def move(self, members: Sequence[PointLadder], stopping: Callable[[], bool]) -> Faults:
        """Follow one segment of each."""
        faults: Faults = {}
        points = _trajectories(members)
        for one, point, row in zip(members, points, self._batch.step([p.run for p in points]), strict=True):
            try:
                if isinstance(row, ChainFaultError):
                    raise row
                point.take(row)
            except ChainFaultError as error:
                faults[one] = error
        return faults


def _chains(members: Sequence[PointLadder]) -> list[Chain]:
    return [chain for one in members for chain in one.chains]


def _energies(members: Sequence[PointLadder]) -> list[float]:
    return [energy for one in members for energy in one.energies()]


def _trajectories(members: Sequence[PointLadder]) -> list[PlasmaPoint]:
    return [point for one in members for point in one.points if isinstance(point, PlasmaPoint)]
