r"""How a readout learns a row: what it held, the features and the target go in, what it shall hold comes out.

All work on the float master in float64. `Guard` asks whether learning does harm, and keeps a readout to go back to.
Losses rise when the world changes, too. So a loss is not compared with what it was, but with what the kept readout has
on the very same rows: a shift hurts both, only divergence hurts one.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from metalforge.core import (
    Doubles,
    SpecError,
    require_at_least,
    require_not_negative,
    require_positive,
    require_shares,
)
from metalforge.reservoir import LeastSquares, LossName, absorb
from metalforge.reservoir import ridge as ridge_readout

from .network import Master

BLOCK = 64
"""Rows that least squares let wait at most."""
Row = tuple[Doubles, Doubles]
"""Features and target."""


@dataclass(kw_only=True, eq=False)
class Rule(ABC):
    """Parameters, and what is kept from row to row; a trainer takes a copy of its own."""

    losses: ClassVar[tuple[LossName, ...]] = ("mse",)

    @abstractmethod
    def start(self, master: Master) -> None:
        """Forget all rows and begin at a readout."""

    @abstractmethod
    def learn(self, master: Master, features: Doubles, target: Doubles, slope: Doubles) -> Master:
        """Return the readout after a row, the same where the row is left waiting; `slope` is dL/dy of its loss."""

    def settle(self, master: Master) -> Master:
        """Return the readout once the rows that wait are learned."""
        return master


@dataclass(kw_only=True, eq=False)
class GradientStep(Rule):
    """W -= rate dL/dy x^T, b -= rate dL/dy; normalised, the rate is divided by |x|^2 + 1 (NLMS for `mse`)."""

    losses = ("mse", "cross_entropy")
    rate: float
    normalised: bool = False

    def __post_init__(self) -> None:
        require_positive(rate=self.rate)

    def start(self, master: Master) -> None:
        """Do nothing: no row is kept."""

    def learn(self, master: Master, features: Doubles, target: Doubles, slope: Doubles) -> Master:
        """Return the readout one step further down."""
        rate = self.rate / float(features @ features + 1) if self.normalised else self.rate
        with np.errstate(all="ignore"):  # what overflows is seen by the guard
            return Master(master.w_out - rate * np.outer(slope, features), master.out_bias - rate * slope)


@dataclass(kw_only=True, eq=False)
class RecursiveLeastSquares(Rule):
    """The least squares of all rows so far, drawn to the readout that it started from (`reservoir.least_squares`).

    Its memory is 1 / (1 - forgetting) rows, which must be several times the width; inside a loop of output feedback
    this is FORCE (D. Sussillo, L. F. Abbott, Neuron 63, 2009). `alpha` is the pull towards the start: small where that
    is of little worth, but a tiny one makes a readout that is useless when there are about as many rows as features. Up
    to `BLOCK` rows wait for the next push and are then learned together, at a fraction of the cost and with the same
    result. Rows that were seen elsewhere may count as the stream's beginning: `inverse` is that of their (penalised)
    normal matrix, [x; 1] wide, and takes the place of 1 / alpha.
    """

    alpha: float = 1e-3
    forgetting: float = 1.0
    inverse: Doubles | None = None
    _solved: LeastSquares = field(init=False, repr=False)
    _waiting: list[Row] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_positive(alpha=self.alpha)
        require_shares(forgetting=self.forgetting)
        p = self.inverse
        if p is not None and (p.ndim != 2 or p.shape[0] != p.shape[1] or not np.all(np.isfinite(p))):
            raise SpecError(f"`inverse` must be a square matrix of finite numbers. Got shape {p.shape}")

    def start(self, master: Master) -> None:
        """Take the readout and its penalty as the solution so far."""
        start = np.concatenate([master.w_out, master.out_bias[:, np.newaxis]], axis=1)
        width = start.shape[1]
        inverse = np.eye(width) / self.alpha if self.inverse is None else np.array(self.inverse, np.float64)
        if len(inverse) != width:
            raise SpecError(f"`inverse` must be {(width, width)}, features and one. Got shape {inverse.shape}")
        self._solved, self._waiting = LeastSquares(start, inverse, 0), []

    def learn(self, master: Master, features: Doubles, target: Doubles, slope: Doubles) -> Master:
        """Return the same readout, or the new one once `BLOCK` rows wait."""
        self._waiting.append((features, target))
        return master if len(self._waiting) < BLOCK else self.settle(master)

    def settle(self, master: Master) -> Master:
        """Return the readout of all rows."""
        if not self._waiting:
            return master
        features, targets = _stacked(self._waiting)
        seen = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        after = self._solved = absorb(self._solved, seen, targets, self.forgetting)
        self._waiting = []
        return Master(after.w_out[:, :-1], after.w_out[:, -1])


@dataclass(kw_only=True, eq=False)
class RidgeRefit(Rule):
    """A ridge solve of the last `window` rows, every `every` rows once there are so many."""

    window: int
    every: int
    ridge: float = 1e-6
    _rows: deque[Row] = field(init=False, repr=False)
    _seen: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_at_least(2, window=self.window)
        require_at_least(1, every=self.every)
        require_not_negative(ridge=self.ridge)

    def start(self, master: Master) -> None:
        """Begin with an empty window."""
        self._rows, self._seen = deque(maxlen=self.window), 0

    def learn(self, master: Master, features: Doubles, target: Doubles, slope: Doubles) -> Master:
        """Return the readout of the window where it is time for one."""
        self._rows.append((features, target))
        self._seen += 1
        if len(self._rows) < self.window or self._seen % self.every:
            return master
        found = ridge_readout(*_stacked(self._rows), self.ridge)
        return Master(found.w_out, found.out_bias)


def _stacked(rows: Iterable[Row]) -> tuple[Doubles, Doubles]:
    features, targets = zip(*rows, strict=True)
    return np.stack(features), np.stack(targets)


FACTOR, FLOOR = 4.0, 1e-12
"""A running loss above FACTOR times that of the kept readout is divergence; losses below FLOOR are rounding."""
BACKOFF, MOST = 0.5, 10
"""Of a gradient's rate after each rollback, and rollbacks in a run beyond which the rule does not work."""
KEEP_EVERY, PATIENCE, MEMORY = 50, 10, 20
"""Rows: between readouts that are kept, before one is judged, and of a running mean."""


