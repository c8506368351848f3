r"""Scores of the two heads on state points they have not seen, against the strongest of their baselines.

    skill = 1 - loss / loss of the baseline,        loss = mean square of ln D* or ln eta* against the whole run

- `T1` Gamma and kappa are hidden: the window's own numbers and Stokes-Einstein (b3 to b6) stand against the heads.
- `T2` both are known: the heads say what the state curve (b2) leaves; every baseline stands against them.
- `T3` an unseen kappa: heads and baselines are fitted to kappa <= 2 (or all but the largest), asked at the largest.
- controls of `T1`: windows whose frames were put in another order, and windows of another run.

The baseline is the one with the least loss on the test runs themselves: choosing it there can only favour it. Intervals
are 95 % and draw state points, with all their runs. A head is trusted where the lower end of its skill in `T1` is above
zero on the route that it runs on. docs/protocols/plasma_heads.md has all of it.

Rules that end a run, by the error of eta* that the jackknife of its segments gives:

    jackknife   the first time that its error is at most the target, six segments at least
    formula     sqrt(2 t_c / (5 T)) at most the target, t_c = 10 / omega_p: one length for all
    head        the same of ln eta* weighed with the head's, 1 / error^2 = 1 / jackknife^2 + 1 / noise^2

`noise` is what the head was off on training state points left out. Before there are segments enough for a jackknife
the error is that of the spectrum's fit. What a rule leaves is held against the other runs of the same state point,
moved to this run's coupling along the state curve: `coverage` is how often both agree within one and within two of
their errors, 0.68 and 0.95 where errors are right.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.conductor.plasma import (
    HEADS,
    TestedPlasma,
    TransportScore,
    TransportScores,
    TransportStudy,
    mean_states,
    said_of,
)
from metalforge.conductor.scores import CouplingInterval, skill_interval
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.plasma.replicas import FEWEST_SEGMENTS
from metalforge.plasma.transport import transport
from metalforge.reservoir.weights import EsnWeights

from .baselines import (
    Rule,
    StateCurve,
    formula,
    label_of_run,
    left_out_curve,
    state_baselines,
    two_numbers,
    window_numbers,
)
from .corpus import PlasmaCorpus, PlasmaRecord
from .training import (
    ROUTES,
    Fitted,
    Route,
    inputs_of,
    labels_of,
    ridge_by_point,
    said_on,
    train_transport,
)


class JudgedScore(TransportScore, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head in one task on one route: root mean squares of logarithms, and the skill with its 95 % interval."""

    rms: float
    baseline: float
    baseline_name: str
    skill: CouplingInterval
    points: int
    runs: int


class BaselineScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of a baseline on test runs: the root mean square of logarithms."""

    task: str
    head: str
    baseline: str
    rms: float


class StopScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule for one target over test runs that reached it: lengths, errors and how often they cover."""

    rule: str
    target: float
    runs: int
    reached: int
    """Within the length of the run; the others are counted with all of it."""
    time: float
    """The mean time until it stopped, in 1 / omega_p."""
    atom_steps: float
    """On the mean."""
    saved: float
    """Atom-steps saved, as a share of what the jackknife's rule takes."""
    coverage_68: float
    coverage_95: float
    rms: float
    """Of what was left against the other runs."""


