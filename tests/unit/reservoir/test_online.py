"""LMS and RLS: RLS is the ridge solution after every row; LMS follows its formula; divergence is an error."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.reservoir.online import Lms, Rls, learn
from metalforge.reservoir.readout import ridge
from metalforge.reservoir.series import DivergenceError, SeriesError


def _data(rows=60, width=8, outputs=2, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)) + 0.7
    return x, x @ rng.normal(size=(width, outputs)) - 1.0 + 0.3 * rng.normal(size=(rows, outputs))


@pytest.mark.parametrize("fit_bias", [True, False])
@pytest.mark.parametrize("alpha", [1e-6, 0.5])
def test_rls_is_the_ridge_solution_of_all_rows_so_far(fit_bias, alpha):
    x, y = _data()
    rule = Rls(alpha=alpha, fit_bias=fit_bias)
    state = rule.init(8, 2)
    for row in range(len(x)):
        state, _ = rule.step(state, x[row], y[row])
        if row + 1 in (1, 2, 20, 60):  # fewer rows than features too
            wanted = ridge(x[: row + 1], y[: row + 1], alpha, fit_bias=fit_bias)
            # Equal in exact arithmetic; RLS starts from an inverse of 1/alpha, whose rounding stays in the sum.
            assert state.w_out == pytest.approx(wanted.w_out, rel=1e-5, abs=1e-8)
            assert state.out_bias == pytest.approx(wanted.out_bias, rel=1e-5, abs=1e-8)
    assert state.rows == 60


@pytest.mark.parametrize("fit_bias", [True, False])
def test_forgetting_weighs_rows_and_penalty_by_their_age(fit_bias):
    x, y = _data()
    alpha, forgetting = 0.2, 0.93
    state, _ = learn(Rls(alpha=alpha, forgetting=forgetting, fit_bias=fit_bias), x, y)
    age = forgetting ** np.arange(len(x) - 1, -1, -1)
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1) if fit_bias else x
    penalty = alpha * forgetting ** len(x) * np.eye(design.shape[1])
    if fit_bias:
        penalty[-1, -1] = 0
    wanted = np.linalg.solve(design.T @ (age[:, None] * design) + penalty, design.T @ (age[:, None] * y))
    found = state.w_out.T
    assert found == pytest.approx(wanted[:8], rel=1e-8)
    assert state.out_bias == pytest.approx(wanted[8] if fit_bias else np.zeros(2), rel=1e-8)


def test_forgetting_follows_a_change_that_plain_rls_averages():
    x, y = _data(rows=400)
    y[200:] = -y[200:]
    wanted = ridge(x[200:], y[200:], 1e-6).w_out
    forgets, _ = learn(Rls(alpha=1e-3, forgetting=0.95), x, y)
    keeps, _ = learn(Rls(alpha=1e-3), x, y)
    assert np.abs(forgets.w_out - wanted).max() < 0.2
    assert np.abs(keeps.w_out - wanted).max() > 0.5


@pytest.mark.parametrize("fit_bias", [True, False])
def test_lms_steps_down_the_slope_of_half_the_squared_error(fit_bias):
    x, y = _data()
    state, predictions = learn(Lms(rate=0.01, fit_bias=fit_bias), x, y)
    w, b = np.zeros((2, 8)), np.zeros(2)
    for row in range(len(x)):
        said = w @ x[row] + b
        assert predictions[row] == pytest.approx(said, rel=1e-12)
        w -= 0.01 * (said - y[row])[:, None] * x[row]
        b -= 0.01 * (said - y[row]) * fit_bias
    assert state.w_out == pytest.approx(w, rel=1e-12)
    assert state.out_bias == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize("fit_bias", [True, False])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_normalised_lms_with_rate_one_hits_the_row_it_just_saw(fit_bias, scale):
    x, y = _data()
    rule = Lms(rate=1.0, normalised=True, fit_bias=fit_bias)
    state = rule.init(8, 2)
    for row in range(5):
        before = state
        state, said = rule.step(before, scale * x[row], y[row])
        assert state.w_out @ (scale * x[row]) + state.out_bias == pytest.approx(y[row], rel=1e-9)
        assert said == pytest.approx(before.w_out @ (scale * x[row]) + before.out_bias, rel=1e-12)


def test_a_row_of_zeros_without_bias_teaches_nothing():
    rule = Lms(rate=1.0, normalised=True, fit_bias=False)
    state, _ = rule.step(rule.init(3, 1), np.zeros(3), np.ones(1))
    assert np.array_equal(state.w_out, np.zeros((1, 3)))


@pytest.mark.parametrize("rule", [Lms(rate=0.01), Rls(alpha=0.1, forgetting=0.99)])
def test_a_step_leaves_its_state_alone_and_learning_goes_on_where_it_ended(rule):
    x, y = _data()
    half, _ = learn(rule, x[:30], y[:30])
    copies = [np.array(part) for part in half]
    twice, _ = learn(rule, x[30:], y[30:], half)
    for part, copy in zip(half, copies, strict=True):
        assert np.array_equal(part, copy)
    once, _ = learn(rule, x, y)
    for one, two in zip(once, twice, strict=True):
        assert np.array_equal(one, two)


def test_lms_that_diverges_says_so_with_its_row():
    x, y = _data(rows=2000)
    with pytest.raises(DivergenceError, match=r"LMS diverged at row \d+(.|\n)*hint: .*rate"):
        learn(Lms(rate=5.0), x, y)


def test_rls_whose_inverse_winds_up_says_so():
    # The second feature never varies: what RLS does not know of it doubles with every row, until it overflows.
    x = np.zeros((3000, 2))
    x[:, 0] = np.random.default_rng(1).normal(size=3000)
    with pytest.raises(DivergenceError, match=r"squares diverged(.|\n)*hint: .*forgetting"):
        learn(Rls(alpha=1.0, forgetting=0.5), x, x[:, :1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lms(rate=0.0),
        lambda: Lms(rate=2.0, normalised=True),
        lambda: Rls(alpha=0.0),
        lambda: Rls(forgetting=1.1),
        lambda: Rls(forgetting=0.0),
    ],
)
def test_rules_refuse_parameters_without_meaning(make):
    with pytest.raises(SpecError, match="must be above 0"):
        make()


def test_rows_are_checked():
    x, y = _data()
    with pytest.raises(SeriesError, match=r"60 rows.* 59"):
        learn(Lms(rate=0.1), x, y[:-1])
    state = Rls().init(8, 2)
    with pytest.raises(SeriesError, match=r"features \(8,\)"):
        Rls().step(state, x[0, :7], y[0])
    with pytest.raises(SeriesError, match="finite"):
        Rls().step(state, x[0] * np.nan, y[0])
