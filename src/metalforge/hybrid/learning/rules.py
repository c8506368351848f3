r"""How a readout learns a row: what it held, the features and the target go in, what it shall hold comes out.

All work on the float master in float64. A rule is parameters; `start` gives a learner, which keeps what it has seen.

`DivergenceGuard` asks whether learning does harm, and keeps a readout to go back to. Losses rise when the world
changes, too. So a loss is not compared with what it was, but with what the kept readout has on the very same rows: a
shift hurts both, only divergence hurts one. Both are running means, l <- (1 - a) l + a loss.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from metalforge.core import (
    Doubles,
    SpecError,
    require_at_least,
    require_not_negative,
    require_one_of,
    require_positive,
    require_shares,
)
from metalforge.reservoir import LeastSquares, LossName, LossSlope, absorb
from metalforge.reservoir import ridge as ridge_readout

from .network import Master

ErrorOf: TypeAlias = Literal["auto", "device", "master"]
BLOCK = 64
"""Rows that least squares let wait at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """One row: features, target, and the loss with its slope for the output that the rule is to correct."""

    features: Doubles
    target: Doubles
    at: LossSlope


class Learner(ABC):
    """What a rule keeps while it learns."""

    @abstractmethod
    def learn(self, master: Master, lesson: Lesson) -> Master:
        """Return the readout after a row; the same where the row is left waiting."""

    def settle(self, master: Master) -> Master:
        """Return the readout once the rows that wait are learned."""
        return master


