"""Tasks from seeds, against SciPy's integrators, reservoirpy, and their own recurrences."""

from itertools import pairwise

import numpy as np
import pytest
from reservoirpy import datasets as theirs
from scipy.integrate import solve_ivp
from sklearn.linear_model import RidgeClassifier

from metalforge.core.errors import SpecError
from metalforge.reservoir.datasets import (
    lorenz,
    mackey_glass,
    narma,
    sequence_classification,
    to_forecasting,
)
from metalforge.reservoir.generate import make_esn


def mackey_glass_by_steps(times, tau=17.0, start=1.2):
    """The delay equation solved one delay at a time, where the delayed value is a known function."""
    known, x, found = [lambda t: np.array([start])], start, []
    for k in range(int(max(times) // tau) + 1):
        past = known[-1]

        def slope(t, x, past=past):
            delayed = past(t - tau)
            return 0.2 * delayed / (1 + delayed**10) - 0.1 * x

        solution = solve_ivp(
            slope, (k * tau, (k + 1) * tau), [x], method="DOP853", rtol=1e-12, atol=1e-12, dense_output=True
        )
        known.append(solution.sol)
        x = solution.y[0, -1]
        found += [solution.sol(t)[0] for t in times if k * tau <= t < (k + 1) * tau]
    return np.array(found)


def test_mackey_glass_solves_its_equation_to_fourth_order():
    exact = mackey_glass_by_steps(np.arange(120.0))
    errors = [np.abs(mackey_glass(120, discard=0, substeps=s)[:, 0] - exact).max() for s in (2, 4, 8)]
    assert errors[2] < 1e-8
    for coarse, fine in pairwise(errors):
        assert 10 < coarse / fine < 24  # 2^4 = 16


def test_mackey_glass_samples_are_a_matter_of_interval_not_of_steps():
    fine = mackey_glass(100, interval=0.5, substeps=5, discard=40)
    coarse = mackey_glass(50, interval=1.0, substeps=10, discard=20)
    assert np.allclose(fine[::2], coarse, rtol=0, atol=1e-9)


def test_mackey_glass_lives_on_the_attractor_that_reservoirpy_shows():
    ours, other = mackey_glass(5000), theirs.mackey_glass(6000, seed=1)[1000:]
    assert ours.shape == (5000, 1)
    assert ours.dtype == np.float64
    # Theirs holds the delayed value over a step of 1: another trajectory, and nearly the same moments.
    assert ours.mean() == pytest.approx(other.mean(), abs=0.02)
    assert ours.std() == pytest.approx(other.std(), abs=0.02)
    assert ours.min() > 0.35
    assert ours.max() < 1.4


def lorenz_slope(t, s):
    return 10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]


def test_lorenz_solves_its_equations_to_fourth_order():
    n = 60
    times = 0.03 * np.arange(n)
    exact = solve_ivp(
        lorenz_slope, (0, times[-1]), (1, 1, 1), t_eval=times, method="DOP853", rtol=1e-13, atol=1e-13
    ).y.T
    errors = [np.abs(lorenz(n, discard=0, substeps=s) - exact).max() for s in (4, 8, 16)]
    assert errors[2] < 1e-4 * np.abs(exact).max()
    for coarse, fine in pairwise(errors):
        assert 10 < coarse / fine < 24
    assert np.array_equal(lorenz(n, discard=0)[0], (1, 1, 1))


def test_lorenz_follows_reservoirpy_until_chaos_parts_them():
    other = theirs.lorenz(100, h=0.03 * 99 / 100, rtol=1e-10, atol=1e-10)  # theirs puts n samples on n h, both ends in
    assert np.allclose(lorenz(100, discard=0), other, rtol=0, atol=1e-4)


@pytest.mark.parametrize("flow", [mackey_glass, lorenz])
def test_seeds_move_the_start_and_discarding_forgets_it(flow):
    def cut(**options):
        return flow(300, **options)

    assert np.array_equal(cut(seed=1), cut(seed=1))
    assert not np.allclose(cut(seed=1), cut(seed=2))
    assert not np.allclose(cut(), cut(seed=1))
    assert np.array_equal(flow(320, discard=0)[20:], cut(discard=20))
    assert flow(1, discard=0).shape[0] == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mackey_glass(0), "n >= 1"),
        (lambda: mackey_glass(5, substeps=0), "substeps >= 1"),
        (lambda: lorenz(5, discard=-1), "discard >= 0"),
        (lambda: lorenz(5, interval=0.0), "interval"),
        (lambda: lorenz(5, interval=float("nan")), "interval"),
        (lambda: mackey_glass(5, tau=17.05), "whole number of steps of interval / substeps = 0.1"),
        (lambda: mackey_glass(5, tau=0.0), "whole number of steps"),
        (lambda: mackey_glass(5, start=0.0), "above 0"),
        (lambda: lorenz(5, start=(1.0, float("nan"), 1.0)), "three finite numbers"),
        (lambda: lorenz(5, start=(1.0, 1.0)), "three finite numbers"),
        (lambda: lorenz(50, interval=3.0, substeps=1), "left the range"),
        (lambda: narma(0, seed=1), "n >= 1"),
        (lambda: narma(5, order=0, seed=1), "order >= 1"),
        (lambda: narma(5, order=31, seed=1), "give `coefficients`"),
        (lambda: narma(500, seed=1, coefficients=(0.9, 0.9, 1.5, 0.9)), "diverges"),
        (lambda: to_forecasting(np.arange(5), 0), "horizon"),
        (lambda: to_forecasting(np.arange(5), 5), "horizon"),
        (lambda: sequence_classification(0, seed=1), "n >= 1"),
        (lambda: sequence_classification(5, seed=1, steps=11), "two steps per class"),
        (lambda: sequence_classification(5, seed=1, classes=1), "classes >= 2"),
        (lambda: sequence_classification(5, seed=1, noise=-1.0), "noise"),
    ],
)
def test_bad_arguments_are_named(call, says):
    with pytest.raises(SpecError, match=says):
        call()


