"""Metrics against SciPy, scikit-learn, reservoirpy and published intervals; intervals by how often they hold."""

import numpy as np
import pytest
from reservoirpy import observables as theirs
from scipy.stats import binomtest
from sklearn import metrics as sk

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.reservoir.metrics import (
    nrmse,
    politis_white,
    rmse,
    wilson,
)
from metalforge.statistics.resample import block_indices
from reference.statistics import ar1


@pytest.fixture
def series():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 1)) + 3
    return truth, truth + 0.2 * rng.normal(size=truth.shape)


def test_errors_are_those_of_reservoirpy_and_scikit_learn(series):
    truth, predicted = series
    assert rmse(truth, predicted) == pytest.approx(theirs.rmse(truth, predicted), rel=1e-12)
    for ours, name in (("minmax", "minmax"), ("var", "var"), ("mean", "mean"), ("iqr", "q1q3")):
        assert nrmse(truth, predicted, ours) == pytest.approx(theirs.nrmse(truth, predicted, norm=name), rel=1e-12)
    assert nrmse(-truth, -predicted, "mean") == pytest.approx(nrmse(truth, predicted, "mean"))


def test_nrmse_by_std_is_the_default_and_one_for_the_mean(series):
    truth, predicted = series
    assert nrmse(truth, np.full_like(truth, truth.mean())) == pytest.approx(1)
    assert nrmse(truth, predicted) == pytest.approx(np.sqrt(1 - sk.r2_score(truth, predicted)))
    assert nrmse(1000 * truth, 1000 * predicted) == pytest.approx(nrmse(truth, predicted))
    assert nrmse(1000 * truth, 1000 * predicted, "var") == pytest.approx(nrmse(truth, predicted, "var") / 1000)
    assert nrmse(truth, predicted) == nrmse(truth[:, 0], predicted[:, 0])


def test_every_output_has_a_norm_of_its_own():
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(500, 2)) * [1, 1e-3] + [0, 50]
    lost = np.column_stack([truth[:, 0], np.full(500, truth[:, 1].mean())])
    assert nrmse(truth, lost) == pytest.approx(np.sqrt(0.5))
    assert theirs.nrmse(truth, lost, norm_value=truth.std()) < 1e-4  # pooled, the lost output is invisible


@pytest.mark.parametrize("metric", [rmse, nrmse])
@pytest.mark.parametrize(
    ("truth", "predicted", "says"),
    [
        ([], [], "not empty"),
        (np.zeros((3, 0)), np.zeros((3, 0)), "not empty"),
        ([1.0, np.nan], [1.0, 2.0], r"`y_true` must be finite. Got nan at \(1,\)"),
        ([1.0, 2.0], [1.0, np.inf], "`y_pred` must be finite"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], "one shape"),
        (np.zeros(3), np.zeros((3, 1)), "one shape"),
        (np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), r"\(T, outputs\)"),
        (["a"], ["b"], "real numbers"),
        ([1j, 2j], [1j, 2j], "real numbers"),
        ([True, False], [True, True], "real numbers"),
    ],
)
def test_bad_series_are_refused(metric, truth, predicted, says):
    with pytest.raises(SpecError, match=says):
        metric(truth, predicted)


@pytest.mark.parametrize("norm", ["std", "minmax", "var", "iqr"])
def test_a_constant_truth_has_no_norm(norm):
    for value in (0.0, 0.1, 1e10):
        truth = np.column_stack([np.arange(30.0), np.full(30, value)])
        with pytest.raises(SpecError, match=rf"{norm} .*0 \(output 1\)"):
            nrmse(truth, truth + 1, norm)
        hardly = value + 1e-9 * max(value, 1) * np.arange(30.0)
        assert nrmse(hardly, hardly + 1, norm) > 0
    with pytest.raises(SpecError, match="mean of"):
        nrmse([-1.0, 1.0], [0.0, 0.0], "mean")
    assert rmse([5.0, 5.0], [4.0, 6.0]) == 1


def test_unknown_norms_are_listed():
    with pytest.raises(UnknownNameError, match="known: iqr, mean, minmax, std, var"):
        nrmse([1.0, 2.0], [1.0, 2.0], "sd")


# Shares.


@pytest.mark.parametrize(("right", "n"), [(0, 10), (10, 10), (1, 1), (7, 10), (919, 1000), (3999, 4000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_shares_have_wilsons_interval(right, n, confidence):
    found = wilson(right, n, confidence=confidence)
    reference = binomtest(right, n).proportion_ci(confidence, method="wilson")
    assert found.value == right / n
    assert found.low == pytest.approx(reference.low, abs=1e-12)
    assert found.high == pytest.approx(reference.high, abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(("right", "n", "confidence"), [(0, 0, 0.95), (-1, 3, 0.95), (4, 3, 0.95), (1, 2, 1.0)])
def test_shares_that_are_none_are_refused(right, n, confidence):
    with pytest.raises(SpecError, match="Got"):
        wilson(right, n, confidence=confidence)


# The interval of an error.


def test_the_block_length_is_politis_and_whites():
    rng = np.random.default_rng(4)
    n = 4000
    for rho in (0.5, 0.8):
        theory = (1.5 * (2 * rho / (1 - rho**2)) ** 2) ** (1 / 3) * n ** (1 / 3)
        found = np.median([politis_white(ar1(rho, n, rng)) for _ in range(30)])
        assert found == pytest.approx(theory, rel=0.25)
    assert np.median([politis_white(rng.normal(size=n)) for _ in range(30)]) <= 3
    assert politis_white(np.ones(50)) == 1
    assert politis_white(np.arange(30.0)) <= 10


def test_blocks_are_runs_that_go_round_the_end():
    rng = np.random.default_rng(5)
    rows = block_indices(10, 4, rng)
    assert len(rows) == 10
    for start in (0, 4, 8):
        run = rows[start : start + 4]
        assert np.array_equal(run, (run[0] + np.arange(len(run))) % 10)
    counts = np.bincount(np.concatenate([block_indices(10, 4, rng) for _ in range(2000)]), minlength=10)
    assert counts == pytest.approx(np.full(10, 2000), rel=0.1)
