r"""Where the plasma freezes: trajectories that begin half crystal, half fluid, and how fast which half grows.

Near Gamma_m an interface moves with a velocity that is proportional to the distance from it, and `order`, |rho_k| / N
of the crystal's own wave vectors, changes with the part of the box that is crystal; with y = ln Gamma - ln Gamma_m,

    d order / dt = s y + q y^2 + noise,     s > 0.

Crystals melt faster than they grow as far away, so q < 0, and a line through trajectories of a wide range crosses zero
1 to 2 % too late. Each trajectory gives one rate: the slope of its order over the time t in which both phases were
there, at the Gamma it measured meanwhile. The noise is that of a walk, so that the variance of a rate falls as 1 / t,
and the parabola is a fit with weights t, its powers p(y) with the covariance sigma^2 C, sigma^2 from the residuals.
Gamma_m is where it crosses zero:

    error^2 = (sigma / s)^2 p(0)^T C p(0),

times what Student's t has over a Gaussian. A bracket between one that melted and one that grew would be half as wide
as its luckiest trajectory says.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign import Crossing, Evidence, PlannedPoints, at_least, at_most, crossing_of
from metalforge.core import Observation

from .transport import MOST_DRIFT, SegmentRows, drift_of

Floats = NDArray[np.float64]
FIRST = 2
"""Segments at constant energy that are left out: interfaces still find their shape."""
FEWEST_SEGMENTS = 4
"""With both phases there, for a rate; and those that a trajectory must have for anything."""
BOTH = (0.2, 0.6)
"""Orders between which both phases are there: a crystal has some 0.75 near its melting, half of one half of that."""
FAST = 4e-3
"""Rate, in omega_p, told of one that was over before it could be measured: some times the fastest that can be."""
WALK = 0.006
"""Deviation of the order of a walk after 1/omega_p, about: what a rate's error is taken for before residuals say."""
FEWEST_RATES, FEWEST_OF_A_KIND = 10, 4
"""Trajectories with a rate; and those of them whose crystals melted, and grew."""
STEEP = 3.0
"""Errors by which the slope of the curve at its zero must be above zero."""
NARROW = 0.015
"""Error of ln Gamma_m that is established: two of them are three percent."""


class PhaseGrowth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one trajectory did: its order at first and at its end, and the rate between, where both phases were there.

    `gamma` is the mean of what was measured meanwhile, `time` how long that was; without a rate that of all segments.
    """

    chain: str
    at: float
    gamma: float
    began: float
    ended: float
    rate: float | None
    time: float
    segments: int

    @property
    def phase(self) -> int:
        """1 where the crystal grew, -1 where it melted."""
        if self.rate is not None:
            return 1 if self.rate > 0 else -1
        return 1 if self.ended > sum(BOTH) / 2 else -1


class FreezingFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ln Gamma_m with its error, what each trajectory did, and the evidence."""

    trajectories: tuple[PhaseGrowth, ...]
    log_gamma: float | None
    error: float | None
    evidence: tuple[Evidence, ...]

    @property
    def established(self) -> bool:
        """Whether the number may be quoted."""
        return self.log_gamma is not None and all(item.holds for item in self.evidence)

    @property
    def value(self) -> float | None:
        """Ln Gamma_m."""
        return self.log_gamma

    @property
    def said(self) -> str:
        """The number in words."""
        if self.log_gamma is None or self.error is None:
            return "no coupling yet at which the crystal melts and one at which it grows"
        gamma = math.exp(self.log_gamma)
        rates = sum(one.rate is not None for one in self.trajectories)
        return f"Gamma_m = {gamma:.4g} +- {gamma * self.error:.2g} (where {rates} rates of growth cross zero)"


def growth_of(rows: SegmentRows) -> PhaseGrowth | None:
    """Return what a trajectory did; None while it is too short to say, or has numbers that are none."""
    order, temperature = rows.columns["order"], rows.columns["temperature"]
    if rows.segments < FIRST + FEWEST_SEGMENTS or not (np.isfinite(order).all() and np.isfinite(temperature).all()):
        return None
    outside = np.flatnonzero((order[FIRST:] <= BOTH[0]) | (order[FIRST:] >= BOTH[1]))
    there = slice(FIRST, FIRST + int(outside[0]) if outside.size else rows.segments)
    count = there.stop - there.start
    rate = None
    if count >= FEWEST_SEGMENTS:
        centred = np.arange(count) - (count - 1) / 2
        rate = float(centred @ order[there] / (centred @ centred)) / rows.segment
    else:
        there = slice(FIRST, rows.segments)
    return PhaseGrowth(
        chain=rows.chain,
        at=rows.at,
        gamma=float(1 / temperature[there].mean()),
        began=float(order[FIRST]),
        ended=float(order[-1]),
        rate=rate,
        time=count * rows.segment,
        segments=rows.segments,
    )


def observed_growth(rows: SegmentRows) -> Observation | None:
    """Return how fast the crystal grew, for a steerer, where it was aimed at.

    One that was over at once says on which side it is, and has no weight in a line.
    """
    found = growth_of(rows)
    if found is None:
        return None
    rate, error = (found.phase * FAST, FAST) if found.rate is None else (found.rate, WALK / math.sqrt(found.time))
    return Observation(coordinate=rows.at, value=rate, error=error, cost=rows.cost, id=rows.chain)


def find_freezing(rows: Sequence[SegmentRows], plan: PlannedPoints) -> FreezingFinding:
    """Return where rates cross zero, and the evidence."""
    seen = [grown for one in sorted(rows, key=lambda r: (r.at, r.chain)) if (grown := growth_of(one)) is not None]
    rated = [(math.log(one.gamma), one.rate, one.time) for one in seen if one.rate is not None]
    found = None
    if len({one.phase for one in seen}) == 2 and rated:
        x, rate, time = np.array(rated).T
        found = crossing_of(x, rate, time)
    return FreezingFinding(
        trajectories=tuple(seen),
        log_gamma=None if found is None else found.at,
        error=None if found is None else found.error,
        evidence=_evidence(rows, seen, found, plan),
    )


def _evidence(
    rows: Sequence[SegmentRows], seen: Sequence[PhaseGrowth], found: Crossing | None, plan: PlannedPoints
) -> tuple[Evidence, ...]:
    rated = [one for one in seen if one.rate is not None]
    melted, grown = sum(one.phase < 0 for one in rated), sum(one.phase > 0 for one in rated)
    items = [
        at_least("points visited", plan.visited, plan.points, "some first points have no complete visit yet"),
        at_least("rates of growth", len(rated), FEWEST_RATES, "more trajectories that have both phases"),
        at_least("crystals that melted", melted, FEWEST_OF_A_KIND, "trajectories at a weaker coupling"),
        at_least("crystals that grew", grown, FEWEST_OF_A_KIND, "trajectories at a stronger coupling"),
    ]
    if found is None:
        return (*items, at_least("line that rises", 0.0, STEEP, "rates do not rise with the coupling yet"))
    gammas = [math.log(one.gamma) for one in rated]
    beyond = max(min(gammas) - found.at, found.at - max(gammas))
    return (
        *items,
        at_least("line that rises", found.steep, STEEP, "errors by which its slope is above zero: more trajectories"),
        at_most("beyond the trajectories", beyond, 0.0, "the crossing is where nothing was measured"),
        at_most("error of ln Gamma_m", found.error, NARROW, "more trajectories near it"),
        at_most("energy drift [kT]", max(map(drift_of, rows)), MOST_DRIFT, "a smaller `plasma.dt`"),
    )