@dataclass(frozen=True, kw_only=True)
class GradientStep(Learner):
    """W -= rate dL/dy x^T, b -= rate dL/dy; normalised, the rate is divided by |x|^2 + 1 (NLMS for `mse`).

    `error` says whose output is corrected: the `device`'s, which rounding is part of, or the float `master`'s. `auto`
    takes the device's while every step is pushed; when pushes are apart, the device repeats an error that the master
    has learned already, and correcting it again and again would overshoot.
    """

    losses: ClassVar[tuple[LossName, ...]] = ("mse", "cross_entropy")
    rate: float
    normalised: bool = False
    error: ErrorOf = "auto"

    def __post_init__(self) -> None:
        require_positive(rate=self.rate)
        require_one_of("auto", "device", "master", error=self.error)

    def start(self, master: Master) -> Learner:
        """Return itself: nothing is kept from row to row."""
        return self

    def learn(self, master: Master, lesson: Lesson) -> Master:
        """Return the readout one step further down."""
        x, slope = lesson.features, lesson.at.slope
        rate = self.rate / float(x @ x + 1) if self.normalised else self.rate
        with np.errstate(all="ignore"):  # what overflows is seen by the guard
            return Master(master.w_out - rate * np.outer(slope, x), master.out_bias - rate * slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecursiveLeastSquares:
    """The least squares of all rows so far, drawn to the readout that it started from (`reservoir.least_squares`).

    Its memory is 1 / (1 - forgetting) rows, which must be several times the width; inside a loop of output feedback
    this is FORCE (D. Sussillo, L. F. Abbott, Neuron 63, 2009). `alpha` is the pull towards the start: small where that
    is of little worth, but a tiny one makes a readout that is useless when there are about as many rows as features. Up
    to `BLOCK` rows wait for the next push and are then learned together, at a fraction of the cost and with the same
    result. Rows that were seen elsewhere may count as the stream's beginning: `inverse` is that of their (penalised)
    normal matrix, [x; 1] wide, and takes the place of 1 / alpha.
    """

    losses: ClassVar[tuple[LossName, ...]] = ("mse",)
    alpha: float = 1e-3
    forgetting: float = 1.0
    inverse: Doubles | None = None

    def __post_init__(self) -> None:
        require_positive(alpha=self.alpha)
        require_shares(forgetting=self.forgetting)
        p = self.inverse
        if p is not None and (p.ndim != 2 or p.shape[0] != p.shape[1] or not np.all(np.isfinite(p))):
            raise SpecError(f"`inverse` must be a square matrix of finite numbers. Got shape {p.shape}")

    def start(self, master: Master) -> Learner:
        """Return a learner that knows the readout and its penalty."""
        start = np.concatenate([master.w_out, master.out_bias[:, np.newaxis]], axis=1)
        width = start.shape[1]
        inverse = np.eye(width) / self.alpha if self.inverse is None else np.array(self.inverse, np.float64)
        if len(inverse) != width:
            raise SpecError(f"`inverse` must be {(width, width)}, features and one. Got shape {inverse.shape}")
        return _Squares(LeastSquares(start, inverse, 0), self.forgetting)


class _Squares(Learner):
    """A solution, and rows that are not in it yet."""

    def __init__(self, solved: LeastSquares, forgetting: float) -> None:
        self._solved, self._forgetting = solved, forgetting
        self._waiting: list[Lesson] = []

    def learn(self, master: Master, lesson: Lesson) -> Master:
        self._waiting.append(lesson)
        return master if len(self._waiting) < BLOCK else self.settle(master)

    def settle(self, master: Master) -> Master:
        if not self._waiting:
            return master
        features, targets = _stacked(self._waiting)
        seen = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        after = self._solved = absorb(self._solved, seen, targets, self._forgetting)
        self._waiting = []
        return Master(after.w_out[:, :-1], after.w_out[:, -1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeRefit:
    """A ridge solve of the last `window` rows, every `every` rows once there are so many."""

    losses: ClassVar[tuple[LossName, ...]] = ("mse",)
    window: int
    every: int
    ridge: float = 1e-6

    def __post_init__(self) -> None:
        require_at_least(2, window=self.window)
        require_at_least(1, every=self.every)
        require_not_negative(ridge=self.ridge)

    def start(self, master: Master) -> Learner:
        """Return a learner with an empty window."""
        return _LastRows(self)


class _LastRows(Learner):
    """The last rows, and how many there were in all."""

    def __init__(self, rule: RidgeRefit) -> None:
        self._rule, self._seen = rule, 0
        self._rows: deque[Lesson] = deque(maxlen=rule.window)

    def learn(self, master: Master, lesson: Lesson) -> Master:
        self._rows.append(lesson)
        self._seen += 1
        if len(self._rows) < self._rule.window or self._seen % self._rule.every:
            return master
        found = ridge_readout(*_stacked(self._rows), self._rule.ridge)
        return Master(found.w_out, found.out_bias)


def _stacked(rows: Iterable[Lesson]) -> tuple[Doubles, Doubles]:
    """Return the features and the targets of rows."""
    features, targets = zip(*((row.features, row.target) for row in rows), strict=True)
    return np.stack(features), np.stack(targets)


Rules: TypeAlias = GradientStep | RecursiveLeastSquares | RidgeRefit


FLOOR = 1e-12
"""Losses below it are rounding: a multiple of nothing is not divergence."""
KEEP_EVERY, PATIENCE, MEMORY = 50, 10, 20
"""Rows: between readouts that are kept, before one is judged, and of a running mean."""


class GuardState(NamedTuple):
    """The kept readout, both running losses, and the rows since it was kept."""

    kept: Master
    present_loss: float
    kept_loss: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceGuard:
    """Rolls back when the running loss is `factor` times that of the kept readout, or is no number.

    Every `KEEP_EVERY` rows the present readout is kept if it is no worse. `PATIENCE` rows after a readout was kept are
    needed before it is judged, unless weights or losses leave the finite numbers. More than `most` rollbacks in a run
    are an error: the rule does not work here. After each the gradient's rate is multiplied by `backoff`. Least squares
    get over a bad spell by more rows (there is one when rows are about as many as features), so they learn on while the
    device holds the kept readout, and have it back when they are no worse.
    """

    factor: float = 4.0
    backoff: float = 0.5
    most: int = 10

    def __post_init__(self) -> None:
        if not self.factor > 1:
            raise SpecError(f"`factor` must be above 1. Got {self.factor}")
        require_shares(backoff=self.backoff)
        require_at_least(0, most=self.most)

    def step(self, state: GuardState, present: Master, loss: float, kept_loss: float) -> tuple[GuardState, bool]:
        """Return the state after a row, and whether to go back to its kept readout.

        `loss` is that of the present readout on the row, `kept_loss` that of the kept one.
        """
        if not (np.isfinite(loss) and all(np.all(np.isfinite(part)) for part in present)):
            return state, True
        rows = state.rows + 1
        weight = max(1 / MEMORY, 1 / rows)  # a plain mean at first
        running = state.present_loss + weight * (loss - state.present_loss)
        kept = state.kept_loss + weight * (kept_loss - state.kept_loss)
        after = GuardState(state.kept, running, kept, rows)
        if rows >= PATIENCE and running > self.factor * kept + FLOOR:
            return after, True
        if rows >= KEEP_EVERY and running <= kept:
            return GuardState(present, 0.0, 0.0, 0), False
        return after, False
