"""The standard tasks: data, baselines, reservoirpy's states, and a table whose rows hold together."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from experiments.problems import ring
from experiments.protocol import Settings, find_experiment, quiet, rows_of
from experiments.tasks_table import (
    CHIPS,
    GOALS,
    STANDARD_TASKS,
    UNITS,
    best_readout,
    own_features,
    run,
    same_weights_states,
)
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import features_of
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.weights import spectral_radius


@pytest.fixture(scope="module")
def tasks():
    return {name: make(7, True) for name, make in STANDARD_TASKS.items()}


@pytest.fixture(scope="module")
def result():
    return run(Settings(quick=True), quiet)


@pytest.mark.parametrize("name", STANDARD_TASKS)
def test_reservoirpy_has_the_same_states(tasks, name):
    task = tasks[name]
    u = task.test.inputs[0]
    for weights in (task.weights, replace(task.ring, activation="relu")):  # reservoirpy has no bounded ReLU
        wanted = same_weights_states(weights, u)
        assert np.abs(wanted).max() > 0.05
        assert np.abs(EsnEngine(weights).run(u) - wanted).max() <= 1e-6


@pytest.mark.parametrize("name", list(STANDARD_TASKS)[:3])
def test_the_linear_baseline_is_scikit_learns(tasks, name):
    task = tasks[name]
    (label,) = [b for b in task.baselines if b.startswith("linear")]
    lags = int(label.split()[2])
    u = np.concatenate([task.train.inputs[0], task.test.inputs[0]])
    y = np.concatenate([task.train.targets[0], task.test.targets[0]])
    split, washout = len(task.train.inputs[0]), task.train.washout
    rows = np.stack([u[t - lags + 1 : t + 1].ravel() for t in range(lags - 1, len(u))])

    def at(begin, end):
        return rows[begin - lags + 1 : end - lags + 1]

    errors = []
    for penalty in 10.0 ** np.arange(-9, 2):
        model = Ridge(alpha=penalty).fit(at(washout, split), y[washout:split])
        errors.append(nrmse(y[split + washout :], model.predict(at(split + washout, len(u))).reshape(-1, y.shape[1])))
    assert min(np.abs(np.array(errors) - task.baselines[label])) < 1e-3
    assert task.baselines["mean"] >= 0.99


def test_targets_are_the_named_horizon_ahead(tasks):
    for name, ahead in (("mackey-glass 17, 84 ahead", 84), ("lorenz, 10 ahead", 10)):
        train = tasks[name].train
        assert np.array_equal(train.targets[0, :-ahead], train.inputs[0, ahead:])


@pytest.mark.parametrize("name", [name for name in GOALS if name in STANDARD_TASKS])
def test_recorded_tasks_come_out_as_asked(name):
    """Software alone, with the networks of the table's first instances."""
    scores = []
    for seed in (1, 2):
        task = STANDARD_TASKS[name](seed, False)
        esn = HybridEsn.from_weights(task.weights)
        if task.train.classes:
            wanted = np.eye(task.train.classes)[task.train.targets]
        else:
            wanted = task.train.targets[0, task.train.washout :]
        scores.append(task.score(best_readout(features_of(esn, task.train), wanted)(features_of(esn, task.test))).value)
    assert list(GOALS) == ["santa fe laser, 1 ahead", "japanese vowels"]
    if name == "japanese vowels":
        assert np.mean(scores) >= 0.985  # 0.989 within the interval of 370 cases
        assert len(task.test.targets) == 370
    else:
        assert np.mean(scores) ** 2 <= 0.006


def test_a_ring_is_one_circle_of_its_radius():
    w = ring(2, signs=[1, 11], units=UNITS, radius=0.8, input_scaling=0.1, leak=0.5)
    assert spectral_radius(w.w_res) == pytest.approx(0.8)
    assert np.count_nonzero(w.w_res) == UNITS
    assert set(np.unique(w.w_in)) == {-0.1, 0.1}


def test_the_penalty_is_chosen_by_rows_left_out():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 60))
    noise = rng.normal(size=(200, 1))
    assert best_readout(x, noise).ridge == 10  # nothing to learn: as little as possible is fitted
    assert best_readout(x, x[:, :1]).ridge == pytest.approx(1e-9, rel=1e3)


def test_reservoirpys_own_network_starts_every_series_from_rest(tasks):
    task = tasks["vowel-like (synthetic)"]
    one = replace(task.test, inputs=task.test.inputs[:3], targets=task.test.targets[:3])
    first, again = own_features(task.made_with, 1, one, one)
    assert first.shape == (3, UNITS)
    assert np.array_equal(first, again)


def test_every_approach_is_on_every_task(result):
    wanted = {(a, p) for a, p, _ in CHIPS} | {("software", "f32"), ("reservoirpy", "f64")}
    for task in STANDARD_TASKS:
        rows = rows_of(result.rows, task=task)
        assert wanted <= {(r.approach, r.precision) for r in rows}
        assert sum(r.approach.startswith("baseline") for r in rows) == 2
        (reference,) = rows_of(rows, approach="software")
        assert reference.gap == 0
        for row in rows:
            assert row.low <= row.high
            if row.metric in ("nrmse", "accuracy"):
                sign = 1 if row.metric == "nrmse" else -1
                assert row.gap == pytest.approx(sign * (row.value - reference.value))


def test_more_bits_are_nearer_to_float(result):
    for task in ("narma10", "lorenz, 10 ahead"):
        gap = {r.precision: abs(r.gap) for r in rows_of(result.rows, task=task, approach="host-tanh", refit=True)}
        assert gap["W12A12"] <= min(gap["W4A8"], gap["W8A8"]) + 0.02


def test_states_are_checked_and_words_name_every_task(result):
    states = [passed for asked, _, passed in result.checks if "states" in asked]
    assert states == [True] * len(STANDARD_TASKS)
    assert [words.split(": best")[0] for words in result.words[: len(STANDARD_TASKS)]] == list(STANDARD_TASKS)
    assert len({len(line) for line in result.table}) == 1
    assert find_experiment("tasks").run is run
