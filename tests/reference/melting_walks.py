"""Trajectories of half a crystal that melts or grows as a walk with drift, whose zero is known."""

import math

import numpy as np

from metalforge.plasma.campaign.transport import SegmentRows
from metalforge.plasma.spec import PlasmaSpec

MELTS = math.log(217.0)
SLOPE = 0.02
SEGMENT = 20.0


def rows_of(chain, at, order, gamma=None, energy=0.0):
    """Return a trajectory with this order in each segment; its temperature is that of where it was aimed at."""
    n = len(order)
    spec = PlasmaSpec(gamma=math.exp(at), kappa=1.0, particles=2000, start="two-phase")
    temperature = np.full(n, 1 / (math.exp(at) if gamma is None else gamma))
    kinetic = 1.5 * temperature * spec.particles
    columns = {
        "order": np.asarray(order, float),
        "temperature": temperature,
        "kinetic": kinetic,
        "potential": energy * np.arange(n) * spec.particles - kinetic,
    }
    return SegmentRows(chain, at, spec, SEGMENT, columns, 1e6)


def walk(rng, at, *, melts=MELTS, segments=14, noise=0.006, bend=0.0):
    """Return a trajectory of a walk with drift, until a phase is gone; half of the box is crystal at first.

    `bend` is by how much less the drift rises, for each unit of ln Gamma: crystals melt faster than they grow.
    """
    drift = SLOPE * (at - melts) * (1 - bend * (at - melts))
    steps = drift * SEGMENT + noise * math.sqrt(SEGMENT) * rng.normal(size=segments)
    order = np.clip(0.42 + np.cumsum(steps), 0.03, 0.75)
    for i in range(1, segments):
        if order[i - 1] in (0.03, 0.75):
            order[i] = order[i - 1]
    return order
