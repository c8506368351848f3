"""Points chosen without looking at the values, the baselines every steerer must beat: evenly, or in the widest gap."""

from collections.abc import Sequence

from metalforge.core import HistorySteerer, SpecError, Suggestion, find_largest_gaps


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


class Uniform(HistorySteerer):
    """The middles of `points` equal cells, each as much as the others.

    They are visited in the order of the van der Corput sequence, so a scan that ends early is still nearly even, and
    then again: where least was spent, the earlier of the sequence first. A chain that went on has cost more, which is
    how a second round is known from the first.
    """

    name = "uniform"

    def __init__(self, low: float, high: float, *, points: int) -> None:
        if points < 1:
            raise SpecError(f"`points` must be at least 1. Got {points}")
        super().__init__(low, high)
        self.points = points

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return the n places where least was spent, in the order of the sequence."""
        seen = self.history.observations
        # A point under way is taken to cost what a point costs on average; 1 where nothing is known.
        typical = sum(one.cost for one in seen) / len(seen) if seen else 1.0
        spent = [(one.coordinate, one.cost) for one in seen]
        spent += [(coordinate, typical or 1.0) for coordinate in self.history.asked(n, pending)]
        # Never beyond an end by rounding.
        low, width, high = self.history.low, self.history.width, self.history.high
        cells = sorted(range(self.points), key=van_der_corput)
        grid = [min(low + (cell + 0.5) / self.points * width, high) for cell in cells]
        chosen: list[Suggestion] = []
        for _ in range(n):
            # The first of the least, as `min` gives it.
            coordinate = min(grid, key=lambda place: self._cost(place, spent))
            again = any(self.history.same(coordinate, place) for place, _ in spent)
            reason = ("more of" if again else "next of") + " an even grid"
            chosen.append(Suggestion(coordinate=coordinate, reason=reason))
            spent.append((coordinate, typical or 1.0))
        return chosen

    def _cost(self, coordinate: float, spent: list[tuple[float, float]]) -> float:
        return sum(cost for place, cost in spent if self.history.same(coordinate, place))


class Gaps(HistorySteerer):
    """Halves the widest gap between the measured and pending places and the ends of the range.

    A batch is chosen one by one, each point closing its gap before the next is looked for.
    """

    name = "gaps"

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return the middles of the n widest gaps; the score is the part of the range that the gap covers."""
        low, high = self.history.low, self.history.high
        points = [low, *self.history.measured, *self.history.asked(n, pending), high]
        chosen: list[Suggestion] = []
        for _ in range(n):
            coordinate = find_largest_gaps(points, low, high, 1)[0]
            share = 2 * min(abs(coordinate - other) for other in points) / self.history.width
            chosen.append(
                Suggestion(
                    coordinate=coordinate, reason=f"middle of the widest gap, {share:.1%} of the range", score=share
                )
            )
            points.append(coordinate)
        return chosen
