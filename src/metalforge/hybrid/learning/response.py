"""What is done about drift: rows go in, answers come out; on an alarm the device is mended, or the readout learns.

A readout that suddenly errs has two possible reasons. Either the chip no longer holds what it was given (a flipped bit,
a register written by somebody else), which reading it back shows and a reload mends; or the world has changed, and the
readout must learn it. Learning on a damaged chip would fit the damage, so the first is always asked first.
"""

from collections import Counter
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError, UnknownNameError

from .drift import DriftMonitor
from .trainer import OnlineTrainer, StepInfo

__all__ = ["Action", "DriftResponse", "ResponseInfo", "Watch"]

Watch: TypeAlias = Literal["error", "output", "input"]
Action: TypeAlias = Literal["none", "reload", "adapt"]
WATCHES = ("error", "output", "input")


class ResponseInfo(NamedTuple):
    """What the trainer did with a row, how far the stream has drifted, and what was begun because of it."""

    step: StepInfo
    divergence: float
    action: Action
    learning: bool


class DriftResponse:
    """A trainer that learns only after an alarm, for `adapt_steps` rows; `watch` is what the monitor sees.

    `error` is output minus target, so it wants targets; `output` and `input` do not, and see only drift that shows in
    them. The monitor begins after the trainer's washout, whose errors are of a state on its way. `counts` has the
    actions taken.
    """

    def __init__(
        self, trainer: OnlineTrainer, monitor: DriftMonitor, *, adapt_steps: int, watch: Watch = "error"
    ) -> None:
        if watch not in WATCHES:
            raise UnknownNameError("thing to watch", watch, WATCHES)
        wanted = trainer.network.inputs if watch == "input" else trainer.outputs
        if monitor.channels != wanted:
            raise SpecError(f"watching the {watch} wants a monitor of {wanted} channels. Got {monitor.channels}")
        if adapt_steps < 1:
            raise SpecError(f"`adapt_steps` must be at least 1. Got {adapt_steps}")
        self.trainer, self.monitor = trainer, monitor
        self.adapt_steps, self.watch = adapt_steps, watch
        self.counts: Counter[Action] = Counter()
        self._left = self._steps = 0

    @property
    def learning(self) -> bool:
        """Whether the readout learns at present."""
        return self._left > 0

    def step(self, u: ArrayLike, target: ArrayLike | None = None) -> ResponseInfo:
        """Answer one row; learn it while an adaptation lasts, and look for drift while none does."""
        learning = self.learning
        self._steps += 1
        info = self.trainer.step(u, target, learn=learning)
        if learning:
            self._left -= 1
            if not self._left:
                self.trainer.flush()
        seen = self._seen(info, u, target)
        if seen is None or self._steps <= self.trainer.washout:
            return ResponseInfo(info, 0.0, "none", learning)
        distance, alarm = self.monitor.step(seen)
        action: Action = "none"
        # What learning itself does to the errors is no drift.
        if alarm and not learning:
            action = "reload" if self.trainer.mend() else "adapt"
            if action == "adapt":
                self.trainer.load(self.trainer.master)  # the rule begins anew: what it knew was of another world
                self._left = self.adapt_steps
            self.counts[action] += 1
        return ResponseInfo(info, distance, action, learning)

    def _seen(self, info: StepInfo, u: ArrayLike, target: ArrayLike | None) -> ArrayLike | None:
        if self.watch == "input":
            return u
        if info.output is None:
            return None
        if self.watch == "output":
            return info.output
        wanted = None if target is None else np.asarray(target, np.float64)
        # A class is no number to subtract; its one-hot form is.
        if wanted is not None and wanted.ndim == 0:
            wanted = np.eye(self.trainer.outputs)[int(wanted)]
        return None if wanted is None else info.output - wanted
