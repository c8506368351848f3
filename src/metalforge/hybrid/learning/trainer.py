r"""Learning on a stream: the device answers, software corrects, the device is given new weights.

    y = network(u) on the device  ->  L(y, t), dL/dy  ->  the rule moves the float master  ->  requantised, pushed

with a rule, a guard against divergence, and counts of everything.

With F the device's seconds of one step's calls and U those of an update, a push every k steps makes F + U / k a step.
`plan_updates` takes the smallest k for which updates are at most a `share` of the device's time,

    U / k <= share (F + U / k)    <=>    k >= U (1 - share) / (share F),

Under `akd1000-published` an update is 14 ms and a call 0.65 ms: many steps share a push. Under `akd1000-claimed` it is
86 us and 54 us: about every step has its own.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import (
    Doubles,
    Measured,
    Modelled,
    SpecError,
    cores_for,
    require_at_least,
    require_one_of,
    require_shares,
)
from metalforge.hybrid.routing.plan import short
from metalforge.hybrid.running.device_matrix import Push
from metalforge.reservoir import (
    DivergenceError,
    LossName,
    LossSlope,
    SeriesError,
    as_targets,
    check_loss,
    loss_and_slope,
)
from metalforge.substrates import DeviceProfile, call_seconds, update_cost
from metalforge.substrates import profile as find_profile

from .network import DeviceNetwork, Forward, Master
from .rules import BACKOFF, MOST, GradientStep, Guard, Rule


class UpdatePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often to push under a profile, and why. All seconds and rates are the device's, modelled."""

    profile: str
    every: int
    forward: Modelled
    """The calls of one step."""
    update: Modelled
    rate: Modelled
    """Steps a second with this schedule."""
    update_share: float
    """Part of the device's time that updates take."""
    reason: str


def step_seconds(network: DeviceNetwork, profile: DeviceProfile | str) -> float:
    """Return the modelled seconds of one step's calls: the reservoir's rows, then the readout's."""
    device = find_profile(profile)
    return sum(
        call_seconds(matrix.compiled.program, matrix.rows_per_sample, device)
        for matrix in (network.reservoir, network.readout)
    )


def plan_updates(
    profile: DeviceProfile | str, network: DeviceNetwork | None = None, *, share: float = 0.5
) -> UpdatePlan:
    """Return how often to push under a profile.

    Without a network, a step is one call of a small program, as the design documents count it.
    """
    if not 0 < share < 1:
        raise SpecError(f"`share` must lie between 0 and 1. Got {share}")
    device = find_profile(profile)
    forward = device.call.call_s.value if network is None else step_seconds(network, device)
    priced = update_cost(0 if network is None else network.readout.variable_bytes, device).latency
    update = device.call.weight_update_s.value if priced is None else priced.value
    # At least 1; rounding of the quotient does not add one.
    every = max(1, ceil(update * (1 - share) / (share * forward) * (1 - 1e-12)))
    call, push = (Modelled(value=seconds, unit="s", profile=device.name) for seconds in (forward, update))
    why = f"an update of {short(push)} is {update / forward:.1f} times the {short(call)} of a step's calls"
    how_often = f"every {every} steps" if every > 1 else "pushing every step"
    why += f": {how_often} keeps updates within {share:.0%} of the device's time"
    per_step = forward + update / every
    return UpdatePlan(
        profile=device.name,
        every=every,
        forward=call,
        update=push,
        rate=Modelled(value=1 / per_step, unit="Hz", profile=device.name),
        update_share=update / every / per_step,
        reason=f"{device.name}: {why}",
    )


OnNan: TypeAlias = Literal["skip", "stop"]


class StepInfo(NamedTuple):
    """What a step did. `output` is None and `loss` NaN where the row could not be used."""

    output: Doubles | None
    loss: float
    learned: bool


class TrainerStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of a trainer. Pushes that changed no integer are not counted: nothing went over."""

    steps: int
    learned: int
    skipped_inputs: int
    """Rows whose input was not finite: not answered, the state stayed."""
    skipped_targets: int
    """Rows whose target was not finite: answered, not learned."""
    pushes: int
    bytes_pushed: int
    push_failures: int
    """Attempts at a push that the device did not acknowledge; each was repeated."""
    rollbacks: int
    mended: int
    """Times that the device was found with other weights and was written again."""
    host: Measured
    learning: Measured
    """The part of it that loss, rule and guard took: no device, no emulation."""
    device: Modelled | None
    energy: Modelled | None


COUNTED = tuple(field.name for field in msgspec.structs.fields(TrainerStatistics) if field.type is int)


class Training(NamedTuple):
    """A run: outputs before each row was learned (NaN where skipped), losses, and the trainer's counts at its end."""

    outputs: Doubles
    losses: Doubles
    statistics: TrainerStatistics


