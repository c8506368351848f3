"""Trajectories that move at once on one engine: a segment of each, thousands of steps.

Before the next segment a bath may be left.
"""

from collections.abc import Callable, Sequence

from metalforge.campaign import Faults, PointLadder
from metalforge.core import ChainFaultError
from metalforge.plasma.trajectory import TrajectoryBatch

from .point import PlasmaPoint


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


def _trajectories(members: Sequence[PointLadder]) -> list[PlasmaPoint]:
    return [point for one in members for point in one.points if isinstance(point, PlasmaPoint)]
