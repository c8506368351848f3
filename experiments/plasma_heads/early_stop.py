r"""Rules that end a run: the error of eta* by the jackknife of its segments, alone or with the head's prediction.

    jackknife   the first time that its error is at most the target, six segments at least
    formula     sqrt(2 t_c / (5 T)) at most the target, t_c = 10 / omega_p: one length for all
    head        the same of ln eta* weighed with the head's, 1 / error^2 = 1 / jackknife^2 + 1 / noise^2

`noise` is what the head was off on training state points left out. Before there are segments enough for a jackknife
the error is that of the spectrum's fit. What a rule leaves is held against the other runs of the same state point,
moved to this run's coupling along the state curve: `coverage` is how often both agree within one and within two of
their errors, 0.68 and 0.95 where errors are right.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metalforge.conductor.plasma.heads import HEADS
from metalforge.core.arrays import Doubles
from metalforge.plasma.replicas import FEWEST_SEGMENTS
from metalforge.plasma.transport import transport

from .baselines import StateCurve
from .corpus import PlasmaRecord
from .scores import StopScore

TARGETS = (0.1, 0.05)
MEMORY = 10.0
"""t_c, in 1 / omega_p."""
VISCOSITY = HEADS.index("transport_eta")
RULES = ("jackknife", "formula", "head")


class Gauss(NamedTuple):
    """A number with its error."""

    value: float
    error: float


def _others(run: PlasmaRecord, runs: Sequence[PlasmaRecord], curve: StateCurve) -> Gauss:
    """Return what the other runs of a state point say of a run's ln eta*."""
    others = [one for one in runs if one.entry.place == run.entry.place and one is not run]
    found = transport(run.entry.spec, [one.kept for one in others])
    at = [curve(gamma, run.entry.kappa) for gamma in (run.found.gamma_measured.mean, found.gamma_measured.mean)]
    error = (found.viscosity.error or 0.0) / found.viscosity.mean
    return Gauss(math.log(found.viscosity.mean) + at[0] - at[1], error)


def progress_of(run: PlasmaRecord) -> tuple[Doubles, Doubles]:
    """Return ln eta* and its error after one segment, two segments, and so on."""
    found = [transport(run.entry.spec, [run.kept[:n]]).viscosity for n in range(1, len(run.kept) + 1)]
    errors = [math.inf if one.error is None else one.error / one.mean for one in found]
    return np.log([one.mean for one in found]), np.array(errors)


class _Stopped(NamedTuple):
    """How a rule ended one run."""

    reached: bool
    time: float
    atom_steps: float
    within_one: bool
    within_two: bool
    off2: float


def _stopped(
    rule: str, target: float, run: PlasmaRecord, path: tuple[Doubles, Doubles], head: Gauss, truth: Gauss
) -> _Stopped:
    (value, error), segment = path, run.kept[0].time
    count = np.arange(1, len(error) + 1)
    if rule == "formula":
        enough = count * segment >= 2 * MEMORY / (5 * target**2)
    elif rule == "jackknife":
        # With fewer there is no jackknife, and the error of a fit alone is too often too small.
        enough = (error <= target) & (count >= FEWEST_SEGMENTS)
    else:
        value, error = weighed_with(head, value, error)
        enough = (error <= target) & (count * segment >= run.entry.window)
    n = int(np.argmax(enough)) if enough.any() else len(error) - 1
    off, wide = float(value[n]) - truth.value, math.hypot(float(error[n]), truth.error)
    time = (n + 1) * segment
    steps = time * run.entry.particles / run.entry.spec.step_time
    return _Stopped(bool(enough.any()), time, steps, abs(off) <= wide, abs(off) <= 2 * wide, off**2)


def stop_transport(
    train: Sequence[PlasmaRecord], test: Sequence[PlasmaRecord], said: Doubles, noise: float
) -> tuple[StopScore, ...]:
    """Return how every rule ends the test runs; `said` is the head's ln eta* of each window."""
    curve = StateCurve.through(train, VISCOSITY)
    asked = [i for i, run in enumerate(test) if sum(one.entry.place == run.entry.place for one in test) > 1]
    truths = {i: _others(test[i], test, curve) for i in asked}
    paths = {i: progress_of(test[i]) for i in asked}
    scores: list[StopScore] = []
    for target in TARGETS:
        spent = math.nan
        for rule in RULES:
            ends = [_stopped(rule, target, test[i], paths[i], Gauss(float(said[i]), noise), truths[i]) for i in asked]
            mean = _Stopped(*np.array(ends, np.float64).mean(axis=0).tolist())
            spent = mean.atom_steps if rule == "jackknife" else spent
            scores.append(
                StopScore(
                    rule=rule,
                    target=target,
                    runs=len(asked),
                    reached=sum(end.reached for end in ends),
                    time=mean.time,
                    atom_steps=mean.atom_steps,
                    saved=1 - mean.atom_steps / spent,
                    coverage_68=float(mean.within_one),
                    coverage_95=float(mean.within_two),
                    rms=math.sqrt(mean.off2),
                )
            )
    return tuple(scores)


def weighed_with(head: Gauss, value: Doubles, error: Doubles) -> tuple[Doubles, Doubles]:
    """Return ln eta* and its error, weighed with what the head says."""
    weight = 1 / error**2 + 1 / head.error**2
    return (value / error**2 + head.value / head.error**2) / weight, 1 / np.sqrt(weight)