class JudgedStudy(TransportStudy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was measured of the heads, but for when to stop."""

    scores: tuple[JudgedScore, ...]
    baselines: tuple[BaselineScore, ...]
    label_noise: tuple[float, float]
    """Root mean square of the errors of test labels, as their runs say them: nobody can be better."""
    train_runs: int
    test_runs: int


class TransportEvaluation(TransportScores, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores of the two heads on held-out runs, and the time that they save."""

    study: JudgedStudy
    stops: tuple[StopScore, ...]
    test_seeds: tuple[int, ...]
    corpus_sha256: str


MOST_SEEN = 2.0
"""The largest kappa that `T3` is fitted to, where there are runs beyond it."""


LEAST = "two-numbers"
"""Not a route of a head: what a quadratic in the window's D* and Gamma says."""


def _off2(rule: Rule, runs: Sequence[PlasmaRecord], head: int) -> Doubles:
    """Return squared errors of a rule, one for each run."""
    return np.array([(rule(run) - label_of_run(run).value[head]) ** 2 for run in runs])


def _rms(loss: Doubles) -> float:
    return float(np.sqrt(loss.mean()))


def _strongest(rules: Mapping[str, Rule], runs: Sequence[PlasmaRecord], head: int) -> tuple[str, Doubles]:
    contests = [(name, _off2(rule, runs, head)) for name, rule in rules.items()]
    return min(contests, key=lambda contest: _rms(contest[1]))


def _score(
    task: str, head: int, route: str, ours: Doubles, rival: tuple[str, Doubles], runs: Sequence[PlasmaRecord]
) -> JudgedScore:
    points = sorted({run.entry.place for run in runs})
    at = np.array([points.index(run.entry.place) for run in runs])
    name, theirs = rival
    sums = [np.bincount(at, loss).tolist() for loss in (ours, theirs, np.ones(len(runs)))]
    skill = skill_interval(*sums)
    return JudgedScore(
        task=task,
        head=HEADS[head],
        route=route,
        rms=_rms(ours),
        baseline=_rms(theirs),
        baseline_name=name,
        skill=skill,
        points=len(points),
        runs=len(runs),
        trusted=task == "T1" and route != LEAST and skill.low > 0,
    )


def parts_of(corpus: PlasmaCorpus) -> tuple[tuple[PlasmaRecord, ...], tuple[PlasmaRecord, ...]]:
    """Return the training and the test runs; raises where heads cannot be judged on them."""
    train, test = corpus.part("train"), corpus.part("test")
    if not train or not test:
        raise SpecError("heads are judged on runs to train and others to test\nhint: a corpus of `--part all`")
    if shared := {run.entry.place for run in train} & {run.entry.place for run in test}:
        raise SpecError(f"training and test runs must not share state points. Got {sorted(shared)[0]}")
    return train, test


def judge_transport(
    corpus: PlasmaCorpus, network: Fitted, *, seed: int = 1, routes: Sequence[Route] = ROUTES
) -> JudgedStudy:
    """Return what heads are worth on the test runs of a corpus."""
    train, test = parts_of(corpus)
    scores, baselines = [], []
    truth, inputs = labels_of(test), [inputs_of(run) for run in test]
    hidden = [state_baselines(train, head, known=False) for head in range(len(HEADS))]
    rivals = [_strongest(rules, test, head) for head, rules in enumerate(hidden)]
    for route in routes:
        off = (said_on(route, network[0], train, inputs) - truth) ** 2
        scores += [_score("T1", head, route, off[:, head], rivals[head], test) for head in range(len(HEADS))]
    for head in range(len(HEADS)):
        least = _off2(two_numbers(train, head), test, head)
        scores.append(_score("T1", head, LEAST, least, rivals[head], test))
    scores += _controls(network[0], test, inputs, hidden)
    for head in range(len(HEADS)):
        known = state_baselines(train, head, known=True)
        scores.append(_known(network[0], train, test, inputs, head, known))
        for task, rules in (("T1", hidden[head]), ("T2", known)):
            baselines += [
                BaselineScore(task=task, head=HEADS[head], baseline=name, rms=_rms(_off2(rule, test, head)))
                for name, rule in rules.items()
            ]
    scores += _unseen(corpus, seed)
    errors = np.array([label_of_run(run).error for run in test])
    tested = [run.entry for run in test]
    return JudgedStudy(
        scores=tuple(scores),
        baselines=tuple(baselines),
        label_noise=tuple(np.sqrt(np.nanmean(errors**2, axis=0)).tolist()),
        left_out=(network[1][0].noise, network[1][1].noise),
        tested_on=TestedPlasma(
            kappa=(min(e.kappa for e in tested), max(e.kappa for e in tested)),
            ratio=(float(f"{min(e.ratio for e in tested):.3g}"), float(f"{max(e.ratio for e in tested):.3g}")),
            particles=tuple(sorted({e.particles for e in tested})),
            window=max(e.window for e in tested),
        ),
        train_runs=len(train),
        test_runs=len(test),
    )


def _controls(
    weights: EsnWeights,
    test: Sequence[PlasmaRecord],
    inputs: Sequence[Doubles],
    rules: Sequence[Mapping[str, Rule]],
) -> list[JudgedScore]:
    """Return what heads are worth on frames in another order, and on the window of a run of another state point.

    The window of another run must lose the skill against the run's own label (`own`) and keep it against the label of
    the run that it is of (`its`), which it does where nothing but the window is seen.
    """
    kept = [run for run in test if run.shuffled is not None]
    mixed = said_of(weights, [inputs_of(run, shuffled=True) for run in kept])
    truth, said = labels_of(test), said_of(weights, inputs)
    points = sorted({run.entry.place for run in test})
    # The other run is of the state point half a list further on.
    ahead = {place: points[(i + len(points) // 2) % len(points)] for i, place in enumerate(points)}
    other = [next(k for k, one in enumerate(test) if one.entry.place == ahead[run.entry.place]) for run in test]
    found = []
    for head in range(len(HEADS)):
        shuffled = (mixed[:, head] - labels_of(kept)[:, head]) ** 2
        found.append(_score("T1 shuffled", head, "f32-software", shuffled, _strongest(rules[head], kept, head), kept))
        name, _ = rival = _strongest(rules[head], test, head)
        own = (said[other, head] - truth[:, head]) ** 2
        found.append(_score("T1 foreign, own label", head, "f32-software", own, rival, test))
        its = (said[other, head] - truth[other, head]) ** 2
        theirs = _off2(rules[head][name], [test[k] for k in other], head)
        found.append(_score("T1 foreign, its label", head, "f32-software", its, (name, theirs), test))
    return found


def _known(
    weights: EsnWeights,
    train: Sequence[PlasmaRecord],
    test: Sequence[PlasmaRecord],
    inputs: Sequence[Doubles],
    head: int,
    rules: Mapping[str, Rule],
) -> JudgedScore:
    """Return `T2`: the head is what the state curve leaves, fitted to state points that the curve had not seen."""
    _, off = left_out_curve(train, head)
    x = mean_states(weights, [inputs_of(run) for run in train])
    readout, _ = ridge_by_point(x, -off, [run.entry.place for run in train])
    curve = StateCurve.through(train, head)
    base = np.array([curve(window_numbers(run).gamma, run.entry.kappa) for run in test])
    answers = base + readout(mean_states(weights, inputs))[:, 0]
    ours = (answers - labels_of(test)[:, head]) ** 2
    return _score("T2", head, "f32-software", ours, _strongest(rules, test, head), test)


def _unseen(corpus: PlasmaCorpus, seed: int) -> list[JudgedScore]:
    """Return `T3`: training runs of small kappa teach, all runs of the largest kappa are asked."""
    largest = max(run.entry.kappa for run in corpus.records)
    below = [run for run in corpus.part("train") if run.entry.kappa < largest]
    taught = [run for run in below if run.entry.kappa <= MOST_SEEN] or below
    asked = [run for run in corpus.records if run.entry.kappa == largest]
    if len({run.entry.place for run in taught}) < 2:
        return []
    several = len({run.entry.kappa for run in taught}) > 1
    weights, _ = train_transport(taught, seed=seed)
    said = said_of(weights, [inputs_of(run) for run in asked])
    found = []
    for head in range(len(HEADS)):
        # A curve over kappa cannot be fitted to one of them alone: it stands where there are two.
        rules = dict(state_baselines(taught, head, known=several))
        rules["b1 formula"] = partial(formula, head=head)
        ours = (said[:, head] - labels_of(asked)[:, head]) ** 2
        found.append(_score("T3", head, "f32-software", ours, _strongest(rules, asked, head), asked))
    return found


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


def evaluate_transport(
    corpus: PlasmaCorpus, heads: Fitted, *, seed: int = 1, routes: Sequence[Route] = ROUTES
) -> TransportEvaluation:
    """Return what heads are worth on the test runs of a corpus, and what they save."""
    train, test = parts_of(corpus)
    said = said_of(heads[0], [inputs_of(run) for run in test])[:, VISCOSITY]
    return TransportEvaluation(
        study=judge_transport(corpus, heads, seed=seed, routes=routes),
        stops=stop_transport(train, test, said, heads[1][VISCOSITY].noise),
        test_seeds=tuple(sorted({run.entry.seed for run in test})),
        corpus_sha256=corpus.sha256,
    )
