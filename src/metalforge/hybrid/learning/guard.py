r"""Is learning doing harm? The present readout against a kept one on the same rows; that one is what to go back to.

Losses rise when the world changes, too. So a loss is not compared with what it was, but with what the kept readout has
on the very same rows: a shift hurts both, only divergence hurts one. Both are running means, l <- (1 - a) l + a loss.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metalforge.core.errors import SpecError

from .network import Master

__all__ = ["DivergenceGuard", "GuardState", "Judgement"]

FLOOR = 1e-12
"""Losses below it are rounding: a multiple of nothing is not divergence."""


class GuardState(NamedTuple):
    """The kept readout, both running losses, and the rows since it was kept."""

    kept: Master
    present_loss: float
    kept_loss: float
    rows: int


class Judgement(NamedTuple):
    """The state after a row, and whether to go back to its kept readout."""

    state: GuardState
    roll_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceGuard:
    """Rolls back when the running loss is `factor` times that of the kept readout, or is no number.

    Every `keep_every` rows the present readout is kept if it is no worse. `patience` rows after a readout was kept are
    needed before it is judged, unless weights or losses leave the finite numbers. More than `most` rollbacks in a run
    are an error: the rule does not work here. After each the gradient's rate is multiplied by `backoff`. Least squares
    get over a bad spell by more rows (there is one when rows are about as many as features), so they learn on while the
    device holds the kept readout, and have it back when they are no worse.
    """

    factor: float = 4.0
    keep_every: int = 50
    patience: int = 10
    memory: int = 20
    backoff: float = 0.5
    most: int = 10

    def __post_init__(self) -> None:
        if not self.factor > 1 or not 0 < self.backoff <= 1:
            raise SpecError(f"`factor` must be above 1, `backoff` in (0, 1]. Got {self.factor} and {self.backoff}")
        if min(self.keep_every, self.patience, self.memory) < 1 or self.most < 0:
            raise SpecError("`keep_every`, `patience` and `memory` must be at least 1, `most` at least 0")

    def init(self, master: Master) -> GuardState:
        """Return a state that keeps this readout."""
        return GuardState(master, 0.0, 0.0, 0)

    def step(self, state: GuardState, present: Master, loss: float, kept_loss: float) -> Judgement:
        """Return the verdict on a readout whose loss on a row, and that of the kept one, are these."""
        if not (np.isfinite(loss) and all(np.all(np.isfinite(part)) for part in present)):
            return Judgement(state, roll_back=True)
        rows = state.rows + 1
        weight = max(1 / self.memory, 1 / rows)  # a plain mean at first
        running = state.present_loss + weight * (loss - state.present_loss)
        kept = state.kept_loss + weight * (kept_loss - state.kept_loss)
        after = GuardState(state.kept, running, kept, rows)
        if rows >= self.patience and running > self.factor * kept + FLOOR:
            return Judgement(after, roll_back=True)
        if rows >= self.keep_every and running <= kept:
            return Judgement(self.init(present), roll_back=False)
        return Judgement(after, roll_back=False)
