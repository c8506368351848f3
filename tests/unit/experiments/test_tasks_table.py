"""The standard tasks: data, baselines, reservoirpy's states, and a table whose rows hold together."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from experiments.protocol import Settings, quiet
from experiments.standard_tasks import (
    RECIPES,
    STANDARD_TASKS,
    UNITS,
    WASHOUT,
    best_readout,
    nrmse_interval,
    ring,
    wanted_of,
)
from experiments.tasks_table import CHIPS, GOALS, REFERENCE, own_features, rows_of, run, same_weights_states
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import features_of
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.weights import spectral_radius
from reference.statistics import ar1


@pytest.fixture(scope="module")
def tasks():
    return {name: make(7, True) for name, make in STANDARD_TASKS.items()}


@pytest.fixture(scope="module")
def rows():
    return rows_of(Settings(quick=True), quiet)


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
    split, washout = len(task.train.inputs[0]), WASHOUT
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
        wanted = wanted_of(task.train)
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
    made = RECIPES["vowel-like (synthetic)"].network
    first, again = own_features(made, 1, one, one)
    assert first.shape == (3, UNITS)
    assert np.array_equal(first, again)


def test_every_approach_is_on_every_task(rows):
    wanted = {(a, p) for _, a, p, _ in CHIPS} | {("software", "f32"), ("reservoirpy", "f64")}
    for task in STANDARD_TASKS:
        own = [row for row in rows if row.task == task]
        assert wanted <= {(r.approach, r.precision) for r in own}
        assert sum(r.is_baseline for r in own) == 2
        (reference,) = (r for r in own if (r.approach, r.precision, r.readout) == REFERENCE)
        assert reference.gap == 0
        for row in own:
            assert row.figure.low <= row.figure.high
            if row.metric in ("nrmse", "accuracy"):
                sign = 1 if row.metric == "nrmse" else -1
                assert row.gap == pytest.approx(sign * (row.figure.value - reference.figure.value))


def test_more_bits_are_nearer_to_float(rows):
    for task in ("narma10", "lorenz, 10 ahead"):
        own = [r for r in rows if (r.task, r.approach, r.readout) == (task, "host-tanh", "refit")]
        gap = {r.precision: abs(r.gap) for r in own}
        assert gap["W12A12"] <= min(gap["W4A8"], gap["W8A8"]) + 0.02


def test_states_are_checked_and_words_name_every_task(rows, monkeypatch):
    monkeypatch.setattr("experiments.tasks_table.rows_of", lambda settings, progress: rows)
    result = run(Settings(quick=True), quiet)
    states = [passed for asked, _, passed in result.checks if "states" in asked]
    assert states == [True] * len(STANDARD_TASKS)
    assert [words.split(": best")[0] for words in result.words[: len(STANDARD_TASKS)]] == list(STANDARD_TASKS)
    assert len({len(line) for line in result.lines}) == 1


def test_the_interval_holds_for_correlated_errors_and_one_of_single_times_does_not():
    rng = np.random.default_rng(6)
    held = {"blocks": 0, "single": 0}
    for _ in range(80):
        truth, error = ar1(0.8, 1500, rng)[:, None], 0.3 * ar1(0.9, 1500, rng)[:, None]
        for name, block in (("blocks", None), ("single", 1)):
            found = nrmse_interval(truth, truth + error, resamples=150, block=block)
            held[name] += found.low <= 0.3 <= found.high
    assert held["blocks"] >= 66  # 0.95 less what a percentile interval of few independent times lacks
    assert held["single"] <= 52


def test_the_interval_is_repeatable_and_holds_the_value():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 1)) + 3
    predicted = truth + 0.2 * rng.normal(size=truth.shape)
    found = nrmse_interval(truth, predicted)
    assert found.value == nrmse(truth, predicted)
    assert found.low < found.value < found.high
    assert found == nrmse_interval(truth, predicted)
    # For independent errors the spread of an RMS is 1 / sqrt(2 n) of it, and so is that of the norm.
    assert (found.high - found.low) / found.value == pytest.approx(2 * 1.96 * np.sqrt(2 / 800), rel=0.25)


def test_a_truth_that_hardly_ever_changes_has_no_interval():
    truth = np.zeros((200, 1))
    truth[0] = 1
    with pytest.raises(SpecError, match="too rarely"):
        nrmse_interval(truth, truth + 0.1, block=1)
