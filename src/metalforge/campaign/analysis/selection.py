"""Which chains of a campaign can be joined: long enough and overlapping; and why the others cannot.

A steered campaign leaves chains of all lengths at all places. They are taken in order and cut where neighbours do not
overlap; the cluster with the largest measured susceptibility is used. Nothing is dropped without a word, and
nothing for disagreeing with the rest: at a first-order point that is the physics, and evidence against a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Observation, SpecError
from metalforge.statistics import MIN_OVERLAP, ChainRows, NotLocated, pair_overlap, pooled_tau

System = tuple[int, ...]
Floats = NDArray[np.float64]
FEWEST_ROWS = 20
"""Rows below which a chain is not looked at."""
FEWEST_TAU = 2.0
"""Length below which a chain is left out, in tau_int: it may not yet have left its first state."""
SURE_OVERLAP = 2.0
"""Distance of two means of E, in standard deviations, below which the overlap is above 0.4 and need not be computed."""
BLOCK_TAU = 3.0
"""Length of a block, in tau_int. Short ones, because what they miss is made up for (`histograms`) while too few of them
cannot be: with 6 tau_int and more, errors from chains of 30 tau_int came out a third too small on an exact model."""
MOST_BLOCKS = 6000
"""Blocks of all chains together, about: errors are then known to 1 %, and tables of more take gigabytes."""
OBSERVED_ROWS = 30
"""Rows below which a steerer is told nothing."""
OBSERVED_TAU = 6.0
"""Rows, in tau_int, below which it is told nothing: three independent samples have no variance worth a name."""


class PointSeries(NamedTuple):
    """The measured rows of one chain, after its warm-up: E, and the order parameter whose fluctuations are looked at.

    A configuration has the weight exp(-coordinate E) times what does not depend on the coordinate; chi is `volume`
    times the variance of the order parameter.
    """

    coordinate: float
    system: System
    energy: Floats
    order: Floats
    volume: int
    start: str = ""
    """Where the chain began, where that is known."""
    chain: str = ""
    """What the chain is called, where it has a name."""
    order_name: str = "the order parameter"
    """How `order` is called in sentences."""

    def up_to(self, rows: int | None) -> "PointSeries":
        """Return the first rows of it; None is all."""
        return self._replace(energy=self.energy[:rows], order=self.order[:rows])


class LeftOutChain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain that was not used, and why."""

    coordinate: float
    rows: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredChain(ChainRows):
    """A chain with the longer of its tau_int, chi and its error."""

    point: PointSeries
    chi: float
    chi_error: float

    def remembering(self, tau: float) -> "MeasuredChain":
        """Return the chain with another tau_int, and the error of chi that goes with it."""
        chi, error = measured_chi(self.order, self.point.volume, tau)
        return replace(self, tau=tau, chi=chi, chi_error=error)

    def leave_out(self, reason: str) -> LeftOutChain:
        """Return the record of a chain that is not used."""
        return LeftOutChain(coordinate=self.coordinate, rows=self.energy.size, reason=reason)


def prepare(points: Sequence[PointSeries]) -> tuple[list[MeasuredChain], list[LeftOutChain]]:
    """Return the chains that are long enough, in order, and the others.

    The order does not depend on the order of the points: a campaign that was resumed gives the same numbers.
    """
    if not points:
        raise NotLocated("no chain was measured\nhint: measure at a few places across the range first")
    left, kept = [], []
    for p in sorted(map(_read, points), key=lambda p: (p.coordinate, p.energy.size, tuple(-p.energy[:1]))):
        if p.energy.size < FEWEST_ROWS:
            reason = f"fewer than {FEWEST_ROWS} rows"
            left.append(LeftOutChain(coordinate=p.coordinate, rows=p.energy.size, reason=reason))
        else:
            kept.append(p)
    if not kept:
        return [], left
    coordinates = np.array([p.coordinate for p in kept])
    energies, orders = [p.energy for p in kept], [p.order for p in kept]
    spread = float(np.median([e.std() for e in energies]))
    tau_energy, tau_order = pooled_tau(coordinates, energies, spread), pooled_tau(coordinates, orders, spread)
    usable = []
    for point, energy, order, of_energy, of_order in zip(kept, energies, orders, tau_energy, tau_order, strict=True):
        tau = float(max(of_energy, of_order))
        chi, error = measured_chi(order, point.volume, tau)
        chain = MeasuredChain(point.coordinate, energy, order, tau, point, chi, error)
        if energy.size < FEWEST_TAU * tau:
            left.append(chain.leave_out(f"{energy.size} rows are less than {FEWEST_TAU:g} tau_int, {tau:.3g}"))
        elif np.ptp(energy) == 0 or np.ptp(order) == 0:
            left.append(chain.leave_out("every row is the same: the chain is stuck"))
        else:
            usable.append(chain)
    return usable, left


