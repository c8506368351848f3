r"""The phases at a peak: how the order parameter is distributed, crossings between them, and the memory they imply.

Where two phases coexist, a chain forgets by crossing between them. A symmetric process with two states that crosses c
times in n rows has

    tau_int = n / (2 c),

known to c^(-1/2): a few percent where its autocorrelation, summed over a window of 6 tau_int, gives it to
(20 tau_int / n)^(1/2), a quarter. Whoever stops when there are enough independent blocks stops sooner where tau_int
came out small; where it is taken from crossings (`remembering`) that hardly happens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.statistics.histograms import Joint

from .selection import MeasuredChain
from .series import PointSeries

Floats = NDArray[np.float64]
TWO_PEAKS = 0.7
"""Depth of the valley in the distribution, over its lower maximum, below which there are two phases."""
GRID = 64
"""Places at which the distribution is looked at."""
FEWEST = 24.0
"""Crossings from which tau_int is taken from them: fewer would leave less than the eight blocks that an error needs,
and too few to establish anything."""


class Shape(NamedTuple):
    """How the order parameter is distributed at some beta: mean, standard deviation, and the depth of its valley."""

    mean: float
    spread: float
    valley: float

    @property
    def two_phases(self) -> bool:
        """Whether it has two maxima with a deep valley between them."""
        return self.valley < TWO_PEAKS

    @property
    def kind(self) -> str:
        """What it counts as, in words."""
        return "two phases" if self.two_phases else "one phase"

    @property
    def thresholds(self) -> tuple[float, float]:
        """Below the first a chain is taken to be in one phase, above the second in the other."""
        return self.mean - self.spread / 2, self.mean + self.spread / 2


def shape_at(joint: Joint, chains: Sequence[MeasuredChain], beta: float) -> Shape:
    """Return the distribution of the order parameter reweighted to beta, smoothed."""
    order, weight = weights_at(joint, chains, beta)
    mean = float(weight @ order)
    spread = float(np.sqrt(weight @ (order - mean) ** 2))
    n_effective = float(joint.n_effective(np.array([beta]))[0])
    return Shape(mean, spread, _valley(density_of(order, weight, n_effective)[1]))


def weights_at(joint: Joint, chains: Sequence[MeasuredChain], beta: float) -> tuple[Floats, Floats]:
    """Return the order parameter in every row of the joined chains, and the rows' normalised weights at beta."""
    energy = np.concatenate([chain.energy for chain in chains])
    per_row = np.concatenate([np.full(chain.energy.size, 1 / (2 * chain.tau)) for chain in chains])
    weight = per_row * joint.row_weights(energy, beta)
    return np.concatenate([chain.order for chain in chains]), weight / weight.sum()


def density_of(order: Floats, weight: Floats, n_effective: float) -> tuple[Floats, Floats]:
    """Return places and a kernel estimate of the density of the order parameter there, its width by Silverman's rule.

    (B. W. Silverman, "Density estimation", 1986, eq. (3.31), with 0.9 sd n^(-1/5); at two phases sd is their distance,
    so that it smooths too much rather than too little.)
    """
    mean = weight @ order
    spread = np.sqrt(weight @ (order - mean) ** 2)
    width = 0.9 * spread * max(n_effective, 2.0) ** -0.2
    fine = np.linspace(order.min() - 2 * width, order.max() + 2 * width, 8 * GRID + 1)
    counts, edges = np.histogram(order, fine, weights=weight)
    middle = (edges[1:] + edges[:-1]) / 2
    at = np.linspace(fine[0], fine[-1], GRID)
    kernel = np.exp(-0.5 * ((at[:, None] - middle[None, :]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return at, np.asarray(kernel @ counts, dtype=np.float64)


def _valley(density: Floats) -> float:
    """Return the lowest place between the two highest maxima over the lower of them; 1 where there is one maximum."""
    inner = density[1:-1]
    tops = np.flatnonzero((inner >= density[:-2]) & (inner > density[2:])) + 1
    deepest = 1.0
    highest = tops[np.argmax(density[tops])] if tops.size else 0
    for top in tops:
        if top != highest:
            between = density[min(top, highest) : max(top, highest) + 1].min()
            # A bump in a tail is no phase: it must hold a tenth of the highest.
            if density[top] > 0.1 * density[highest]:
                deepest = min(deepest, float(between / density[top]))
    return deepest


def crossings(order: Floats, low: float, high: float) -> int:
    """Return how often a series went from below `low` to above `high` or back."""
    side = np.where(order > high, 1, np.where(order < low, -1, 0))
    side = side[side != 0]
    return int(np.count_nonzero(side[1:] != side[:-1]))


def phase_changes(near: Sequence[PointSeries], points: Sequence[PointSeries], low: float, high: float) -> int:
    """Return how often some of the chains crossed; those of ladders along their replicas, at all couplings.

    By coupling, a ladder crosses whenever replicas swap: that moves a configuration and makes none.
    """
    tracks = [point.order for point in near if not point.ladder]
    for ladder in {point.ladder for point in near} - {""}:
        tracks += replica_tracks([point for point in points if point.ladder == ladder])
    return sum(crossings(track, low, high) for track in tracks)


def replica_tracks(rungs: Sequence[PointSeries]) -> list[Floats]:
    """Return the order parameter along each replica of a ladder, in time; where its coupling is not here, a gap."""
    replicas = np.array([point.replica for point in rungs])
    orders = np.array([point.order for point in rungs])
    tracks = []
    for replica in np.unique(replicas):
        here = replicas == replica
        times = np.flatnonzero(here.any(axis=0))
        tracks.append(np.asarray(orders[here.argmax(axis=0)[times], times], dtype=np.float64))
    return tracks


def remembering(
    joint: Joint, chains: Sequence[MeasuredChain], beta: float, width: float
) -> tuple[list[MeasuredChain], float | None]:
    """Return the chains, those within `width` of beta with tau_int by their crossings, and how well it is known.

    Only where there are two phases at beta, and enough crossings to say it: elsewhere the chains are as they were, and
    None comes with them.
    """
    shape = shape_at(joint, chains, beta)
    near = [chain for chain in chains if abs(chain.beta - beta) <= width]
    count = phase_changes([c.point for c in near], [c.point for c in chains], *shape.thresholds)
    if not shape.two_phases or count < FEWEST:
        return list(chains), None
    tau = sum(chain.energy.size for chain in near) / (2 * count)
    # A ladder remembers at least as long as its couplings do together (`selection`).
    known = {c: c.remembering(max(tau, c.tau) if c.point.ladder else tau) for c in near}
    return [known.get(c, c) for c in chains], count**-0.5
