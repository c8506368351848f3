"""The place at which more work lowers the error of a whole curve most, by a Gaussian process through the points."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.smooth import SmoothCurve, level_errors
from metalforge.core import HistorySteerer, Observation, Suggestion, distinct, find_largest_gaps, one_thread

Reals = NDArray[np.float64]
GRID = 61
SHOWN = 31
TOGETHER = 10
"""Visits to a place that are under way before another one is opened, where nothing is known. Few at each of many places
leave each of them a bias of some percent, within its own error and not within that of a curve through all of them; many
at a few places say little of what lies between."""


class _Expected:
    """A quantity's posterior at candidates, and the noise that a visit to each would have."""

    def __init__(self, mean: Reals, covariance: Reals, noise: Reals) -> None:
        self.mean, self.covariance, self.noise = mean, covariance, noise

    def believe(self, i: int) -> None:
        """Take a visit to a candidate as made."""
        column = self.covariance[:, i]
        self.covariance = self.covariance - np.outer(column, column) / (column[i] + self.noise[i])

    def gain(self, grid: NDArray[np.intp]) -> Reals:
        """Return by how much a visit to each candidate lowers the mean variance over the grid."""
        falls = (self.covariance[grid] ** 2).mean(axis=0) / (np.diag(self.covariance) + self.noise)
        return np.asarray(falls, np.float64)


class CurveSteerer(HistorySteerer):
    r"""Places each visit where the variance of the curve, integrated over its range, is expected to fall most.

    The curve is a smooth one (`physics.smooth`) through all observations, and through their `more`, each by itself. One
    more visit at c leaves

        Var'[f(x)] = Var[f(x)] - Cov[f(x), f(c)]^2 / (Var[f(c)] + s^2(c)),

    s^2(c) the noise of a visit of typical cost there: error^2 cost of the observations, which is what one unit of cost
    buys, interpolated in c. So places where noise falls slowly for its cost get more of it, where that helps the rest.

        score(c) = sum over quantities of mean over x of (Var - Var') / cost(c)

    `fresh_cost` is what a visit to a new place costs over one to a place that is there: its warm-up. The first
    `initial` points are spread evenly, ends included. Pending visits are taken as made.
    """

    name = "curve"

    def __init__(self, low: float, high: float, *, initial: int = 4, fresh_cost: float = 1.0) -> None:
        super().__init__(low, high)
        self.initial, self.fresh_cost = initial, fresh_cost

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return n points, each chosen as if the pending ones and those before it had been measured."""
        taken = self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        first = np.linspace(self.history.low, self.history.high, self.initial)
        while len(chosen) < n:
            there = distinct([*self.history.measured, *taken], self.history.width)
            left = [float(b) for b in first if not any(self.history.same(b, other) for other in there)]
            if left:
                # From the ends inwards: a curve between them is there at once.
                far = max(left, key=lambda b: min((abs(b - o) for o in there), default=abs(b - first.mean())))
                chosen.append(Suggestion(coordinate=far, reason="a first look, spread evenly"))
            elif len(self.history.measured) < 2:
                chosen.append(self._least(there, taken))
            else:
                with one_thread():
                    chosen += self._best(n - len(chosen), taken)
            taken.append(chosen[-1].coordinate)
        return chosen

    def _least(self, there: Sequence[float], taken: Sequence[float]) -> Suggestion:
        """Return the place that the fewest visits are on their way to, or a new one where all have their share."""
        under_way = {place: sum(self.history.same(place, other) for other in taken) for place in there}
        least = min(there, key=under_way.__getitem__)
        if under_way[least] < TOGETHER:
            return Suggestion(coordinate=least, reason="no curve yet: more of what is there")
        coordinate = find_largest_gaps(there, self.history.low, self.history.high, 1)[0]
        return Suggestion(coordinate=coordinate, reason="no curve yet: what lies between")

    def _best(self, n: int, taken: Sequence[float]) -> list[Suggestion]:
        """Return the n places that lower the variance most, one after the other."""
        seen = self.history.observations
        old = self._x([*self.history.measured, *taken])
        x = np.unique(np.concatenate([np.linspace(0, 1, GRID), old]))
        grid = np.flatnonzero(np.isin(x, np.linspace(0, 1, GRID)))
        typical = float(np.median([one.cost for one in seen])) or 1.0
        spends = np.where(np.abs(x[:, None] - old[None, :]).min(axis=1) < 1e-9, 1.0, self.fresh_cost)
        at, spent = self._x([one.coordinate for one in seen]), np.array([one.cost for one in seen])
        curves = []
        for number in range(1 + min(len(one.more) for one in seen)):
            values, errors = np.array([_pair(one, number) for one in seen]).T
            mean, covariance = SmoothCurve(at, values, level_errors(at, errors, spent)).posterior(x)
            curves.append(_Expected(mean, covariance, self._noise(seen, errors, x) / typical))
        for place in self._x(taken):
            for curve in curves:
                curve.believe(int(np.abs(x - place).argmin()))
        made = []
        for _ in range(n):
            gains = [curve.gain(grid) for curve in curves]
            score = sum(gains) / spends
            best = int(score.argmax())
            made.append(self._suggestion(x, score, best, curves, gains, spends, grid))
            spends[best] = 1.0
            for curve in curves:
                curve.believe(best)
        return made

    def _suggestion(
        self,
        x: Reals,
        score: Reals,
        best: int,
        curves: "Sequence[_Expected]",
        gains: Sequence[Reals],
        spends: Reals,
        grid: NDArray[np.intp],
    ) -> Suggestion:
        before = sum(float(np.diag(curve.covariance)[grid].mean()) for curve in curves)
        after = max(before - sum(float(gain[best]) for gain in gains), 0.0)
        of_first = int((gains[0] / spends).argmax())
        width = float(np.sqrt(max(curves[0].covariance[of_first, of_first], 0.0)))
        shown = np.unique([*np.linspace(0, len(x) - 1, SHOWN).round().astype(int), best])
        return Suggestion(
            coordinate=float(self._at(x[best])),
            reason=f"expected to bring the curve's rms error from {before**0.5:.2g} to {after**0.5:.2g}",
            score=float(f"{score[best]:.5g}"),
            mean=float(f"{curves[0].mean[of_first]:.5g}"),
            width=float(f"{width:.5g}"),
            candidates=tuple(round(float(b), 6) for b in self._at(x[shown])),
            acquisition=tuple(float(f"{s:.5g}") for s in score[shown]),
        )

    def _noise(self, seen: Sequence[Observation], errors: Reals, x: Reals) -> Reals:
        """Return error^2 cost at each x: the logarithm is a parabola through what was seen, or less of one."""
        at = self._x([one.coordinate for one in seen])
        logs = np.log(np.maximum(errors**2 * np.array([one.cost for one in seen]), 1e-300))
        degree = min(2, len(np.unique(at)) - 1)
        fitted = np.polynomial.Polynomial.fit(at, logs, degree, domain=[0, 1])
        return np.asarray(np.exp(np.clip(fitted(x), logs.min() - 1, logs.max() + 1)), np.float64)

    def _x(self, coordinates: Sequence[float]) -> Reals:
        return (np.asarray(coordinates, np.float64) - self.history.low) / self.history.width

    def _at(self, x: Reals) -> Reals:
        return np.clip(self.history.low + x * self.history.width, self.history.low, self.history.high)


def _pair(one: Observation, number: int) -> tuple[float, float]:
    """Return value and error of the first quantity, or of one of the others."""
    return (one.value, one.error) if number == 0 else one.more[number - 1]
