"""Trajectories that move at once on one engine: a segment of each, thousands of steps.

Before the next segment a bath may be left.
"""

from collections.abc import Callable, Sequence

from metalforge.campaign import Faults, PointChain
from metalforge.core import ChainFaultError
from metalforge.plasma.trajectory import TrajectoryBatch

from .point import PlasmaPoint


class ParticlesTogether:
    """Trajectories as a `TrajectoryBatch`."""

    def __init__(self, members: Sequence[PointChain]) -> None:
        self._batch = TrajectoryBatch([point.run for point in _trajectories(members)])

    def move(self, members: Sequence[PointChain], stopping: Callable[[], bool]) -> Faults:
        """Follow one segment of each."""
        faults: Faults = {}
        points = _trajectories(members)
        for point, row in zip(points, self._batch.step([p.run for p in points]), strict=True):
            try:
                if isinstance(row, ChainFaultError):
                    raise row
                point.take(row)
            except ChainFaultError as error:
                faults[point] = error
        return faults


def _trajectories(members: Sequence[PointChain]) -> list[PlasmaPoint]:
    return [one for one in members if isinstance(one, PlasmaPoint)]