class OnlineTrainer:
    """Trains the readout of a network on a stream, one row at a time.

    The master is pushed every `push_every` steps, and as soon as the share `push_changed` of its integers has changed;
    without either, at every step. `washout` steps at the start are answered and not learned. `on_nan`: a row with a
    NaN or infinity is skipped and counted (a bad input leaves the state where it was; a bad target is answered and not
    learned), or ends the run with an error before anything moved. Every `verify_every` steps the device is read back
    and, if need be, written again. Without a `guard`, divergence is an error.
    """

    def __init__(
        self,
        network: DeviceNetwork,
        rule: Rule,
        *,
        loss: LossName = "mse",
        push_every: int | None = None,
        push_changed: float | None = None,
        guard: bool = True,
        on_nan: OnNan = "skip",
        washout: int = 0,
        verify_every: int | None = None,
    ) -> None:
        check_loss(loss)
        if loss not in rule.losses:
            raise SpecError(f"{type(rule).__name__} learns {', '.join(rule.losses)}. Got `{loss}`\nhint: GradientStep")
        require_one_of("skip", "stop", on_nan=on_nan)
        require_at_least(0, washout=washout)
        require_at_least(1, verify_every=verify_every, push_every=push_every)
        if push_changed is not None:
            require_shares(push_changed=push_changed)
        self.network = network
        self.loss, self.on_nan, self.washout, self.verify_every = loss, on_nan, washout, verify_every
        self.push_every = 1 if push_every is None and push_changed is None else push_every
        self.push_changed = push_changed
        self.rule = replace(rule)
        """A copy, whose rate shrinks with every rollback."""
        self._master = self.network.master()
        self._guard = Guard(self._master) if guard else None
        self._since_push, self._benched = 0, False
        self._count: Counter[str] = Counter()
        self._total_s = self._learning_s = 0.0
        self._before = self.network.programs.spent()
        self._restart()

    @property
    def master(self) -> Master:
        """A copy of the float readout after the rows learned so far; the device holds that of the last push."""
        return Master(self._master.w_out.copy(), self._master.out_bias.copy())

    @property
    def outputs(self) -> int:
        """Size of a target."""
        return int(self._master.out_bias.size)

    # The stream.

    def step(self, u: ArrayLike, target: ArrayLike | None = None, *, learn: bool = True) -> StepInfo:
        """Answer one input (inputs,), and learn its target (outputs,), or class, where there is one."""
        begin = perf_counter()
        given = np.asarray(u, np.float64)
        if given.shape != (self.network.inputs,):
            raise SeriesError(f"an input must be {self.network.inputs} real numbers. Got shape {given.shape}")
        wanted = None if target is None else as_targets(target, (self.outputs,), self.loss)
        bad_input = not np.all(np.isfinite(given))
        bad_target = wanted is not None and not np.all(np.isfinite(wanted))
        if (bad_input or bad_target) and self.on_nan == "stop":
            which = "input" if bad_input else "target"
            raise SeriesError(
                f"step {self._count['steps']}: the {which} is not finite; nothing was learned from it"
                "\nhint: on_nan=`skip` goes on without such rows"
            )
        self._count["steps"] += 1
        if bad_input:
            self._count["skipped_inputs"] += 1
            return StepInfo(None, float("nan"), learned=False)
        forward = self.network.forward(given)
        info = StepInfo(forward.output, float("nan"), learned=False)
        if bad_target:
            self._count["skipped_targets"] += 1
        elif wanted is not None:
            at = loss_and_slope(forward.output, wanted, self.loss)
            info = info._replace(loss=at.value)
            if learn and self._count["steps"] > self.washout:
                self._learn(forward, wanted, at)
                info = info._replace(learned=True)
        if self.verify_every is not None and self._count["steps"] % self.verify_every == 0:
            self.mend()
        self._total_s += perf_counter() - begin
        return info

    def run(self, inputs: ArrayLike, targets: Iterable[Any], *, learn: bool = True) -> Training:
        """Step through inputs (steps, inputs) with as many targets; what was not pushed at the end is pushed."""
        rows, wanted = np.asarray(inputs, np.float64), list(targets)
        if rows.ndim != 2 or len(rows) != len(wanted):
            raise SeriesError(
                f"inputs must be (steps, {self.network.inputs}) with one target per step. "
                f"Got {rows.shape} and {len(wanted)} targets"
            )
        outputs, losses = np.full((len(rows), self.outputs), np.nan), np.full(len(rows), np.nan)
        with cores_for(self._master.w_out.shape[1]):
            for t, (u, target) in enumerate(zip(rows, wanted, strict=True)):
                info = self.step(u, target, learn=learn)
                losses[t] = info.loss
                if info.output is not None:
                    outputs[t] = info.output
            self.flush()
        return Training(outputs, losses, self.statistics())

    # The device.

    def flush(self) -> Push:
        """Push the master now, whatever the schedule says; rows that waited are learned first."""
        self._settle()
        deployed = self._guard.kept if self._guard is not None and self._benched else self._master
        push = self.network.push(deployed.w_out, deployed.out_bias)
        self._since_push = 0
        self._count["pushes"] += push.bytes > 0
        self._count["bytes_pushed"] += push.bytes
        self._count["push_failures"] += push.failures
        return push

    def mend(self) -> bool:
        """Return whether the device held other weights than it was given, and was written again."""
        if self.network.verify():
            return False
        self.network.restore()
        self._count["mended"] += 1
        return True

    def load(self, master: Master) -> None:
        """Take another readout as master, push it, and let the rule begin anew."""
        self._master = Master(np.array(master.w_out, np.float64), np.array(master.out_bias, np.float64))
        self._restart()
        self.flush()

    def statistics(self) -> TrainerStatistics:
        """Return counts, measured host time and modelled device time since the trainer was made."""
        busy, energy = self.network.programs.spent().since(self._before)
        return TrainerStatistics(
            **{name: self._count[name] for name in COUNTED},
            host=Measured(value=self._total_s, unit="s", how="perf_counter around steps, emulation included"),
            learning=Measured(value=self._learning_s, unit="s", how="perf_counter around loss, rule and guard"),
            device=busy,
            energy=energy,
        )

    # One lesson.

    def _learn(self, forward: Forward, wanted: Doubles, at: LossSlope) -> None:
        begin = perf_counter()
        if not self._from_device():
            at = loss_and_slope(self._master(forward.features), wanted, self.loss)
        try:
            new = self.rule.learn(self._master, forward.features, wanted, at.slope)
            fine, bench = self._judge(new, forward.features, wanted)
        except DivergenceError:
            fine = bench = False
        if fine:
            self._master = new
        self._count["learned"] += 1
        self._learning_s += perf_counter() - begin
        if not fine:
            self._roll_back()
        elif bench != self._benched:
            self._benched = bench  # the kept readout is deployed while the rule gets over a bad spell
            if bench:
                self._count_rollback()
            self.flush()
        self._since_push += 1
        due = self.push_every is not None and self._since_push >= self.push_every
        if self.push_changed is not None:
            self._settle()
            due |= self.network.readout.changed(self._master.w_out) / self._master.w_out.size >= self.push_changed
        if due:
            self.flush()

    def _settle(self) -> None:
        """Let the rule learn the rows that it left waiting."""
        begin = perf_counter()
        try:
            self._master = self.rule.settle(self._master)
        except DivergenceError:
            self._roll_back()
        self._learning_s += perf_counter() - begin

    def _judge(self, new: Master, features: Doubles, wanted: Doubles) -> tuple[bool, bool]:
        """Return whether the new readout may be taken, and whether the kept one is deployed in its place."""
        guard = self._guard
        if guard is None:
            return True, False
        present, kept = (loss_and_slope(m(features), wanted, self.loss).value for m in (self._master, guard.kept))
        harm = guard.harmed(new, present, kept)
        if isinstance(self.rule, GradientStep) or not all(np.all(np.isfinite(part)) for part in new):
            return not harm, False
        return True, harm or (self._benched and guard.worse)

    def _roll_back(self) -> None:
        """Go back to the kept readout, on the device too, and learn on more carefully."""
        guard = self._count_rollback()
        if isinstance(self.rule, GradientStep):
            self.rule.rate *= BACKOFF
        self.load(guard.kept)

    def _count_rollback(self) -> Guard:
        """Return the guard, unless there is none or there were too many rollbacks."""
        self._count["rollbacks"] += 1
        if self._guard is None or self._count["rollbacks"] > MOST:
            raise DivergenceError(
                f"learning diverged at step {self._count['steps']} ({self._count['rollbacks'] - 1} rollbacks before)"
                "\nhint: a smaller rate, a forgetting nearer to 1, or a larger alpha or ridge"
            )
        return self._guard

    def _restart(self) -> None:
        self.rule.start(self._master)
        if self._guard is not None:
            self._guard.keep(self._master)
        self._benched = False

    def _from_device(self) -> bool:
        """Whether the rule corrects what the device said, rounding included, rather than what the master says.

        Between pushes the device repeats an error that the master has learned already: correcting it again and again
        would overshoot.
        """
        return not isinstance(self.rule, GradientStep) or self.push_every == 1


def online_training_step(
    network: DeviceNetwork,
    x: ArrayLike,
    target: ArrayLike,
    lr: float,
    *,
    loss: LossName = "mse",
) -> float:
    """Return the loss of one input (inputs,) and let the readout learn its target: W -= lr dL/dW, pushed at once.

    The output is the device's, rounding included. Graphs learn by a `Gradient` op of their own.
    """
    trainer = OnlineTrainer(network, GradientStep(rate=lr), loss=loss, guard=False, on_nan="stop")
    return trainer.step(x, target).loss
