"""A crossing between two ends, halved: below it observations are negative, above it they are positive."""

from collections.abc import Sequence

from metalforge.core.steering import HistorySteerer, Suggestion, find_largest_gaps

UNSURE = 0.02
"""Part of the range below which a bracket is not halved any further: what lies in it is measured for longer."""


class Bisection(HistorySteerer):
    """Halves the bracket between the highest place with a negative value and the lowest with a positive one.

    Places where neither is sure (a value of 0) are in between, and the widest gap among them is halved. Pending places
    count as unsure. Both ends of the range come first.
    """

    name = "bisection"

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return n places, as if the pending ones and those before were unsure."""
        history, taken = self.history, self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        while len(chosen) < n:
            low, high = self._bracket()
            inside = [b for b in (*history.measured, *taken) if low < b < high and not self._is_end(b, low, high)]
            ends = [b for b in (history.beta_min, history.beta_max) if not self._there(b, taken)]
            if ends:
                found = Suggestion(beta=ends[0], reason="an end of the range: which phase grows there")
            elif (high - low) > UNSURE * history.width:
                beta = find_largest_gaps(inside, low, high, 1)[0]
                reason = f"halves what is between {low:.4f} (melts) and {high:.4f} (grows)"
                found = Suggestion(beta=beta, reason=reason, score=high - low)
            else:
                beta = min((low, high, *inside), key=lambda b: (self._spent(b) + taken.count(b), b))
                found = Suggestion(beta=beta, reason="the bracket is narrow: more of what is in it", score=high - low)
            chosen.append(found)
            taken.append(found.beta)
        return chosen

    def _bracket(self) -> tuple[float, float]:
        seen, history = self.history.observations, self.history
        low = max((one.beta for one in seen if one.value < 0), default=history.beta_min)
        high = min((one.beta for one in seen if one.value > 0 and one.beta > low), default=history.beta_max)
        return low, high

    def _is_end(self, beta: float, low: float, high: float) -> bool:
        return self.history.same(beta, low) or self.history.same(beta, high)

    def _there(self, beta: float, taken: Sequence[float]) -> bool:
        return any(self.history.same(beta, other) for other in (*self.history.measured, *taken))

    def _spent(self, beta: float) -> float:
        return sum(one.cost for one in self.history.observations if self.history.same(one.beta, beta))
