r"""Scores of the two heads on state points they have not seen, against the strongest of their baselines.

    skill = 1 - loss / loss of the baseline,        loss = mean square of ln D* or ln eta* against the whole run

- `T1` Gamma and kappa are hidden: the window's own numbers and Stokes-Einstein (b3 to b6) stand against the heads.
- `T2` both are known: the heads say what the state curve (b2) leaves; every baseline stands against them.
- `T3` an unseen kappa: heads and baselines are fitted to kappa <= 2 (or all but the largest), asked at the largest.
- controls of `T1`: windows whose frames were put in another order, and windows of another run.

The baseline is the one with the least loss on the test runs themselves: choosing it there can only favour it. Intervals
are 95 % and draw state points, with all their runs. A head is trusted where the lower end of its skill in `T1` is above
zero on the route that it runs on. docs/protocols/plasma_heads.md has all of it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from metalforge.conductor.plasma.heads import HEADS, mean_states, said_of
from metalforge.conductor.plasma.scores import TestedPlasma, TransportScore
from metalforge.conductor.scores import skill_interval
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError

from .baselines import Rule, StateCurve, formula, left_out_curve, state_baselines, two_numbers
from .corpus import PlasmaCorpus, PlasmaRecord
from .scores import BaselineScore, JudgedStudy
from .training import ROUTES, Route, TransportHeads, inputs_of, labels_of, ridge_by_point, said_on, train_transport
from .windows import label_of_run, window_numbers

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
) -> TransportScore:
    points = sorted({run.entry.place for run in runs})
    at = np.array([points.index(run.entry.place) for run in runs])
    name, theirs = rival
    sums = [np.bincount(at, loss).tolist() for loss in (ours, theirs, np.ones(len(runs)))]
    skill = skill_interval(*sums)
    return TransportScore(
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
    corpus: PlasmaCorpus, network: TransportHeads, *, seed: int = 1, routes: Sequence[Route] = ROUTES
) -> JudgedStudy:
    """Return what heads are worth on the test runs of a corpus."""
    train, test = parts_of(corpus)
    scores, baselines = [], []
    truth, inputs = labels_of(test), [inputs_of(run) for run in test]
    hidden = [state_baselines(train, head, known=False) for head in range(len(HEADS))]
    rivals = [_strongest(rules, test, head) for head, rules in enumerate(hidden)]
    for route in routes:
        off = (said_on(route, network, train, inputs) - truth) ** 2
        scores += [_score("T1", head, route, off[:, head], rivals[head], test) for head in range(len(HEADS))]
    for head in range(len(HEADS)):
        least = _off2(two_numbers(train, head), test, head)
        scores.append(_score("T1", head, LEAST, least, rivals[head], test))
    scores += _controls(network, test, inputs, hidden)
    for head in range(len(HEADS)):
        known = state_baselines(train, head, known=True)
        scores.append(_known(network, train, test, inputs, head, known))
        for task, rules in (("T1", hidden[head]), ("T2", known)):
            baselines += [
                BaselineScore(task=task, head=HEADS[head], baseline=name, rms=_rms(_off2(rule, test, head)))
                for name, rule in rules.items()
            ]
    scores += _unseen(corpus, seed)
    errors = np.array([label_of_run(run).error for run in test])
    entries = [run.entry for run in test]
    return JudgedStudy(
        scores=tuple(scores),
        baselines=tuple(baselines),
        label_noise=tuple(np.sqrt(np.nanmean(errors**2, axis=0)).tolist()),
        left_out=(network.fits[0].noise, network.fits[1].noise),
        tested_on=TestedPlasma(
            kappa=(min(e.kappa for e in entries), max(e.kappa for e in entries)),
            ratio=(float(f"{min(e.ratio for e in entries):.3g}"), float(f"{max(e.ratio for e in entries):.3g}")),
            particles=tuple(sorted({e.particles for e in entries})),
            window=max(e.window for e in entries),
        ),
        train_runs=len(train),
        test_runs=len(test),
    )


def _controls(
    network: TransportHeads,
    test: Sequence[PlasmaRecord],
    inputs: Sequence[Doubles],
    rules: Sequence[Mapping[str, Rule]],
) -> list[TransportScore]:
    """Return what heads are worth on frames in another order, and on the window of a run of another state point.

    The window of another run must lose the skill against the run's own label (`own`) and keep it against the label of
    the run that it is of (`its`), which it does where nothing but the window is seen.
    """
    kept = [run for run in test if run.shuffled is not None]
    mixed = said_of(network.weights, [inputs_of(run, shuffled=True) for run in kept])
    truth, said = labels_of(test), said_of(network.weights, inputs)
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
    network: TransportHeads,
    train: Sequence[PlasmaRecord],
    test: Sequence[PlasmaRecord],
    inputs: Sequence[Doubles],
    head: int,
    rules: Mapping[str, Rule],
) -> TransportScore:
    """Return `T2`: the head is what the state curve leaves, fitted to state points that the curve had not seen."""
    _, off = left_out_curve(train, head)
    x = mean_states(network.weights, [inputs_of(run) for run in train])
    readout, _ = ridge_by_point(x, -off, [run.entry.place for run in train])
    curve = StateCurve.through(train, head)
    base = np.array([curve(window_numbers(run).gamma, run.entry.kappa) for run in test])
    answers = base + readout(mean_states(network.weights, inputs))[:, 0]
    ours = (answers - labels_of(test)[:, head]) ** 2
    return _score("T2", head, "f32-software", ours, _strongest(rules, test, head), test)


def _unseen(corpus: PlasmaCorpus, seed: int) -> list[TransportScore]:
    """Return `T3`: training runs of small kappa teach, all runs of the largest kappa are asked."""
    largest = max(run.entry.kappa for run in corpus.records)
    below = [run for run in corpus.part("train") if run.entry.kappa < largest]
    taught = [run for run in below if run.entry.kappa <= MOST_SEEN] or below
    asked = [run for run in corpus.records if run.entry.kappa == largest]
    if len({run.entry.place for run in taught}) < 2:
        return []
    several = len({run.entry.kappa for run in taught}) > 1
    heads = train_transport(taught, seed=seed)
    said = said_of(heads.weights, [inputs_of(run) for run in asked])
    found = []
    for head in range(len(HEADS)):
        # A curve over kappa cannot be fitted to one of them alone: it stands where there are two.
        rules = dict(state_baselines(taught, head, known=several))
        rules["b1 formula"] = partial(formula, head=head)
        ours = (said[:, head] - labels_of(asked)[:, head]) ** 2
        found.append(_score("T3", head, "f32-software", ours, _strongest(rules, asked, head), asked))
    return found