class Guard:
    """The kept readout, and running means of its loss and of the present readout's, l <- (1 - a) l + a loss.

    Every `KEEP_EVERY` rows the present readout is kept if it is no worse. A trainer goes back to the kept one where
    learning did harm. Least squares get over a bad spell by more rows (there is one when rows are about as many as
    features), so they learn on while the device holds the kept readout, and have it back when they are no worse.
    """

    def __init__(self, kept: Master) -> None:
        self.keep(kept)

    def keep(self, master: Master) -> None:
        """Keep a readout, whose losses are counted from here on."""
        self.kept, self.present_loss, self.kept_loss, self._rows = master, 0.0, 0.0, 0

    @property
    def worse(self) -> bool:
        """Whether the present readout is worse than the kept one."""
        return self.present_loss > self.kept_loss

    def harmed(self, present: Master, loss: float, kept_loss: float) -> bool:
        """Return whether the present readout diverged, by its loss on a row and that of the kept one."""
        if not (np.isfinite(loss) and all(np.all(np.isfinite(part)) for part in present)):
            return True
        self._rows += 1
        weight = max(1 / MEMORY, 1 / self._rows)  # a plain mean at first
        self.present_loss += weight * (loss - self.present_loss)
        self.kept_loss += weight * (kept_loss - self.kept_loss)
        if self._rows >= PATIENCE and self.present_loss > FACTOR * self.kept_loss + FLOOR:
            return True
        if self._rows >= KEEP_EVERY and self.present_loss <= self.kept_loss:
            self.keep(present)
        return False
