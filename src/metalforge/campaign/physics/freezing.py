r"""Where the plasma freezes: trajectories that begin half crystal, half fluid, and which half grows.

At constant energy a crystal that grows sets heat free and one that melts takes it up, so that its growth tells on which
side of Gamma_m a trajectory began: `order`, |rho_k| / N of the crystal's own wave vectors, rises or falls. Gamma_m lies
between the strongest coupling at which it fell and the weakest at which it rose; the middle is quoted, with half of the
distance for its error. Where both phases are left at the end, the temperature that was found is that of their
coexistence, which is a second measurement of the same number.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from metalforge.core.steering import Observation

from .evidence import Evidence, PlannedPoints
from .transport import MOST_DRIFT, SegmentRows, drift_of

FIRST = 3
"""Segments whose mean is where a trajectory began."""
FEWEST_SEGMENTS = 8
CHANGED = 0.06
"""Change of the order that is growth or melting, and no fluctuation: half a crystal has some 0.4."""
LEFT = (0.12, 0.6)
"""Orders between which both phases are there."""
NARROW = 0.03
"""Half of the bracket, in ln Gamma, that is established: three percent."""


class PhaseGrowth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one trajectory did: the Gamma it began with as measured, its order then and at its end, Gamma at its end."""

    chain: str
    at: float
    gamma: float
    began: float
    ended: float
    gamma_ended: float
    segments: int

    @property
    def change(self) -> float:
        """Of the order."""
        return self.ended - self.began

    @property
    def phase(self) -> int:
        """1 where the crystal grew, -1 where it melted, 0 where neither is sure."""
        if self.began < LEFT[0]:
            return -1  # it was gone before the energy was constant
        return 0 if abs(self.change) < CHANGED else 1 if self.change > 0 else -1

    @property
    def coexists(self) -> bool:
        """Whether both phases are there at its end."""
        return LEFT[0] < self.ended < LEFT[1]


class FreezingFinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bracket of ln Gamma_m, what each trajectory did, and the evidence."""

    trajectories: tuple[PhaseGrowth, ...]
    low: float | None
    high: float | None
    evidence: tuple[Evidence, ...]

    @property
    def log_gamma(self) -> float | None:
        """The middle of the bracket."""
        return None if self.low is None or self.high is None else (self.low + self.high) / 2

    @property
    def error(self) -> float | None:
        """Half of its width."""
        return None if self.low is None or self.high is None else abs(self.high - self.low) / 2

    @property
    def established(self) -> bool:
        """Whether the number may be quoted."""
        return self.log_gamma is not None and all(item.holds for item in self.evidence)

    @property
    def said(self) -> str:
        """The bracket in words."""
        if self.log_gamma is None or self.error is None:
            return "no coupling yet at which the crystal melts and one at which it grows"
        gamma = math.exp(self.log_gamma)
        return f"Gamma_m = {gamma:.4g} +- {gamma * self.error:.2g} (half of the bracket)"


def growth_of(rows: SegmentRows) -> PhaseGrowth | None:
    """Return what a trajectory did; None while it is too short to say."""
    if rows.segments < FEWEST_SEGMENTS:
        return None
    order, temperature = rows.columns["order"], rows.columns["temperature"]
    last = max(FIRST, rows.segments // 4)
    return PhaseGrowth(
        chain=rows.chain,
        at=rows.at,
        gamma=float(1 / temperature[:FIRST].mean()),
        began=float(order[:FIRST].mean()),
        ended=float(order[-last:].mean()),
        gamma_ended=float(1 / temperature[-last:].mean()),
        segments=rows.segments,
    )


def observed_growth(rows: SegmentRows) -> Observation | None:
    """Return which phase grew, for a steerer: above 0 the crystal, below 0 the fluid, 0 where it is not sure."""
    found = growth_of(rows)
    if found is None:
        return None
    return Observation(beta=rows.at, value=float(found.phase), error=abs(CHANGED), cost=rows.cost, id=rows.chain)


def find_freezing(rows: Sequence[SegmentRows], plan: PlannedPoints) -> FreezingFinding:
    """Return the bracket and its evidence."""
    seen = [found for one in sorted(rows, key=lambda r: (r.at, r.chain)) if (found := growth_of(one)) is not None]
    melts = [math.log(one.gamma) for one in seen if one.phase < 0]
    grows = [math.log(one.gamma) for one in seen if one.phase > 0]
    low, high = (max(melts), min(grows)) if melts and grows else (None, None)
    return FreezingFinding(
        trajectories=tuple(seen), low=low, high=high, evidence=_evidence(rows, seen, low, high, plan)
    )


def _evidence(
    rows: Sequence[SegmentRows],
    seen: Sequence[PhaseGrowth],
    low: float | None,
    high: float | None,
    plan: PlannedPoints,
) -> tuple[Evidence, ...]:
    def item(name: str, value: float, needed: float, text: str, *, at_most: bool = False) -> Evidence:
        holds = value <= needed if at_most else value >= needed
        return Evidence(name=name, holds=holds, value=value, needed=needed, at_most=at_most, text=text)

    melted, grown = sum(one.phase < 0 for one in seen), sum(one.phase > 0 for one in seen)
    items = [
        item("points visited", plan.visited, plan.points, "some first points have no complete visit yet"),
        item("crystals that melted", melted, 1, "a weaker coupling"),
        item("crystals that grew", grown, 1, "a stronger coupling"),
    ]
    if low is None or high is None:
        return tuple(items)
    drifts = max(map(drift_of, rows), default=0.0)
    items += [
        item("half of the bracket in ln Gamma", abs(high - low) / 2, NARROW, "more trajectories in it", at_most=True),
        item("in order", high - low, -NARROW, "a crystal melted at a stronger coupling than one grew at: longer ones"),
        item("energy drift [kT]", drifts, MOST_DRIFT, "a smaller `plasma.dt`", at_most=True),
    ]
    both = np.array([math.log(one.gamma_ended) for one in seen if one.coexists])
    if both.size:
        off = abs(float(both.mean()) - (low + high) / 2)
        text = f"the phases of {both.size} trajectories coexist at Gamma = {math.exp(float(both.mean())):.4g}"
        items.append(item("coexistence off the bracket's middle", off, 2 * NARROW, text, at_most=True))
    return tuple(items)
