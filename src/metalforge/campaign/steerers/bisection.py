"""A crossing between two ends: below it observations are negative, above it positive, near it they go with distance."""

from collections.abc import Sequence

import numpy as np

from metalforge.campaign.analysis.crossing import crossing_of
from metalforge.core import HistorySteerer, Suggestion, find_largest_gaps

NEAR = 0.3
"""Part of the range within which a bracket is not halved any further: a curve through what lies near says more."""
AROUND = (-1.0, 1.0, -0.5, 0.5)
"""Where around the crossing observations are made, in turn, in units of REACH: both sides alike, so that an error of
the slope is none of the crossing."""
REACH = 0.15
"""Of the range."""


class Bisection(HistorySteerer):
    """Halves the bracket of a crossing, then spreads observations around the zero of the curve through them.

    The bracket is between the highest place with a negative value and the lowest with a positive one. Both ends of the
    range come first. Near the crossing signs are noise, and every observation counts for the curve by
    its error; no place is visited twice. Pending places count as seen, with no value.
    """

    name = "bisection"

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return n places, as if the pending ones and those before were under way."""
        history, taken = self.history, self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        while len(chosen) < n:
            low, high = self._bracket()
            there = (*history.measured, *taken)
            ends = [b for b in (history.low, history.high) if not any(history.same(b, other) for other in there)]
            if ends:
                found = Suggestion(coordinate=ends[0], reason="an end of the range: on which side of zero it is")
            elif high - low > NEAR * history.width:
                inside = [b for b in there if low < b < high]
                coordinate = find_largest_gaps(inside, low, high, 1)[0]
                reason = f"halves what is between {low:.4f} (below zero) and {high:.4f} (above)"
                found = Suggestion(coordinate=coordinate, reason=reason, score=high - low)
            else:
                found = self._around(len(history) + len(taken))
            chosen.append(found)
            taken.append(found.coordinate)
        return chosen

    def _around(self, number: int) -> Suggestion:
        """Return a place near the zero of the curve, or near the middle of the bracket where there is none yet."""
        seen, history = self.history.observations, self.history
        low, high = self._bracket()
        found = crossing_of(
            [one.coordinate for one in seen], [one.value for one in seen], np.array([one.error**-2 for one in seen])
        )
        reach = REACH * history.width
        middle = (low + high) / 2 if found is None else found.at
        middle = min(max(middle, history.low + reach), history.high - reach)
        # A different part of the reach each time round: no two are at one place.
        part = AROUND[number % len(AROUND)] * (1 - 0.25 * (number // len(AROUND) % 3) / 3)
        coordinate = min(max(middle + part * reach, history.low), history.high)
        side = "above" if part > 0 else "below"
        return Suggestion(
            coordinate=coordinate, reason=f"{side} {middle:.4f}, where rates cross zero", score=high - low
        )

    def _bracket(self) -> tuple[float, float]:
        """Return the ends: where signs are in disorder, all that is in disorder lies between them."""
        seen, history = self.history.observations, self.history
        below = [one.coordinate for one in seen if one.value < 0]
        above = [one.coordinate for one in seen if one.value > 0]
        low, high = max(below, default=history.low), min(above, default=history.high)
        return min(low, high), max(low, high)