@pytest.mark.parametrize(("order", "coefficients"), [(1, None), (10, None), (30, None), (5, (0.2, 0.1, 1.0, 0.05))])
def test_narma_follows_its_recurrence_row_by_row(order, coefficients):
    u, y = narma(500, seed=4, order=order, coefficients=coefficients)
    assert u.shape == y.shape == (500, 1)
    a, b, c, d = coefficients or ((0.3, 0.05, 1.5, 0.1) if order <= 10 else (0.2, 0.04, 1.5, 0.001))
    u, after = u[:, 0], y[:, 0]
    # after[t] is y_{t+1}; so y_t, y_{t-1}, ... are after[t-1], after[t-2], ...
    for t in range(order, 500):
        past = after[t - order : t]
        expected = a * past[-1] + b * past[-1] * past.sum() + c * u[t - order + 1] * u[t] + d
        assert after[t] == pytest.approx(expected, rel=1e-13)
    assert 0 <= u.min() < 0.02
    assert 0.48 < u.max() < 0.5


def test_narma_is_repeatable_and_passes_over_inputs_that_diverge():
    assert np.array_equal(narma(50, seed=1)[1], narma(50, seed=1)[1])
    assert not np.array_equal(narma(50, seed=1)[0], narma(50, seed=2)[0])
    # 3 % of series of this length diverge; none may come out.
    diverging = 0
    for seed in range(60):
        u, y = narma(10_000, seed=seed)
        assert np.abs(y).max() < 2
        first = np.random.default_rng(seed).spawn(1)[0].uniform(0, 0.5, 10_210)
        diverging += not np.array_equal(first[-10_000:], u[:, 0])
    assert 0 < diverging < 10


def test_forecasting_pairs_are_those_of_reservoirpy():
    series = lorenz(50, discard=0)
    for horizon in (1, 7, 49):
        x, y = to_forecasting(series, horizon)
        x_theirs, y_theirs = theirs.to_forecasting(series, forecast=horizon)
        assert np.array_equal(x, x_theirs)
        assert np.array_equal(y, y_theirs)
    x, y = to_forecasting(np.arange(10), 3)
    assert np.array_equal(y - x, np.full(7, 3))


# Labelled sequences.

TRAINED = 2000


@pytest.fixture(scope="module")
def task():
    return sequence_classification(4000, seed=0)


def right(features, labels):
    """Share of right labels of a ridge classifier on the part it has not seen."""
    model = RidgeClassifier(alpha=1e-2).fit(features[:TRAINED], labels[:TRAINED])
    return model.score(features[TRAINED:], labels[TRAINED:])


def last_states(inputs, **options):
    w = make_esn(128, inputs.shape[2], seed=1, spectral_radius=0.9, leak=0.3, input_scaling=0.3, **options)
    s = np.zeros((len(inputs), 128))
    for t in range(inputs.shape[1]):
        s = (1 - w.leak) * s + w.leak * np.tanh(inputs[:, t] @ w.w_in.T + s @ w.w_res.T)
    return s


def test_sequences_are_balanced_scaled_and_repeatable(task):
    assert task.inputs.shape == (4000, 30, 50)
    assert task.inputs.dtype == np.float64
    assert task.labels.dtype == np.int64
    assert np.array_equal(np.bincount(task.labels), [1000] * 4)
    assert np.mean(task.inputs**2) == pytest.approx(1 - 0.2 * 4 / 30, rel=0.01)
    again = sequence_classification(4000, seed=0)
    assert np.array_equal(task.inputs, again.inputs)
    assert np.array_equal(task.labels, again.labels)
    assert np.array_equal(np.bincount(sequence_classification(10, seed=0).labels), [3, 3, 2, 2])


def test_without_noise_motifs_follow_each_other_in_the_order_of_the_class():
    x, labels = sequence_classification(200, seed=3, noise=0.0, classes=3, steps=20, quiet=2, inputs=6)
    motifs = [x[labels == c][0, 0] for c in range(3)]
    lengths = []
    for sequence, label in zip(x, labels, strict=True):
        assert not np.any(sequence[18:])
        which = [next(c for c in range(3) if np.array_equal(step, motifs[c])) for step in sequence[:18]]
        changes = [which[0], *(b for a, b in pairwise(which) if a != b)]
        assert changes == [(label + j) % 3 for j in range(3)]
        lengths += [which.count((label + j) % 3) for j in range(3)]
    assert min(lengths) == 3
    assert max(lengths) > 8
    means = np.reshape(lengths, (-1, 3)).mean(axis=0)
    assert means == pytest.approx([6, 6, 6], abs=0.8)


def test_only_a_network_with_memory_can_tell_the_classes(task):
    x, labels = task
    for blind in (x.mean(axis=1), x[:, -1], x.max(axis=1), (x**2).mean(axis=1)):
        assert right(blind, labels) < 0.30
    assert 0.88 < right(last_states(x), labels) < 0.96
    # Negative control: the same steps in an order of chance.
    order = np.random.default_rng(0).random((4000, 30)).argsort(axis=1)
    mixed = np.take_along_axis(x, order[:, :, np.newaxis], axis=1)
    assert right(last_states(mixed), labels) < 0.30


def test_the_same_seed_is_the_same_task_for_any_size():
    few = sequence_classification(8, seed=5, noise=0.0)
    many = sequence_classification(80, seed=5, noise=0.0)
    for c in range(4):
        assert np.array_equal(few.inputs[few.labels == c][0, 0], many.inputs[many.labels == c][0, 0])
