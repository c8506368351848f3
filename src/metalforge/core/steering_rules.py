"""Two rules that place a measurement without a model of the curve: the widest gaps, and scored candidates.

The conductor's worker and the campaign's steerers use the same ones; both stay inside [beta_min, beta_max].
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isfinite
from typing import NamedTuple, TypeAlias

from .errors import SpecError
from .steering import SAME_BETA, Suggestion, distinct

__all__ = [
    "EXCLUSION",
    "SATURATION_GAP",
    "SATURATION_POINTS",
    "SATURATION_SCORE",
    "AdaptiveDecision",
    "Score",
    "find_largest_gaps",
    "steer_adaptive",
]

Score: TypeAlias = Callable[[float], tuple[float, float | None]]
"""beta -> (priority, predictive standard deviation; None where it is not known)."""
EXCLUSION = 0.3
"""Candidates nearer than this part of their spacing to a measured or queued point are passed over."""
SATURATION_POINTS = 5
"""Fewer measured beta than this never count as enough."""
SATURATION_GAP = 0.05
"""Enough, when the widest gap is below this part of the range ..."""
SATURATION_SCORE = 0.15
"""... or when no candidate scores at least this."""


class AdaptiveDecision(NamedTuple):
    """What to measure next, or nothing, and why; `saturated` says that the scan has enough points."""

    suggestion: Suggestion | None
    reason: str
    saturated: bool


def find_largest_gaps(measured: Sequence[float], beta_min: float, beta_max: float, n: int) -> list[float]:
    """Return the midpoints of the n widest gaps of sort(measured + {beta_min, beta_max}), the widest first.

    Points outside the range do not count. There are fewer than n midpoints when there are fewer gaps; gaps of one
    width are taken from the lower end of the range.
    """
    width = _width(beta_min, beta_max)
    points = distinct([beta_min, beta_max, *_inside(measured, beta_min, beta_max)], width)
    # Widths that differ by rounding only are one width: the order must not depend on the last bit.
    gaps = sorted(pairwise(points), key=lambda gap: (-round((gap[1] - gap[0]) / (SAME_BETA * width)), gap[0]))
    return [(low + high) / 2 for low, high in gaps[:n]]


def steer_adaptive(
    measured: Sequence[float],
    queued: Sequence[float],
    beta_min: float,
    beta_max: float,
    *,
    score: Score | None = None,
    n_candidates: int = 40,
    weight: float = 0.5,
    exclusion: float | None = None,
) -> AdaptiveDecision:
    """Return the best candidate of an even grid by priority and uncertainty.

        score = priority + weight * uncertainty

    Candidates are beta_min + i (beta_max - beta_min) / (n_candidates + 1), i = 1 ... n_candidates, at
    least `exclusion` (a distance in beta; by default 0.3 of the spacing) away from every measured and queued point.

    The scan is saturated when at least 5 beta are measured, and the widest gap is below 5 % of the range (a queued
    point closes its gap) or the best score is below 0.15. Candidates without a finite score are passed over; when none
    is left, or nothing scores them, the midpoint of the widest gap takes over.
    """
    width = _width(beta_min, beta_max)
    if n_candidates < 1:
        raise SpecError(f"`n_candidates` must be at least 1. Got {n_candidates}")
    step = width / (n_candidates + 1)
    radius = EXCLUSION * step if exclusion is None else exclusion
    if not (isfinite(radius) and radius >= 0):
        raise SpecError(f"`exclusion` must be finite and not negative. Got {exclusion}")
    taken = distinct(_inside([*measured, *queued], beta_min, beta_max), width)
    enough = len(distinct(_inside(measured, beta_min, beta_max), width)) >= SATURATION_POINTS
    widest = max(high - low for low, high in pairwise([beta_min, *taken, beta_max])) / width
    if enough and widest < SATURATION_GAP:
        return AdaptiveDecision(None, f"saturated: the widest gap is {widest:.1%} of the range", True)

    def free(beta: float) -> bool:
        return all(abs(beta - other) >= radius and abs(beta - other) > SAME_BETA * width for other in taken)

    scored: list[tuple[float, float]] = []
    if score is not None:
        for beta in (beta_min + i * step for i in range(1, n_candidates + 1)):
            if free(beta):
                priority, uncertainty = score(beta)
                total = priority + weight * (uncertainty or 0.0)
                if isfinite(total):
                    scored.append((total, beta))
    if scored:
        total, beta = max(scored, key=lambda pair: (pair[0], -pair[1]))
        if enough and total < SATURATION_SCORE:
            return AdaptiveDecision(None, f"saturated: the best score is {total:.3f}, at beta {beta:.4f}", True)
        reason = f"best of {len(scored)} candidates: score {total:.3f}"
        return AdaptiveDecision(Suggestion(beta=beta, reason=reason, score=total), reason, False)
    middle = find_largest_gaps(taken, beta_min, beta_max, 1)[0]
    if not free(middle):
        return AdaptiveDecision(None, f"saturated: no beta is {radius:.2g} away from all others", True)
    why = "nothing scores candidates" if score is None else "no candidate has a score"
    reason = f"{why}: middle of the widest gap, {widest:.1%} of the range"
    return AdaptiveDecision(Suggestion(beta=middle, reason=reason), reason, False)


def _width(beta_min: float, beta_max: float) -> float:
    if not (isfinite(beta_min) and isfinite(beta_max) and beta_min < beta_max):
        raise SpecError(f"the range of beta must be finite and not empty. Got [{beta_min}, {beta_max}]")
    return beta_max - beta_min


def _inside(betas: Sequence[float], beta_min: float, beta_max: float) -> list[float]:
    for beta in betas:
        if not isfinite(beta):
            raise SpecError(f"a measured or queued beta must be finite. Got {beta}")
    return [beta for beta in betas if beta_min <= beta <= beta_max]
