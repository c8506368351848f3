"""Ridge readouts against scikit-learn, lstsq and their own stationarity; the choice of a penalty by brute force."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from metalforge.core.errors import SpecError
from metalforge.reservoir.readout import NormalEquations, ridge, select_ridge
from metalforge.reservoir.series import SeriesError

RIDGES = [1e-6, 1e-3, 0.1, 10.0]


def _data(rows=200, width=12, outputs=3, seed=1, offset=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)) @ rng.normal(size=(width, width)) + offset
    y = x @ rng.normal(size=(width, outputs)) + 2.0 + rng.normal(size=(rows, outputs))
    return x, y


@pytest.mark.parametrize("fit_bias", [True, False])
def test_agrees_with_scikit_learn_for_every_penalty(fit_bias):
    x, y = _data(offset=1.5)
    for found, penalty in zip(NormalEquations.of([(x, y)]).solve(RIDGES, fit_bias=fit_bias), RIDGES, strict=True):
        peer = Ridge(alpha=penalty, fit_intercept=fit_bias, solver="svd").fit(x, y)
        assert found.w_out == pytest.approx(peer.coef_, rel=1e-9, abs=1e-11)
        assert found.out_bias == pytest.approx(np.broadcast_to(peer.intercept_, 3), rel=1e-9, abs=1e-10)
        assert found(x) == pytest.approx(peer.predict(x), rel=1e-9, abs=1e-9)
        assert found.ridge == penalty


def test_the_penalised_loss_is_stationary():
    x, y = _data()
    found = ridge(x, y, 0.7)
    error = found(x) - y
    assert error.T @ x + 0.7 * found.w_out == pytest.approx(0, rel=1e-7, abs=1e-9)
    assert error.sum(axis=0) == pytest.approx(0, rel=1e-7, abs=1e-9)


def test_several_penalties_at_once_are_those_one_by_one():
    x, y = _data()
    for together, penalty in zip(NormalEquations.of([(x, y)]).solve(RIDGES), RIDGES, strict=True):
        assert np.array_equal(together.w_out, ridge(x, y, penalty).w_out)


def test_no_penalty_on_a_singular_matrix_gives_the_least_norm():
    x, y = _data()
    x = np.concatenate([x, x[:, :4]], axis=1)
    found = ridge(x, y, 0.0, fit_bias=False)
    wanted = np.linalg.lstsq(x, y, rcond=None)[0].T
    assert found.w_out == pytest.approx(wanted, rel=1e-8, abs=1e-9)


def test_small_penalties_keep_their_digits():
    """States of a smooth signal: singular values fall over seven decades, so that squares fall over fourteen."""
    rng = np.random.default_rng(6)
    left, right = np.linalg.qr(rng.normal(size=(300, 40)))[0], np.linalg.qr(rng.normal(size=(40, 40)))[0]
    s = np.geomspace(1, 1e-7, 40)
    x, y = (left * s) @ right, rng.normal(size=(300, 1))
    for penalty in (1e-8, 1e-10, 1e-12):
        wanted = right.T @ ((s / (s * s + penalty))[:, None] * (left.T @ y))
        found = ridge(x, y, penalty, fit_bias=False)
        # The error of the sums, 1e-16, is 1e-16 / penalty of the smallest eigenvalues.
        assert found.w_out == pytest.approx(wanted.T, rel=0, abs=1e-14 / penalty * np.abs(wanted).max())


def test_a_penalty_below_rounding_falls_back_to_the_least_norm():
    x, y = _data()
    x = np.concatenate([x, x], axis=1)
    found, none = NormalEquations.of([(x, y)]).solve([1e-300, 0.0])
    assert found(x) == pytest.approx(none(x), rel=1e-6, abs=1e-7)
    assert np.abs(found.w_out).max() < 10


def test_a_large_mean_costs_no_digits():
    x, y = _data()
    near, far = ridge(x, y, 1e-3), ridge(x + 1e6, y, 1e-3)
    assert far.w_out == pytest.approx(near.w_out, rel=1e-7, abs=1e-8)


def test_float32_states_are_summed_in_float64():
    x, y = _data(rows=3000)
    x32 = x.astype(np.float32)
    assert np.array_equal(ridge(x32, y, 1e-6).w_out, ridge(x32.astype(np.float64), y, 1e-6).w_out)


def test_constant_features_leave_the_mean():
    y = np.arange(10.0)[:, None]
    for penalty in (0.0, 1.0):
        found = ridge(np.ones((10, 4)), y, penalty)
        assert np.array_equal(found.w_out, np.zeros((1, 4)))
        assert found.out_bias == pytest.approx([4.5], rel=1e-7)


@pytest.mark.parametrize("cuts", [[1], [50, 120], [3, 4, 199], list(range(1, 200))])
def test_parts_added_or_merged_give_the_whole(cuts):
    x, y = _data(offset=10.0)
    whole = ridge(x, y, 0.01)
    parts = list(zip(np.split(x, cuts), np.split(y, cuts), strict=True))
    added, merged = NormalEquations(12, 3), NormalEquations(12, 3)
    for part in parts:
        added.add(*part)
        merged = NormalEquations(12, 3).add(*part).merge(merged)
    for sums in (added, merged, NormalEquations.of(parts)):
        assert sums.rows == 200
        assert sums.target_variance == pytest.approx(y.var(axis=0), rel=1e-12)
        for fit_bias in (True, False):
            found = sums.solve([0.01], fit_bias=fit_bias)[0]
            wanted = whole if fit_bias else ridge(x, y, 0.01, fit_bias=False)
            assert found.w_out == pytest.approx(wanted.w_out, rel=1e-9, abs=1e-11)
            assert found.out_bias == pytest.approx(wanted.out_bias, rel=1e-9, abs=1e-9)


def test_rows_beyond_one_chunk_are_all_counted():
    x, y = _data(rows=20_000, width=3, outputs=1)
    peer = Ridge(alpha=1.0).fit(x, y)
    assert ridge(x, y, 1.0).w_out == pytest.approx(np.atleast_2d(peer.coef_), rel=1e-9)


def _series(n, seed=3):
    """Few noisy rows of many features: the best penalty is neither the smallest nor the largest."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(30, 2))
    pairs = []
    for rows in rng.integers(8, 15, size=n):
        x = rng.normal(size=(rows, 30))
        pairs.append((x, x @ true + 3 * rng.normal(size=(rows, 2))))
    return pairs


