"""The point that is expected to shrink the error on the peak most, by a Gaussian process through what was measured."""

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import SAME_POINT, HistorySteerer, Observation, SpecError, Suggestion, distinct, one_thread
from metalforge.statistics import with_error

from .peak_prior import PeakPrior
from .posterior import NOISE_FLOOR, Curves, Processes, fit_processes

Reals = NDArray[np.float64]
FEWEST = 3
"""Points below which no curve is fitted."""
BACKGROUND = 0.25
"""Blocks that carry any place from the start: keeps the worth of a first block at an empty place finite."""
FLANKS = 0.7
"""Spread added to the peak, in units of the reach, before samples are counted: a maximum is one by what lies on either
side of it, and beyond the last run there is nothing to fall off to."""
FIRST = 3
"""First points about a peak that is expected, fewer where fewer are asked for: with five of them a prior that is wrong
by five widths cost a tenth of what forty blocks are worth, with three nothing."""
LEAST_APART = 0.02
"""Distance of such points from all others, in units of the range, or half a reach: nearer ones would continue a chain
that is there."""
FIRST_FLANKS = 1.2
"""Spread of these points, in units of the reach, however well the peak is known: chains one to two reaches from it on
either side gave the smallest error of the peak on an exactly solved model."""

SHOWN = 33
"""Candidates that a suggestion is explained by, at most."""
CROWD = 64
"""Chains, or points under way, above which those in one cell of the grid are taken together: a process through a
thousand points says what one through the means of its cells says. Points are then no longer kept apart from those under
way, which count where they are: a hundred that keep apart would leave the peak to a few. It is also the most first
points."""


