r"""Faults put into trajectories on purpose: what checks of a trajectory are tested with.

| fault | what happens |
| --- | --- |
| `nan` | a velocity is not a number when a segment begins |
| `kick` | a particle is five times as fast when a segment begins: energy and momentum from nowhere |
| `pair` | two particles are, in opposite directions: energy alone |
| `swap` | two particles change places in the memory of velocities: nothing that is conserved tells |

A fault is in the memory of one process: a trajectory that is taken up from its checkpoint has none.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

import numpy as np

from metalforge.core.rows import Row
from metalforge.native.engine import ParticleSamples

from .box import Asked, Particles
from .trajectory import TrajectoryRun

ParticleFault = Literal["nan", "kick", "pair", "swap"]
PARTICLE_FAULTS: tuple[ParticleFault, ...] = get_args(ParticleFault)


def inject_particles(particles: Particles, fault: ParticleFault) -> None:
    """Put a fault into particles."""
    velocities = particles.velocities
    if fault == "nan":
        velocities[0, 0] = np.nan
    elif fault == "swap":
        velocities[[0, 1]] = velocities[[1, 0]]
    else:
        given = 4 * velocities[0]
        velocities[0] += given
        if fault == "pair":
            velocities[1] -= given


@contextmanager
def particle_faults_at(
    planned: Mapping[tuple[int, int], ParticleFault],
) -> Iterator[dict[tuple[int, int], ParticleFault]]:
    """Let faults happen once in trajectories of this process, by (stream, segment); gives what has not happened."""
    left, following = dict(planned), TrajectoryRun.following

    def spoiled(run: TrajectoryRun) -> Generator[Asked, ParticleSamples, Row]:
        if (fault := left.pop((run.spec.stream, run.log.end), None)) is not None:
            inject_particles(run.particles, fault)
        return following(run)

    TrajectoryRun.following = spoiled  # type: ignore[assignment,method-assign]
    try:
        yield left
    finally:
        TrajectoryRun.following = following  # type: ignore[method-assign]
