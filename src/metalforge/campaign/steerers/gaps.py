"""The middle of the widest gap, again and again: what can be done without looking at the values."""

from collections.abc import Sequence

from metalforge.core.steering import History, Observation, SteererState, Suggestion
from metalforge.core.steering_rules import find_largest_gaps

__all__ = ["Gaps"]


class Gaps:
    """Halves the widest gap between the measured and pending beta and the ends of the range.

    A batch is chosen one by one, each point closing its gap before the next is looked for.
    """

    name = "gaps"

    def __init__(self, beta_min: float, beta_max: float) -> None:
        self.history = History(beta_min, beta_max)

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out."""
        self.history.tell(observations)

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return the middles of the n widest gaps; the score is the part of the range that the gap covers."""
        low, high = self.history.beta_min, self.history.beta_max
        points = [low, *self.history.measured, *self.history.asked(n, pending), high]
        chosen: list[Suggestion] = []
        for _ in range(n):
            beta = find_largest_gaps(points, low, high, 1)[0]
            share = 2 * min(abs(beta - other) for other in points) / self.history.width
            chosen.append(
                Suggestion(beta=beta, reason=f"middle of the widest gap, {share:.1%} of the range", score=share)
            )
            points.append(beta)
        return chosen

    def state(self) -> SteererState:
        """Return all that `ask` depends on."""
        return self.history.state(self.name, {})
