r"""Has the world changed? A fast and a slow memory of a stream, and the distance between them.

For each channel an exponential mean and variance with weight a (a_fast > a_slow), d = x - m:

    m <- m + a d,    v <- (1 - a) (v + a d^2)

and between the two the symmetric Kullback-Leibler divergence of Gaussians, averaged over the channels:

    J = 1/2 [ (m_f - m_s)^2 (1/v_f + 1/v_s) + v_f/v_s + v_s/v_f - 2 ]

J is noisy even where nothing changes, the more so the shorter the fast memory and the more neighbouring rows are alike.
So its threshold is not a constant: `choose_threshold` takes it from stationary streams, for the false alarms that one
is ready to have.

`DriftResponse` acts on an alarm. A readout that suddenly errs has two possible reasons. Either the chip no longer holds
what it was given, which reading it back shows and a reload mends; or the world has changed, and the readout must learn
it. Learning on a damaged chip would fit the damage, so the first is always asked first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Doubles, SpecError, require_at_least
from metalforge.reservoir import SeriesError, as_targets

from .trainer import OnlineTrainer, StepInfo

SMALLEST_VARIANCE = 1e-12
"""Relative to the channel's mean square: a constant channel has no distance from itself."""


class DriftInfo(NamedTuple):
    """The divergence after a row, and whether it is an alarm."""

    divergence: float
    alarm: bool


def divergence(mean_a: ArrayLike, variance_a: ArrayLike, mean_b: ArrayLike, variance_b: ArrayLike) -> Doubles:
    """Return KL(a | b) + KL(b | a) of Gaussians, element by element."""
    m, v, n, w = (np.asarray(x, np.float64) for x in (mean_a, variance_a, mean_b, variance_b))
    return np.asarray(0.5 * ((m - n) ** 2 * (1 / v + 1 / w) + v / w + w / v - 2))


class DriftMonitor:
    """Watches a stream of numbers (channels,): inputs, outputs, or losses, whichever shall not drift.

    `mean` and `variance` are (2, channels), those of the fast memory first. The first 3 / `fast` rows give no alarm.
    After an alarm both memories begin anew, so that the new world becomes the normal one. Rows that are not finite are
    passed over and counted in `skipped`.
    """

    mean: Doubles
    variance: Doubles
    _rows: int

    def __init__(self, channels: int, *, threshold: float, fast: float = 0.02, slow: float = 0.001) -> None:
        if not 0 < slow < fast < 1:
            raise SpecError(f"rates must be 0 < slow < fast < 1. Got slow = {slow}, fast = {fast}")
        require_at_least(1, channels=channels)
        if not threshold > 0:
            raise SpecError(f"`threshold` must be above 0. Got {threshold}")
        self.channels, self.threshold, self._rates = channels, threshold, np.array([fast, slow])
        self._warmup = round(3 / fast)
        self.alarms = self.skipped = 0
        self.rebase()

    def step(self, x: ArrayLike) -> DriftInfo:
        """Take one row, and say how far the fast memory is from the slow one."""
        row = np.atleast_1d(np.asarray(x, np.float64))
        if row.shape != (self.channels,):
            raise SeriesError(f"a row must be {self.channels} real numbers. Got shape {row.shape}")
        if not np.all(np.isfinite(row)):
            self.skipped += 1
            return DriftInfo(0.0, alarm=False)
        self._rows += 1
        # Plain means until they are as long as the exponential ones.
        a, d = np.maximum(self._rates, 1 / self._rows)[:, np.newaxis], row - self.mean
        self.mean, self.variance = self.mean + a * d, (1 - a) * (self.variance + a * d * d)
        if self._rows < self._warmup:
            return DriftInfo(0.0, alarm=False)
        floor = SMALLEST_VARIANCE * (self.mean[1] ** 2 + self.variance[1]) + np.finfo(np.float64).tiny
        fast, slow = np.maximum(self.variance, floor)
        distance = float(np.mean(divergence(self.mean[0], fast, self.mean[1], slow)))
        alarm = distance > self.threshold
        if alarm:
            self.alarms += 1
            self.rebase()
        return DriftInfo(distance, alarm)

    def rebase(self) -> None:
        """Forget everything: what comes from now on is what is normal."""
        self.mean, self.variance, self._rows = np.zeros((2, self.channels)), np.zeros((2, self.channels)), 0


