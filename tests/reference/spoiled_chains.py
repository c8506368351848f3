r"""Faults that happen at planned updates of chains and trajectories of this process, to test what checks find.

Of chains of links: those of `experiments.chain_faults`. Of trajectories:

| fault | what happens |
| --- | --- |
| `nan` | a velocity is not a number when a segment begins |
| `kick` | a particle is five times as fast when a segment begins: energy and momentum from nowhere |
| `pair` | two particles are, in opposite directions: energy alone |
| `swap` | two particles change places in the memory of velocities: nothing that is conserved tells |

A fault is in the memory of one process: a trajectory that is taken up from its checkpoint has none.
"""

from contextlib import contextmanager

import numpy as np

from experiments.chain_faults import inject
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.chain import Chain
from metalforge.plasma.trajectory import TrajectoryRun


@contextmanager
def faults_at(planned, seed=0):
    """Let faults happen once in chains of this process; `planned` says by (stream, step) before which update.

    Gives what has not happened yet. In a batch a fault happens where the stretch begins that holds its step.
    """
    left = dict(planned)
    update, take_up = Chain.update, ChainBatch.take_up

    def updating(chain, **options):
        key = chain.spec.stream, chain.step
        if (fault := left.pop(key, None)) is not None:
            inject(chain, fault, np.random.default_rng([seed, *key]))
            return chain.update(**options)
        return update(chain, **options)

    def taking(batch, chains=None):
        for chain in batch.chains if chains is None else chains:
            due = [(stream, step) for stream, step in left if stream == chain.spec.stream and step <= chain.step]
            for key in due:
                inject(chain, left.pop(key), np.random.default_rng([seed, *key]))
        take_up(batch, chains)

    Chain.update, ChainBatch.take_up = updating, taking
    try:
        yield left
    finally:
        Chain.update, ChainBatch.take_up = update, take_up


def inject_particles(particles, fault):
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
def particle_faults_at(planned):
    """Let faults happen once in trajectories of this process, by (stream, segment); gives what has not happened."""
    left, following = dict(planned), TrajectoryRun.following

    def spoiled(run):
        if (fault := left.pop((run.spec.stream, run.log.end), None)) is not None:
            inject_particles(run.particles, fault)
        return following(run)

    TrajectoryRun.following = spoiled
    try:
        yield left
    finally:
        TrajectoryRun.following = following