class GaussianProcess(HistorySteerer):
    r"""Places each point where it shrinks the error of the peak, argmax chi, most.

    The result comes from multi-histogram reweighting, and `reach` is the distance over which a run can be reweighted
    (1 / sd(E)). A run at c adds to the samples that carry the average at b the part that reweighting leaves of it,

        n(b) = n_0 + sum_j cost_j exp(-((b_j - b) / reach)^2),     error(b) ~ n(b)^(-1/2),

        score(c) = mean over b of (n(b)^(-1/2) - (n(b) + exp(-((c - b) / reach)^2))^(-1/2)) / cost(c),

    with b drawn from the posterior of the maximum (see `posterior`): the process only says where the peak may be.
    Measured by `python -m experiments run steering`. `fresh_cost` is what a new point costs over more statistics at one
    that has been measured (its warm-up). Pending points are taken as measured with the expected outcome, with the noise
    of a typical observation so far; no candidate within half a grid step of one is suggested. The first `initial`
    points are spread evenly. One `ask` takes about 10 ms on one core with 40 points.

    `prior`, a mean and a width, is what is known of the peak beforehand (`peak_prior`). The first three points
    are then quantiles of it, widened by the reach so that both flanks are looked at, and afterwards paths count as
    often as its density at their maximum deserves; the rest of the `initial` points are new places that the process
    chooses.
    """

    name = "gaussian-process"

    def __init__(
        self,
        low: float,
        high: float,
        *,
        initial: int = 5,
        fresh_cost: float = 1.0,
        reach: float | None,
        grid: int = 201,
        paths: int = 384,
        seed: int = 0,
        prior: Sequence[float] | None = None,
    ) -> None:
        super().__init__(low, high)
        if reach is None or not 0 < reach < float("inf"):
            raise SpecError(f"`reach` must be a distance > 0. Got {reach}")
        self.initial = initial
        self.fresh_cost = fresh_cost
        self.reach = reach
        self.grid = grid
        self.paths = paths
        self.seed = seed
        self._processes: Processes | None = None
        self._even: Curves | None = None
        """Paths on the even grid, as they are before anything under way is believed."""
        self._pooled: tuple[Observation, ...] | None = None
        self.expect(prior)

    def expect(self, prior: Sequence[float] | None) -> None:
        """Take a mean and a width of the peak as what is known beforehand, in place of what was; None is nothing."""
        self.prior = None if prior is None else (float(prior[0]), float(prior[1]))
        self._known: PeakPrior | None = None
        if self.prior is not None:
            known = PeakPrior(float(self._x([self.prior[0]])[0]), self.prior[1] / self.history.width)
            self._known = known if known.is_followed else None

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out; every value must be positive, to have a logarithm."""
        if refused := [seen for seen in observations if seen.value <= 0]:
            raise SpecError(f"a value must be positive. Got {refused[0].value} from observation `{refused[0].id}`")
        super().tell(observations)
        self._processes = self._pooled = self._even = None

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return n points, each chosen as if the pending ones and those before it had been measured."""
        waiting = self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        while len(chosen) < n and (spread := self._spread([*waiting, *(s.coordinate for s in chosen)])) is not None:
            chosen.append(spread)
        if len(chosen) < n:
            with one_thread():
                chosen += self._informative(n - len(chosen), [*waiting, *(s.coordinate for s in chosen)])
        return chosen

    def _spread(self, waiting: list[float]) -> Suggestion | None:
        """Return the emptiest place of an even design while there is no curve to fit."""
        history = self.history
        taken = distinct([*history.measured, *waiting], history.width)
        first = self.initial if self._known is None else min(self.initial, FIRST)
        if len(taken) >= first and len(history.measured) >= FEWEST:
            return None
        if len(taken) >= CROWD:
            crowd = np.bincount(_nearest(np.array(taken), [*(seen.coordinate for seen in self._seen()), *waiting]))
            return Suggestion(
                coordinate=taken[int(crowd.argmin())], reason="one more chain at a first point", score=0.0
            )
        cells = max(first, len(taken) + 1)
        shares = (np.arange(cells) + 0.5) / cells
        reason = "a first look, spread evenly"
        places = self._x(taken)
        if (known := self._known) is not None:
            known = known.widened(FIRST_FLANKS * self.reach / history.width)
            places = known.share(places)
            mean, width = self.prior or (0.0, 0.0)
            reason = f"a first look, where the peak is expected, {with_error(mean, width)}, and on both flanks"
        best = int(np.argmax(np.round(_distance(shares, places), 9)))
        x = float(shares[best]) if known is None else known.at(float(shares[best]))
        return Suggestion(coordinate=min(history.low + x * history.width, history.high), reason=reason, score=0.0)

    def _peaks(self, curves: Curves) -> Reals:
        """Return where paths have their maximum, of each path as often as the prior says."""
        peaks = curves.peaks()
        return peaks if self._known is None else peaks[self._known.drawn(peaks)]

    def _informative(self, n: int, waiting: list[float]) -> list[Suggestion]:
        known = [*self.history.measured, *waiting]
        crowded = max(len(waiting), len(self.history)) > CROWD
        curves = self._curves([] if crowded else known)
        x = curves.x
        noise = self._expected_noise()
        same = 0.5 / (self.grid - 1) if crowded else SAME_POINT
        cost = np.where(_distance(x, np.unique(self._x(known))) < same, 1.0, self.fresh_cost)
        if crowded:
            places, count = np.unique(_nearest(x, self._x(waiting)), return_counts=True)
            curves.believe_all(places, noise / count)
        else:
            for place in self._x(waiting):
                curves.believe(int(np.abs(x - place).argmin()), noise)
        chosen: list[Suggestion] = []
        while len(chosen) < n:
            taken = self._x([*waiting, *(suggestion.coordinate for suggestion in chosen)])
            free = np.ones(len(x), bool)
            if not crowded:
                free = _distance(x, taken) > 0.5 / (self.grid - 1)
            if not free.any():
                break
            free = self._fresh(x, free, [*known, *(suggestion.coordinate for suggestion in chosen)])
            peaks = self._peaks(curves)
            score = self._reweighted_gain(x, peaks, taken) / cost
            best = int(np.where(free, score, -np.inf).argmax())
            peak = with_error(float(self._at(peaks).mean()), self.history.width * peaks.std())
            reason = f"adds most at the peak, {peak}"
            found = Suggestion(coordinate=float(self._at(x[best])), reason=reason, score=float(score[best]))
            chosen.append(self._explained(found, curves, best, np.where(free, score, 0.0)))
            if len(chosen) < n:
                curves.believe(best, noise)
        return chosen

    def _explained(self, found: Suggestion, curves: Curves, best: int, score: Reals) -> Suggestion:
        """Return a suggestion with what it was chosen from."""
        paths = curves.paths[best]
        mean = float(np.exp(paths.mean() + self._fitted().offset))
        width = mean * float(paths.std())
        shown = np.unique([*np.linspace(0, self.grid - 1, SHOWN - 1).round().astype(int), best])
        shown = shown[np.argsort(curves.x[shown], kind="stable")]
        return msgspec.structs.replace(
            found,
            mean=_short(mean),
            width=_short(width),
            candidates=tuple(round(coordinate, 6) for coordinate in self._at(curves.x[shown]).tolist()),
            acquisition=tuple(map(_short, score[shown].tolist())),
        )

    def _fresh(self, x: Reals, free: NDArray[np.bool_], there: list[float]) -> NDArray[np.bool_]:
        """Return where a point may be: at new places while a prior has left the first points fewer than were asked for.

        A result wants `initial` points, and a process that knows the peak would stay with its first three for good.
        """
        if self._known is None or len(distinct(there, self.history.width)) >= self.initial:
            return free
        apart = max(LEAST_APART, self.reach / self.history.width / 2)
        new = free & (_distance(x, self._x(there)) > apart)
        return new if new.any() else free

    def _reweighted_gain(self, x: Reals, peaks: Reals, taken: Reals) -> Reals:
        """Return, for each candidate, how much one block there lowers n^(-1/2) at the peak, on average over peaks."""
        width = self.reach / self.history.width
        # Even quantiles rather than draws: the same for every ask.
        peaks = peaks + FLANKS * width * _normal_quantiles(len(peaks))
        seen = self._seen()
        cost = np.array([one.cost for one in seen])
        # The cheapest chain is a fresh one of a single block: its cost over `fresh_cost` is that of a block.
        least = min(one.cost for one in self.history.observations)
        block = least / self.fresh_cost if least > 0 else 1.0
        there, count = np.unique(taken, return_counts=True) if len(taken) > CROWD else (taken, np.ones(len(taken)))
        here = np.concatenate([self._x([one.coordinate for one in seen]), there])
        blocks = np.concatenate([cost / block, count])
        carried = BACKGROUND + _near(peaks, here, width) @ blocks
        return np.asarray(np.mean(carried**-0.5 - (carried + _near(x, peaks, width)) ** -0.5, axis=1))

    def _curves(self, extra: list[float]) -> Curves:
        """Return paths on the even grid and at other places; those of the grid alone are drawn once for all asks."""
        if extra:
            return self._drawn(extra)
        self._even = self._even or self._drawn([])
        return self._even.copy()

    def _drawn(self, extra: list[float]) -> Curves:
        even = np.linspace(0.0, 1.0, self.grid)
        others = self._x(extra)
        x = np.concatenate([even, np.unique(others[_distance(others, even) > SAME_POINT])])
        # Seeded by the history alone: an `ask` in between changes nothing.
        rng = np.random.default_rng([self.seed, len(self.history)])
        return Curves(self._fitted(), x, self.grid, self.paths, rng)

    def _fitted(self) -> Processes:
        if self._processes is None:
            observations = self._seen()
            self._processes = fit_processes(observations, self._x([o.coordinate for o in observations]))
        return self._processes

    def _expected_noise(self) -> float:
        """Return the noise variance of one more measurement of typical cost: noise falls as one over the cost."""
        cost = np.array([seen.cost for seen in self._seen()])
        typical = float(np.median([seen.cost for seen in self.history.observations]))
        relative = cost / typical if typical > 0 else np.ones_like(cost)
        return max(float(np.median(self._fitted().noise * relative)), NOISE_FLOOR)

    def _seen(self) -> tuple[Observation, ...]:
        """Return what was observed, chain by chain; cell by cell of the grid where chains are many."""
        if self._pooled is None:
            self._pooled = self.history.observations
            if len(self._pooled) > CROWD:
                self._pooled = _in_cells(self._pooled, self.history.width / (self.grid - 1))
        return self._pooled

    def _x(self, coordinates: Sequence[float]) -> Reals:
        return (np.array(coordinates, dtype=np.float64) - self.history.low) / self.history.width

    def _at(self, x: Reals) -> Reals:
        return np.clip(self.history.low + x * self.history.width, self.history.low, self.history.high)


