"""The point that is expected to shrink the error on beta_c most, by a Gaussian process through what was measured."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.steering import SAME_BETA, History, Observation, SteererState, Suggestion, distinct

from .posterior import NOISE_FLOOR, Curves, Peak, Processes, Transform, check_values, fit_processes, one_thread

__all__ = ["GaussianProcess"]

Reals = NDArray[np.float64]
BINS = 8
"""Outcomes of a fantasy measurement that are told apart: eight bins of 48 paths give its effect to a few percent."""
LOCATED = 0.1
"""Spread of beta_c, in units of the range, above which gaps are filled: a curve that looks flat hides narrow peaks, and
the process would go on about slopes."""
FEWEST = 3
"""Points below which no curve is fitted."""


class GaussianProcess:
    r"""Places each point where the spread of beta_c = argmax chi(beta) after it is expected to be smallest.

    Paths of the posterior (see `posterior`) give pairs of a maximum b and a fantasy y_c = f(c) + noise, for every
    candidate c at once. The paths are sorted by y_c into bins of equal count; b's standard deviation inside a bin is
    the error on beta_c if the measurement came out there, and its mean over the bins is the expected error:

        score(c) = (sd(b) - mean over bins of sd(b | y_c in bin)) / cost(c)

    No gradient, no nested fit: the measurement's noise, several candidate peaks and both flanks are all in the pairs.
    The noise is that of a typical observation so far, for one typical cost. `fresh_cost` is what a new beta costs
    over more statistics at one that has been measured (its warm-up). Pending points are taken as measured with the
    expected outcome; no candidate within half a grid step of one is suggested.

    The first `initial` points are spread evenly, and until beta_c is located the widest gap is halved instead. One
    `ask` takes about 20 ms on one core with 40 points.
    """

    name = "gaussian-process"

    def __init__(
        self,
        beta_min: float,
        beta_max: float,
        *,
        initial: int = 5,
        transform: Transform = "log",
        fresh_cost: float = 1.0,
        grid: int = 201,
        paths: int = 384,
        seed: int = 0,
    ) -> None:
        self.history = History(beta_min, beta_max)
        if transform not in get_args(Transform):
            raise UnknownNameError("transform", transform, get_args(Transform))
        for name, value, least in (
            ("initial", initial, 1),
            ("grid", grid, 11),
            ("paths", paths, 4 * BINS),
            ("seed", seed, 0),
        ):
            if value < least:
                raise SpecError(f"`{name}` must be at least {least}. Got {value}")
        if not 1 <= fresh_cost < float("inf"):
            raise SpecError(f"`fresh_cost` must be finite and at least 1. Got {fresh_cost}")
        self.initial = initial
        self.transform = transform
        self.fresh_cost = fresh_cost
        self.grid = grid
        self.paths = paths
        self.seed = seed
        self._processes: Processes | None = None

    def tell(self, observations: Sequence[Observation]) -> None:
        """Take what came out; with `transform = "log"` every value must be positive."""
        check_values(observations, self.transform)
        self.history.tell(observations)
        self._processes = None

    def ask(self, n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
        """Return n points, each chosen as if the pending ones and those before it had been measured."""
        waiting = self.history.asked(n, pending)
        chosen: list[Suggestion] = []
        while len(chosen) < n and (spread := self._spread([*waiting, *(s.beta for s in chosen)])) is not None:
            chosen.append(spread)
        if len(chosen) < n:
            with one_thread():
                chosen += self._informative(n - len(chosen), [*waiting, *(s.beta for s in chosen)])
        return chosen

    def peak(self) -> Peak:
        """Return the posterior of beta_c."""
        if len(self.history.measured) < FEWEST:
            raise SpecError(f"beta_c wants at least {FEWEST} measured beta. Got {len(self.history.measured)}")
        with one_thread():
            peaks = self._beta(self._curves([]).peaks())
        low, middle, high = np.quantile(peaks, [0.16, 0.5, 0.84])
        return Peak(float(middle), float(high - low) / 2, float(low), float(high))

    def state(self) -> SteererState:
        """Return all that `ask` depends on."""
        settings = ("initial", "transform", "fresh_cost", "grid", "paths", "seed")
        return self.history.state(self.name, {name: getattr(self, name) for name in settings})

    def _spread(self, waiting: list[float]) -> Suggestion | None:
        """Return the emptiest place of an even design while there is no curve to fit."""
        taken = distinct([*self.history.measured, *waiting], self.history.width)
        if len(taken) >= self.initial and len(self.history.measured) >= FEWEST:
            return None
        cells = max(self.initial, len(taken) + 1)
        design = [self.history.beta_min + (i + 0.5) / cells * self.history.width for i in range(cells)]
        distances = [min((abs(beta - other) for other in taken), default=self.history.width) for beta in design]
        best = int(np.argmax(np.round(np.array(distances) / self.history.width, 9)))
        return Suggestion(beta=design[best], reason="a first look, spread evenly", score=0.0)

    def _informative(self, n: int, waiting: list[float]) -> list[Suggestion]:
        known = [*self.history.measured, *waiting]
        curves = self._curves(known)
        x = curves.x
        noise = self._expected_noise()
        cost = np.where(_distance(x, self._x(known)) < SAME_BETA, 1.0, self.fresh_cost)
        for place in self._x(waiting):
            curves.believe(int(np.abs(x - place).argmin()), noise)
        chosen: list[Suggestion] = []
        while len(chosen) < n:
            taken = self._x([*waiting, *(suggestion.beta for suggestion in chosen)])
            free = _distance(x, taken) > 0.5 / (self.grid - 1)
            if not free.any():
                break
            peaks = curves.peaks()
            if _located(peaks):
                after = _expected_error(peaks, curves.measurements(noise))
                score = (peaks.std() - after) / cost
                best = int(np.where(free, score, -np.inf).argmax())
                error = self.history.width * np.array([peaks.std(), after[best]])
                reason = f"expected to bring the error on beta_c from {error[0]:.2g} to {error[1]:.2g}"
                worth = float(score[best]) * self.history.width
            else:
                empty = _distance(x, np.concatenate([[0.0, 1.0], self._x(self.history.measured), taken]))
                best = int(np.where(free, np.round(empty, 9), -np.inf).argmax())
                reason, worth = f"beta_c is not located yet: widest gap, {2 * empty[best]:.1%} of the range", 0.0
            chosen.append(Suggestion(beta=float(self._beta(x[best])), reason=reason, score=worth))
            curves.believe(best, noise)
        return chosen

    def _curves(self, extra: list[float]) -> Curves:
        even = np.linspace(0.0, 1.0, self.grid)
        others = self._x(extra)
        x = np.concatenate([even, np.unique(others[_distance(others, even) > SAME_BETA])])
        # Seeded by the history alone: an `ask` in between changes nothing.
        rng = np.random.default_rng([self.seed, len(self.history)])
        return Curves(self._fitted(), x, self.grid, self.paths, rng)

    def _fitted(self) -> Processes:
        if self._processes is None:
            observations = self.history.observations
            self._processes = fit_processes(observations, self._x([o.beta for o in observations]), self.transform)
        return self._processes

    def _expected_noise(self) -> float:
        """Return the noise variance of one more measurement of typical cost: noise falls as one over the cost."""
        cost = np.array([seen.cost for seen in self.history.observations])
        typical = float(np.median(cost))
        relative = cost / typical if typical > 0 else np.ones_like(cost)
        return max(float(np.median(self._fitted().noise * relative)), NOISE_FLOOR)

    def _x(self, betas: Sequence[float]) -> Reals:
        return (np.array(betas, dtype=np.float64) - self.history.beta_min) / self.history.width

    def _beta(self, x: Reals) -> Reals:
        return np.clip(self.history.beta_min + x * self.history.width, self.history.beta_min, self.history.beta_max)


def _expected_error(peaks: Reals, outcomes: Reals) -> Reals:
    """Return, for each candidate, the mean over bins of its outcomes of the peaks' standard deviation in the bin."""
    count = len(peaks) // BINS
    order = np.argsort(outcomes[:, : BINS * count], axis=1)
    return np.asarray(peaks[order].reshape(len(outcomes), BINS, count).std(axis=2).mean(axis=1))


def _located(peaks: Reals) -> bool:
    """Return whether the maximum is known well enough to be sharpened; one at an end may well lie beyond it."""
    at_end = (peaks <= 0) | (peaks >= 1)
    return bool(peaks.std() < LOCATED and at_end.mean() < 0.5)


def _distance(x: Reals, others: Reals) -> Reals:
    """Return how far each x is from the nearest of the others."""
    return np.asarray(np.abs(x[:, None] - others[None, :]).min(axis=1, initial=np.inf))