@pytest.mark.parametrize("folds", [None, 3])
def test_leaving_series_out_finds_what_brute_force_finds(folds):
    series, penalties = _series(7), [1e-4, 1e-2, 1.0, 10.0, 100.0, 1e5]
    chosen = select_ridge(series, penalties, folds=folds)
    variance = np.concatenate([y for _, y in series]).var(axis=0)
    rows = sum(len(y) for _, y in series)
    errors = []
    for penalty in penalties:
        total = np.zeros(2)
        for group in range(folds or 7):
            kept = [pair for i, pair in enumerate(series) if i % (folds or 7) != group]
            peer = Ridge(alpha=penalty, solver="svd").fit(*(np.concatenate(part) for part in zip(*kept, strict=True)))
            for i, (x, y) in enumerate(series):
                total += ((peer.predict(x) - y) ** 2).sum(axis=0) * (i % (folds or 7) == group)
        errors.append((total / rows / variance).mean())
    assert chosen.errors == pytest.approx(errors, rel=1e-7)
    best = int(np.argmin(errors))
    assert 0 < best < len(penalties) - 1
    assert chosen.readout.ridge == penalties[best]
    assert chosen.ridges == tuple(penalties)
    everything = [np.concatenate(part) for part in zip(*series, strict=True)]
    assert chosen.readout.w_out == pytest.approx(ridge(*everything, penalties[best]).w_out, rel=1e-9, abs=1e-12)


def test_validation_series_choose_too_and_are_not_fitted():
    series, held_out = _series(4), _series(3, seed=9)
    chosen = select_ridge(series, [1e-4, 30.0], validation=held_out)
    x, y = (np.concatenate(part) for part in zip(*series, strict=True))
    for error, penalty in zip(chosen.errors, [1e-4, 30.0], strict=True):
        found = ridge(x, y, penalty)
        squares = np.concatenate([(found(u) - v) ** 2 for u, v in held_out])
        assert error == pytest.approx((squares.mean(axis=0) / y.var(axis=0)).mean(), rel=1e-9)
    assert chosen.readout.w_out == pytest.approx(ridge(x, y, chosen.readout.ridge).w_out, rel=1e-9, abs=1e-12)


def test_one_series_cannot_choose():
    with pytest.raises(SeriesError, match="two series"):
        select_ridge(_series(1), [1.0, 2.0])


@pytest.mark.parametrize("penalty", [[-1.0], [float("nan")], [float("inf")], []])
def test_a_penalty_must_be_a_finite_number_from_zero(penalty):
    x, y = _data()
    with pytest.raises(SpecError, match=r"`ridge`.*finite"):
        NormalEquations.of([(x, y)]).solve(penalty)


def test_bad_rows_are_named():
    x, y = _data()
    with pytest.raises(SeriesError, match=r"200 rows.* 199"):
        ridge(x, y[:-1], 1.0)
    x[5, 2] = np.nan
    with pytest.raises(SeriesError, match=r"`features`.*nan.*step 5, column 2"):
        ridge(x, y, 1.0)
    with pytest.raises(SeriesError, match="none"):
        NormalEquations(3, 1).solve([1.0])
    with pytest.raises(SeriesError, match="one series"):
        NormalEquations.of([])
    with pytest.raises(SpecError, match="merged"):
        NormalEquations(3, 1).merge(NormalEquations(3, 2))