def _short(value: float) -> float:
    """Return a number with five digits, which is what a drawing needs."""
    return float(f"{value:.5g}")


def _in_cells(observations: Sequence[Observation], cell: float) -> tuple[Observation, ...]:
    """Return the chains of every cell as one, each with the weight of what it cost."""
    cells: dict[int, list[Observation]] = {}
    for seen in observations:
        cells.setdefault(round(seen.coordinate / cell), []).append(seen)
    return tuple(_together(chains) for chains in cells.values())


def _together(chains: Sequence[Observation]) -> Observation:
    cost = np.array([seen.cost for seen in chains])
    share = cost / cost.sum() if cost.sum() > 0 else np.full(len(chains), 1 / len(chains))
    coordinate, value, error = np.array([(seen.coordinate, seen.value, seen.error) for seen in chains]).T
    return Observation(
        coordinate=float(np.clip(share @ coordinate, coordinate.min(), coordinate.max())),
        value=float(share @ value),
        error=float(np.sqrt(np.sum((share * error) ** 2))),
        cost=float(cost.sum()),
        id=chains[0].id,
    )


def _nearest(x: Reals, others: Sequence[float] | Reals) -> NDArray[np.intp]:
    """Return which x is the nearest to each of the others."""
    return np.asarray(np.abs(x[None, :] - np.asarray(others, np.float64)[:, None]).argmin(axis=1), np.intp)


def _near(x: Reals, others: Reals, width: float) -> Reals:
    """Return what reweighting over the distance of x and others leaves of the samples: exp(-(distance / width)^2)."""
    return np.asarray(np.exp(-(((x[:, None] - others[None, :]) / width) ** 2)))


@lru_cache(maxsize=8)
def _normal_quantiles(n: int) -> Reals:
    """Return n even quantiles of the normal distribution, in an order that has nothing to do with any other."""
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((i + 0.5) / n) for i in range(n)])
    return quantiles[np.random.default_rng(n).permutation(n)]


def _distance(x: Reals, others: Reals) -> Reals:
    """Return how far each x is from the nearest of the others."""
    return np.asarray(np.abs(x[:, None] - others[None, :]).min(axis=1, initial=np.inf))