def choose_threshold(streams: Sequence[ArrayLike], *, horizon: int, false_alarm: float = 0.05, **memory: Any) -> float:
    """Return the threshold that a share `false_alarm` of stationary runs of `horizon` rows would exceed.

    `streams` are stationary, (rows, channels) each, independent of one another. They are cut into runs of `horizon`
    rows, each watched from an empty memory; the threshold is the matching quantile of the runs' largest divergences, by
    the rank of ceil((n + 1)(1 - p)) among n, so that a further run exceeds it with at most that probability if runs are
    exchangeable (the argument of conformal prediction). Too few runs for that are refused. `memory` are further
    arguments of the `DriftMonitor` that the threshold is for.
    """
    if not 0 < false_alarm < 1 or horizon < 2:
        raise SpecError(f"`false_alarm` must lie between 0 and 1, `horizon` be 2 or more. Got {false_alarm}, {horizon}")
    largest = []
    for run in _runs(streams, horizon):
        monitor = DriftMonitor(run.shape[1], threshold=float("inf"), **memory)
        largest.append(max(monitor.step(row).divergence for row in run))
    rank = int(np.ceil((len(largest) + 1) * (1 - false_alarm)))
    if rank > len(largest):
        raise SpecError(
            f"a false-alarm share of {false_alarm} wants at least {int(np.ceil(1 / false_alarm)) - 1} runs of "
            f"{horizon} rows. Got {len(largest)}\nhint: longer streams, or a larger share"
        )
    return float(np.sort(largest)[rank - 1])


def _runs(streams: Iterable[ArrayLike], horizon: int) -> list[Doubles]:
    """Return pieces of `horizon` rows, (rows, channels) each; what is left over at the end of a stream is not used."""
    pieces = []
    for stream in streams:
        rows = np.asarray(stream, np.float64)
        rows = rows[:, np.newaxis] if rows.ndim == 1 else rows
        if rows.ndim != 2:
            raise SeriesError(f"a stream must be (rows,) or (rows, channels). Got shape {rows.shape}")
        pieces += [rows[i : i + horizon] for i in range(0, len(rows) - horizon + 1, horizon)]
    if not pieces:
        raise SeriesError(f"no stream is as long as the horizon of {horizon} rows")
    return pieces


Action: TypeAlias = Literal["none", "reload", "adapt"]


class ResponseInfo(NamedTuple):
    """What the trainer did with a row, how far the stream has drifted, and what was begun because of it."""

    step: StepInfo
    divergence: float
    action: Action
    learning: bool


class DriftResponse:
    """A trainer that learns only after an alarm, for `adapt_steps` rows; the monitor sees outputs minus targets.

    It begins after the trainer's washout, whose errors are of a state on its way. `counts` has the actions taken.
    """

    def __init__(self, trainer: OnlineTrainer, monitor: DriftMonitor, *, adapt_steps: int) -> None:
        if monitor.channels != trainer.outputs:
            raise SpecError(f"errors want a monitor of {trainer.outputs} channels. Got {monitor.channels}")
        require_at_least(1, adapt_steps=adapt_steps)
        self.trainer, self.monitor, self.adapt_steps = trainer, monitor, adapt_steps
        self.counts: Counter[Action] = Counter()
        self._left = self._steps = 0

    def step(self, u: ArrayLike, target: ArrayLike | None = None) -> ResponseInfo:
        """Answer one row; learn it while an adaptation lasts, and look for drift while none does."""
        learning = self._left > 0
        self._steps += 1
        info = self.trainer.step(u, target, learn=learning)
        if learning:
            self._left -= 1
            if not self._left:
                self.trainer.flush()
        if info.output is None or target is None or self._steps <= self.trainer.washout:
            return ResponseInfo(info, 0.0, "none", learning)
        wanted = as_targets(target, info.output.shape, self.trainer.loss)
        distance, alarm = self.monitor.step(info.output - wanted)
        action: Action = "none"
        # What learning itself does to the errors is no drift.
        if alarm and not learning:
            action = "reload" if self.trainer.mend() else "adapt"
            if action == "adapt":
                self.trainer.load(self.trainer.master)  # the rule begins anew: what it knew was of another world
                self._left = self.adapt_steps
            self.counts[action] += 1
        return ResponseInfo(info, distance, action, learning)
