"""Evenly spaced beta, in an order that is nearly even at every moment: the baseline every steerer must beat."""

from collections.abc import Iterator, Sequence
from itertools import count

from metalforge.core.errors import SpecError
from metalforge.core.steering import History, Observation, SteererState, Suggestion

__all__ = ["Uniform", "van_der_corput"]


def van_der_corput(index: int) -> float:
    """Return the index-th number of the sequence 0, 1/2, 1/4, 3/4, 1/8, ...: the bits of the index, mirrored.

    (J. G. van der Corput, Proceedings Akademie Amsterdam 38, 1935.)
    """
    value, weight = 0.0, 0.5
    while index:
        value += weight * (index & 1)
        index >>= 1
        weight /= 2
    return value


class Uniform:
    """Ever finer halves of the range, or the middles of `points` equal cells; each beta as often as the others.

    With `points` the cells are visited in the order of the van der Corput sequence, so a scan that ends early is
    still nearly even, and then again from the start: the second round adds statistics to the same beta.
    """

    name = "uniform"

    def __init__(self, beta_min: float, beta_max: float, *, points: int | None = None) -> None:
        if points is not None and points < 1:
            raise SpecError(f"`points` must be at least 1. Got {points}")
        self.history = History(beta_min, beta_max)
        self.points = points

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out."""
        self.history.tell(observations)

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return the n beta that had fewest visits, in the order of the sequence."""
        visits = [seen.beta for seen in self.history.observations] + self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        for _ in range(n):
            beta, before = self._next(visits)
            reason = f"visit {before + 1} of an even grid" if self.points else "next of an even refinement"
            chosen.append(Suggestion(beta=beta, reason=reason))
            visits.append(beta)
        return chosen

    def state(self) -> SteererState:
        """Return all that `ask` depends on."""
        return self.history.state(self.name, {"points": self.points})

    def _next(self, visits: list[float]) -> tuple[float, int]:
        if self.points is None:
            # Among the first len(visits) + 1 beta of the sequence at least one was not visited.
            return next((beta, 0) for beta in self._halves() if not self._count(beta, visits))
        grid = [self._at((cell + 0.5) / self.points) for cell in sorted(range(self.points), key=van_der_corput)]
        fewest = min(self._count(beta, visits) for beta in grid)
        return next((beta, fewest) for beta in grid if self._count(beta, visits) == fewest)

    def _halves(self) -> Iterator[float]:
        return (self._at(van_der_corput(index)) for index in count(1))

    def _at(self, fraction: float) -> float:
        # Never beyond an end by rounding.
        return min(self.history.beta_min + fraction * self.history.width, self.history.beta_max)

    def _count(self, beta: float, visits: list[float]) -> int:
        return sum(self.history.same(beta, visit) for visit in visits)
