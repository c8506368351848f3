r"""The phases at a peak: how the order parameter is distributed, crossings between them, and the memory they imply.

Where two phases coexist, a chain forgets by crossing between them. A symmetric process with two states that crosses c
times in n rows has

    tau_int = n / (2 c),

known to c^(-1/2): a few percent where its autocorrelation, summed over a window of 6 tau_int, gives it to
(20 tau_int / n)^(1/2), a quarter. Whoever stops when there are enough independent blocks stops sooner where tau_int
came out small; where it is taken from crossings (`remembering`) that hardly happens. Beside the peak one phase is
rarer, and crossings are, too:

    tau_int = share (1 - share) / flux,     flux = crossings upwards in an update = <crossing in this row> / 2.

Both are averages over rows, and are reweighted as any other to where each chain is: one that never crossed has
the memory that its neighbours' crossings give it, and counts for as little.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.statistics import Joint, pooled_tau

from .selection import MeasuredChain

Floats = NDArray[np.float64]
TWO_PEAKS = 0.7
"""Depth of the valley in the distribution, over its lower maximum, below which there are two phases."""
GRID = 64
"""Places at which the distribution is looked at."""
FEWEST = 24.0
"""Crossings from which tau_int is taken from them: fewer would leave less than the eight blocks that an error needs,
and too few to establish anything."""


class Shape(NamedTuple):
    """How the order parameter is distributed at one place: mean, standard deviation, and the depth of its valley."""

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


class PhaseTrack(NamedTuple):
    """Where a chain was: in every row whether in the upper of two phases, and whether inside one or on its way.

    `between` is how long it remembers in which phase it is, in rows: the tau_int of a process with two states, None
    where there is one or that is not known; `within` are those of E, of the order parameter and of its square, inside
    a phase and without their means there.
    """

    upper: NDArray[np.bool_]
    inside: NDArray[np.bool_]
    between: float | None
    within: tuple[float, float, float]


def shape_at(joint: Joint, chains: Sequence[MeasuredChain], coordinate: float) -> Shape:
    """Return the distribution of the order parameter reweighted to coordinate, smoothed."""
    order, weight = weights_at(joint, chains, coordinate)
    mean = float(weight @ order)
    spread = float(np.sqrt(weight @ (order - mean) ** 2))
    n_effective = float(joint.n_effective(np.array([coordinate]))[0])
    return Shape(mean, spread, _valley(density_of(order, weight, n_effective)[1]))


def weights_at(joint: Joint, chains: Sequence[MeasuredChain], coordinate: float) -> tuple[Floats, Floats]:
    """Return the order parameter in every row of the joined chains, and the normalised weights of the rows there."""
    energy = np.concatenate([chain.energy for chain in chains])
    per_row = np.concatenate([np.full(chain.energy.size, 1 / (2 * chain.tau)) for chain in chains])
    weight = per_row * joint.row_weights(energy, coordinate)
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


def sides(order: Floats, low: float, high: float) -> NDArray[np.bool_]:
    """Return in every row whether a series is in the upper phase: since it was above `high`, until below `low`."""
    outside = np.flatnonzero((order < low) | (order > high))
    if not outside.size:
        return np.zeros(order.size, dtype=np.bool_)
    last = np.searchsorted(outside, np.arange(order.size), side="right") - 1
    # Rows before the first one outside count as that one does.
    return np.asarray(order[outside[np.maximum(last, 0)]] > high, dtype=np.bool_)


def transits(order: Floats, low: float, high: float) -> NDArray[np.int64]:
    """Return the rows in the middle of each way from below `low` to above `high` or back."""
    outside = np.flatnonzero((order < low) | (order > high))
    above = order[outside] > high
    change = np.flatnonzero(above[1:] != above[:-1])
    return np.asarray((outside[change] + outside[change + 1]) // 2, dtype=np.int64)


def crossings(order: Floats, low: float, high: float) -> int:
    """Return how often a series went from below `low` to above `high` or back."""
    return transits(order, low, high).size


def remembering(
    joint: Joint, chains: Sequence[MeasuredChain], coordinate: float, width: float
) -> tuple[list[MeasuredChain], list[PhaseTrack], float | None]:
    """Return the chains with the tau_int that two phases give them, where each was, and how well it is known.

    Only where there are two phases, and enough crossings within `width` of `coordinate` to say it: elsewhere the chains
    are as they were, everywhere in one phase, and None comes with them.
    """
    shape = shape_at(joint, chains, coordinate)
    near = [chain for chain in chains if abs(chain.coordinate - coordinate) <= width]
    count = sum(crossings(chain.order, *shape.thresholds) for chain in near)
    if not shape.two_phases or count < FEWEST:
        return list(chains), _in_one_phase(joint, chains), None
    upper = [sides(chain.order, *shape.thresholds) for chain in chains]
    inside = [(c.order < shape.thresholds[0]) | (c.order > shape.thresholds[1]) for c in chains]
    slow, fast = _between(joint, chains, upper, shape), _within(joint, chains, upper, inside)
    known, tracks = [], []
    for chain, above, there, between, within in zip(chains, upper, inside, slow, fast, strict=True):
        known.append(chain.remembering(max(between, *within)))
        tracks.append(PhaseTrack(above, there, between, within))
    return known, tracks, count**-0.5


def _in_one_phase(joint: Joint, chains: Sequence[MeasuredChain]) -> list[PhaseTrack]:
    """Return the tracks of chains that are everywhere in the only phase."""
    inside = [np.ones(chain.order.size, dtype=np.bool_) for chain in chains]
    within = _within(joint, chains, inside, inside)
    taus = [(c.tau, c.tau, of_square) for c, (_, _, of_square) in zip(chains, within, strict=True)]
    return [PhaseTrack(~there, there, None, tau) for there, tau in zip(inside, taus, strict=True)]


def _between(
    joint: Joint, chains: Sequence[MeasuredChain], upper: Sequence[NDArray[np.bool_]], shape: Shape
) -> list[float]:
    """Return how long a chain that is alone at each one's coordinate remembers its phase."""
    energy, coordinates = (
        np.concatenate([chain.energy for chain in chains]),
        np.array([chain.coordinate for chain in chains]),
    )
    weight = [np.full(c.energy.size, 1 / (2 * c.tau)) for c in chains]
    crossed = [np.zeros_like(one) for one in weight]
    for chain, rows, one in zip(chains, weight, crossed, strict=True):
        middle = transits(chain.order, *shape.thresholds)
        one[middle] = rows[middle]
    rows = np.concatenate(weight)
    all, above, across = joint.weigh(energy, (rows, rows * np.concatenate(upper), np.concatenate(crossed)), coordinates)
    # Half of all crossings go up.
    return [float(tau) for tau in 2 * above * (all - above) / np.maximum(all * across, 1e-300)]


def _within(
    joint: Joint,
    chains: Sequence[MeasuredChain],
    upper: Sequence[NDArray[np.bool_]],
    inside: Sequence[NDArray[np.bool_]],
) -> list[tuple[float, float, float]]:
    """Return tau_int of E, of the order parameter and of its square inside the phases, without their means there."""
    energy, order, square = [], [], []
    for chain, *where in zip(chains, upper, inside, strict=True):
        energy.append(_without_means(chain.energy, *where))
        order.append(_without_means(chain.order, *where))
        square.append(_without_means(order[-1] ** 2, *where))
    coordinates = np.array([chain.coordinate for chain in chains])
    taus = [pooled_tau(coordinates, series, joint.spread).tolist() for series in (energy, order, square)]
    return list(zip(*taus, strict=True))


def _without_means(series: Floats, upper: NDArray[np.bool_], inside: NDArray[np.bool_]) -> Floats:
    """Return a series without its mean in either phase, and 0 between them."""
    left = np.zeros(series.size)
    for phase in (inside & upper, inside & ~upper):
        if phase.any():
            left[phase] = series[phase] - series[phase].mean()
    return left