def _read(point: PointSeries) -> PointSeries:
    """Return what a caller said of a chain with its rows as arrays; raises where it cannot be reweighted."""
    try:
        energy, order = (np.asarray(rows) for rows in (point.energy, point.order))
        alike = (
            energy.ndim == 1 and energy.shape == order.shape and {energy.dtype.kind, order.dtype.kind} <= set("biuf")
        )
        sound = alike and bool(np.isfinite([point.coordinate, energy.sum(), order.sum()]).all())
    except ValueError:  # rows of different lengths
        sound = False
    if not sound:
        raise SpecError(
            f"the chain at {point.coordinate:g} must have a finite, real E and order parameter in every row"
        )
    if not 0 < point.volume < np.inf:
        raise SpecError(f"the chain at {point.coordinate:g} must have a `volume` above 0. Got {point.volume}")
    return point._replace(energy=energy.astype(np.float64, copy=False), order=order.astype(np.float64, copy=False))


def measured_chi(order: Floats, spatial_volume: int, tau: float) -> tuple[float, float]:
    r"""Return chi = V_s (<|L|^2> - <|L|>^2) of one chain whose |L| has tau_int `tau`, and its standard error.

    The mean taken off is the chain's own, which makes the plain variance too small by 2 tau / n: made up for. The
    squared fluctuation of an exponential process forgets in tau / 2, and n rows hold n / tau independent ones of it,

        error^2 = chi^2 (B4 - 1) tau / n,     B4 = <dL^4> / <dL^2>^2 (at least 2, the value between one and two peaks).
    """
    n = order.size
    deviation = order - order.mean()
    variance = float(np.mean(deviation**2))
    independent = max(n / (2 * tau), 1.5)
    b4 = max(float(np.mean(deviation**4)) / variance**2, 2.0) if variance > 0 else 2.0
    chi = spatial_volume * variance / (1 - 1 / independent)
    return chi, chi * float(np.sqrt((b4 - 1) * max(tau, 1.0) / n))


def observe(point: PointSeries, *, id: str, cost: float) -> Observation | None:
    """Return chi of the order parameter of one chain with its error; None while the chain is too short to say.

    `id` names the chain and `cost` is what it took so far, warm-up included, in the campaign's units. The error is
    that of `measured_chi`, from tau_int of the order parameter rather than from the scatter of few squared
    fluctuations, which is small by chance in a short chain.
    """
    order = point.order
    if order.size < OBSERVED_ROWS or np.ptp(order) == 0:
        return None
    tau = float(pooled_tau(np.array([point.coordinate]), [order], 1.0)[0])
    if order.size < OBSERVED_TAU * tau:
        return None
    chi, error = measured_chi(order, point.volume, tau)
    return Observation(coordinate=point.coordinate, value=chi, error=error, cost=cost, id=id)


def neighbours(chains: Sequence[MeasuredChain]) -> list[list[MeasuredChain]]:
    """Return the chains by coordinate, in ascending order: those at one place together."""
    groups: list[list[MeasuredChain]] = []
    for chain in chains:
        if groups and chain.coordinate == groups[-1][0].coordinate:
            groups[-1].append(chain)
        else:
            groups.append([chain])
    return groups


def clusters(chains: Sequence[MeasuredChain]) -> list[list[MeasuredChain]]:
    """Return the chains, in order, cut where neighbours do not overlap."""
    groups = neighbours(chains)
    found = [list(groups[0])] if groups else []
    for low, high in pairwise(groups):
        if _overlaps(low, high):
            found[-1].extend(high)
        else:
            found.append(list(high))
    return found


def block_lengths(chains: Sequence[MeasuredChain]) -> list[int]:
    """Return the block length of each chain, 3 tau_int, at most the chain.

    Blocks are longer where there would be more than thousands of them.
    """
    taus = [chain.tau for chain in chains]
    blocks = sum(chain.energy.size / (BLOCK_TAU * tau) for tau, chain in zip(taus, chains, strict=True))
    longer = BLOCK_TAU * max(1.0, blocks / MOST_BLOCKS)
    return [max(1, min(int(np.ceil(longer * tau)), chain.energy.size)) for tau, chain in zip(taus, chains, strict=True)]


def overlap(low: Sequence[MeasuredChain], high: Sequence[MeasuredChain]) -> float:
    """Return the overlap in E of the chains at two neighbouring points, 0 to 1, from at most 1000 rows of each."""
    below, above = (np.concatenate([chain.energy for chain in group]) for group in (low, high))
    stride = [max(1, rows.size // 1000) for rows in (below, above)]
    return pair_overlap(low[0].coordinate, below[:: stride[0]], high[0].coordinate, above[:: stride[1]])


def _overlaps(low: Sequence[MeasuredChain], high: Sequence[MeasuredChain]) -> bool:
    below, above = (np.concatenate([chain.energy for chain in group]) for group in (low, high))
    distance = abs(below.mean() - above.mean()) / max(np.sqrt((below.var() + above.var()) / 2), 1e-300)
    return bool(distance < SURE_OVERLAP) or overlap(low, high) >= MIN_OVERLAP
