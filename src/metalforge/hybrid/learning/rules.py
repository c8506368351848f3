r"""How a readout learns a row: what it held, the features and the target go in, what it shall hold comes out.

- `GradientStep`: one step down the loss. Normalised, the rate is divided by |x|^2 + 1: the usual NLMS for `mse`.
- `RecursiveLeastSquares`: the least squares of all rows so far, older ones forgotten, drawn to the readout that it
  started from (`reservoir.least_squares`, on [x; 1]). Inside a loop of output feedback this is FORCE (D. Sussillo,
  L. F. Abbott, Neuron 63, 2009).
- `RidgeRefit`: one ridge solve (`reservoir.readout`) of the last rows, every so often.

All work on the float master in float64. Rules are parameters: `losses` names what they lower, `init` makes a state
before the first row, `step` gives state and readout after a row, and `settle` after all rows that were left waiting
(weights that nobody asks for need not be known).

`DivergenceGuard` asks whether learning does harm, and keeps a readout to go back to. Losses rise when the world
changes, too. So a loss is not compared with what it was, but with what the kept readout has on the very same rows: a
shift hurts both, only divergence hurts one. Both are running means, l <- (1 - a) l + a loss.
"""

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from metalforge.core.arrays import Doubles
from metalforge.core.errors import (
    SpecError,
    require_at_least,
    require_not_negative,
    require_one_of,
    require_positive,
    require_shares,
)
from metalforge.reservoir.least_squares import LeastSquares, absorb
from metalforge.reservoir.losses import LossName, LossSlope
from metalforge.reservoir.readout import ridge as ridge_readout

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStep:
    """W -= rate dL/dy x^T, b -= rate dL/dy.

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

    def init(self, master: Master) -> float:
        """Return the rate, which a rollback may lower."""
        return self.rate

    def step(self, state: float, master: Master, lesson: Lesson) -> tuple[float, Master]:
        """Return the readout one step further down."""
        x, slope = lesson.features, lesson.at.slope
        rate = state / float(x @ x + 1) if self.normalised else state
        with np.errstate(all="ignore"):  # what overflows is seen by the guard
            return state, Master(master.w_out - rate * np.outer(slope, x), master.out_bias - rate * slope)

    def settle(self, state: float, master: Master) -> tuple[float, Master]:
        """Return both as they are."""
        return state, master


@dataclass(frozen=True, slots=True, kw_only=True)
class RecursiveLeastSquares:
    """Recursive least squares with a memory of 1 / (1 - forgetting) rows, which must be several times the width.

    `alpha` is the pull towards the readout that it started from: small where that is of little worth, but a tiny one
    makes a readout that is useless when there are about as many rows as features. Up to `BLOCK` rows wait for the next
    push and are then learned together, at a fraction of the cost and with the same result. Rows that were seen before,
    elsewhere, may count as the stream's beginning: `inverse` is that of their (penalised) normal matrix, [x; 1] wide,
    and takes the place of 1 / alpha.
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

    def init(self, master: Master) -> "Waiting":
        """Return a state that knows the readout and its penalty."""
        start = np.concatenate([master.w_out, master.out_bias[:, np.newaxis]], axis=1)
        width = start.shape[1]
        inverse = np.eye(width) / self.alpha if self.inverse is None else np.array(self.inverse, np.float64)
        if len(inverse) != width:
            raise SpecError(f"`inverse` must be {(width, width)}, features and one. Got shape {inverse.shape}")
        return Waiting(LeastSquares(start, inverse, 0), [])

    def step(self, state: "Waiting", master: Master, lesson: Lesson) -> tuple["Waiting", Master]:
        """Return the readout, the same until the block is full. The rows that wait are shared with the state before."""
        state.waiting.append((lesson.features, lesson.target))
        return (state, master) if len(state.waiting) < BLOCK else self.settle(state, master)

    def settle(self, state: "Waiting", master: Master) -> tuple["Waiting", Master]:
        """Return the least squares with the rows that waited."""
        if not state.waiting:
            return state, master
        features, targets = (np.stack(part) for part in zip(*state.waiting, strict=True))
        seen = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        after = absorb(state.solved, seen, targets, self.forgetting)
        return Waiting(after, []), Master(after.w_out[:, :-1], after.w_out[:, -1])


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

    def init(self, master: Master) -> "LastRows":
        """Return an empty window."""
        return LastRows(deque(maxlen=self.window), 0)

    def step(self, state: "LastRows", master: Master, lesson: Lesson) -> tuple["LastRows", Master]:
        """Return the readout, fitted anew where its turn has come. The window is shared with the state before."""
        state.rows.append((lesson.features, lesson.target))
        after = LastRows(state.rows, state.seen + 1)
        if len(after.rows) < self.window or after.seen % self.every:
            return after, master
        features, targets = (np.stack(part) for part in zip(*after.rows, strict=True))
        found = ridge_readout(features, targets, self.ridge)
        return after, Master(found.w_out, found.out_bias)

    def settle(self, state: "LastRows", master: Master) -> tuple["LastRows", Master]:
        """Return both as they are."""
        return state, master


class LastRows(NamedTuple):
    """The last rows (features, target), and how many there were in all."""

    rows: deque[tuple[Doubles, Doubles]]
    seen: int


class Waiting(NamedTuple):
    """A `LeastSquares` solution, and rows (features, target) that are not in it yet."""

    solved: LeastSquares
    waiting: list[tuple[Doubles, Doubles]]


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
