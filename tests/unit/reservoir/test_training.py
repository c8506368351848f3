"""Whole series: features, teacher forcing, fits and closed loops against loops written out; series never meet."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.reservoir import running
from metalforge.reservoir.readout import ridge
from metalforge.reservoir.running import predict
from metalforge.reservoir.series import DivergenceError, SeriesError
from metalforge.reservoir.training import collect, fit
from metalforge.reservoir.weights import EsnWeights

UNITS, INPUTS, OUTPUTS = 12, 3, 2


def _network(feedback=0, dtype=np.float64, seed=2, inputs=INPUTS, units=UNITS, **parts):
    rng = np.random.default_rng(seed)
    return EsnWeights(
        w_in=rng.uniform(-1, 1, (units, inputs)).astype(dtype),
        w_res=(rng.normal(size=(units, units)) * 0.7 / np.sqrt(units)).astype(dtype),
        bias=(rng.normal(size=units) * 0.1).astype(dtype),
        w_fb=rng.uniform(-0.5, 0.5, (units, feedback)).astype(dtype) if feedback else None,
        leak=0.6,
        **parts,
    )


def _series(lengths, seed=4, inputs=INPUTS):
    rng = np.random.default_rng(seed)
    u = [rng.normal(size=(n, inputs)) for n in lengths]
    return u, [np.tanh(np.cumsum(one[:, :OUTPUTS], axis=0)) for one in u]


def _loop(w, u, fed_back=None):
    """The network's equation, one step after another; `fed_back(t, state)` is y before step t + 1."""
    state, said, states = np.zeros(w.units), np.zeros(w.feedback), []
    for t, now in enumerate(u):
        pre = w.w_in @ now + w.w_res @ state + w.bias
        if w.feedback:
            pre = pre + w.w_fb @ said
        state = (1 - w.leak) * state + w.leak * np.tanh(pre)
        states.append(state)
        said = said if fed_back is None else fed_back(t, state)
    return np.array(states)


def test_features_are_the_states_after_the_washout_of_each_series():
    w = _network()
    u, y = _series([20, 7, 20])
    for i, (features, targets) in enumerate(collect(w, u, y, washout=5)):
        assert features == pytest.approx(_loop(w, u[i])[5:], rel=1e-12, abs=1e-14)
        assert np.array_equal(targets, y[i][5:])
    assert i == 2


def test_passthrough_puts_the_inputs_beside_the_states():
    w = _network()
    (u,), (y,) = _series([9])
    ((features, _),) = collect(w, u, y, washout=2, passthrough=True)
    assert features.shape == (7, UNITS + INPUTS)
    assert np.array_equal(features[:, UNITS:], u[2:])


def test_no_series_knows_what_came_before_it(monkeypatch):
    w = _network()
    u, _ = _series([6, 6, 6, 3, 6, 6])
    alone = [next(iter(collect(w, one)))[0] for one in u]
    for at_once in (1, 2 * 6 * UNITS, 1 << 23):  # batches of one, of two, of all neighbours of a length
        monkeypatch.setattr(running, "VALUES_AT_ONCE", at_once)
        for order in (range(6), [5, 3, 1, 0, 2, 4]):
            together = [features for features, _ in collect(w, [u[i] for i in order])]
            for i, features in zip(order, together, strict=True):
                assert features == pytest.approx(alone[i], rel=1e-13, abs=1e-15)


def test_a_batch_is_a_list_of_its_series():
    w = _network()
    u, y = _series([8, 8, 8])
    listed = list(collect(w, u, y, washout=1))
    batched = list(collect(w, np.stack(u), np.stack(y), washout=1))
    for one, other in zip(listed, batched, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_teacher_forcing_feeds_back_the_target_of_the_step_before():
    w = _network(feedback=OUTPUTS)
    u, y = _series([15, 10])
    for i, (features, _) in enumerate(collect(w, u, y)):
        assert features == pytest.approx(_loop(w, u[i], lambda t, _, i=i: y[i][t]), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("passthrough", [False, True])
def test_a_fitted_network_with_feedback_runs_on_its_own_outputs(passthrough):
    w = _network(feedback=OUTPUTS)
    u, y = _series([40, 30])
    fitted = fit(w, u, y, ridge=0.1, passthrough=passthrough)
    for one, outputs in zip(u, predict(fitted, u), strict=True):
        own = _loop(w, one, lambda t, state, one=one: fitted.output(state, one[t]))
        assert outputs == pytest.approx(fitted.output(own, one), rel=1e-10, abs=1e-12)


def test_a_teacher_is_heard_as_far_as_it_reaches():
    w = _network(feedback=OUTPUTS)
    (u,), (y,) = _series([25])
    fitted = fit(w, u, y, ridge=0.1)
    found = predict(fitted, u, teacher=y[:10])
    wanted = _loop(w, u, lambda t, state: y[t] if t < 10 else fitted.output(state))
    assert found == pytest.approx(fitted.output(wanted), rel=1e-10, abs=1e-12)
    forced = next(iter(collect(fitted, u, y)))[0]
    assert predict(fitted, u, teacher=y) == pytest.approx(fitted.output(forced), rel=1e-12)


def test_a_fit_over_series_is_the_ridge_solution_of_their_rows():
    w = _network()
    u, y = _series([20, 33, 15])
    fitted = fit(w, u, y, ridge=0.01, washout=4, passthrough=True)
    rows = [np.concatenate([_loop(w, one), one], axis=1)[4:] for one in u]
    wanted = ridge(np.concatenate(rows), np.concatenate([one[4:] for one in y]), 0.01)
    assert fitted.w_out == pytest.approx(wanted.w_out, rel=1e-8, abs=1e-11)
    assert fitted.out_bias == pytest.approx(wanted.out_bias, rel=1e-8, abs=1e-11)
    assert fitted.passthrough
    for one, outputs in zip(rows, predict(fitted, u), strict=True):
        assert outputs[4:] == pytest.approx(wanted(one), rel=1e-8, abs=1e-10)


def test_last_states_only_has_one_row_a_series():
    w = _network()
    u, _ = _series([6, 9, 6, 4, 11])
    labels = np.random.default_rng(3).normal(size=(5, 1))
    fitted = fit(w, u, labels, ridge=1e-3, last_state_only=True)
    last = np.array([_loop(w, one)[-1] for one in u])
    wanted = ridge(last, labels, 1e-3)
    assert fitted.w_out == pytest.approx(wanted.w_out, rel=1e-8, abs=1e-11)
    assert predict(fitted, u, last_state_only=True) == pytest.approx(wanted(last), rel=1e-8)
    assert predict(fitted, u[0], last_state_only=True).shape == (1,)


def test_outputs_come_in_the_form_of_the_inputs():
    w = _network()
    u, y = _series([8, 8])
    fitted = fit(w, u, y, ridge=1.0)
    assert predict(fitted, u[0]).shape == (8, OUTPUTS)
    assert predict(fitted, np.stack(u)).shape == (2, 8, OUTPUTS)
    listed = predict(fitted, [u[0], u[1][:3]])
    assert [one.shape for one in listed] == [(8, OUTPUTS), (3, OUTPUTS)]


def test_float32_states_are_fitted_in_float64_and_the_readout_cast():
    w = _network(dtype=np.float32)
    u, y = _series([50])
    fitted = fit(w, u, y, ridge=1e-6)
    ((features, _),) = collect(w, u, y)
    assert features.dtype == np.float32
    wanted = ridge(features.astype(np.float64), y[0], 1e-6)
    assert fitted.w_out.dtype == np.float32
    assert np.array_equal(fitted.w_out, wanted.w_out.astype(np.float32))
    assert predict(fitted, u[0]).dtype == np.float32


def test_a_list_of_ridges_is_decided_by_validation_or_by_series_left_out():
    w = _network()
    u, y = _series([12, 14, 13, 12])
    noisy = [one + np.random.default_rng(i).normal(size=one.shape) for i, one in enumerate(y)]
    ridges = [1e-6, 1.0, 1e4]
    for validation in (None, (u[:1], y[:1])):
        chosen = fit(w, u, noisy, ridge=ridges, validation=validation)
        assert chosen.ridge == 1.0
        assert chosen.w_out == pytest.approx(fit(w, u, noisy, ridge=1.0).w_out, rel=1e-9)


def test_heads_travel_with_the_readout():
    layout = HeadLayout(name="two", heads=(HeadSpec(name="a"), HeadSpec(name="b")))
    u, y = _series([20])
    assert fit(_network(), u, y, ridge=1.0, heads=layout).heads == layout


def test_states_and_outputs_that_overflow_are_errors():
    w = EsnWeights(w_in=np.ones((2, 1)), w_res=3 * np.eye(2), activation="identity")
    with pytest.raises(OverflowError, match="diverges"):
        list(collect(w, np.ones((1000, 1))))
    hearing = _network(feedback=1, activation="relu").with_readout(np.full((1, UNITS), 1e200))
    with pytest.raises(DivergenceError, match="finite at step 1"):
        predict(hearing, np.ones((50, INPUTS)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda u, y: ({"washout": 7}, u, y), r"Got 7, and series 1 has 7"),
        (lambda u, y: ({"washout": -1}, u, y), "at least 0"),
        (lambda u, y: ({}, u, y[:1]), "of 2 series"),
        (lambda u, y: ({}, u, [y[0], y[1][:-1]]), "series 1 has 7 steps of inputs and 6 of targets"),
        (lambda u, y: ({}, u, [y[0], y[1][:, :1]]), "series 1 are 1 wide"),
        (lambda u, y: ({}, [u[0], u[1] * np.nan], y), r"`inputs\[1\]` must be finite"),
        (lambda u, y: ({}, u, [y[0], y[1] * np.inf]), r"`targets\[1\]` must be finite"),
        (lambda u, y: ({}, [u[0][:, :2], u[1]], y), r"`inputs\[0\]` must have shape \(steps, 3\)"),
        (lambda u, y: ({}, u[0][:, 0], y[0]), r"hint: values\[:, None\]"),
        (lambda u, y: ({}, [], []), "at least one series"),
        (lambda u, y: ({}, u[0][:0], y[0][:0]), "not empty"),
        (lambda u, y: ({}, [u[0].astype(complex), u[1]], y), "real numbers"),
        (lambda u, y: ({}, u, None), "fitted to `targets`"),
    ],
)
def test_bad_series_are_refused_with_their_place(change, message):
    u, y = _series([20, 7])
    options, inputs, targets = change(u, y)
    with pytest.raises(SeriesError, match=message):
        fit(_network(), inputs, targets, ridge=1.0, **options)


def test_a_value_too_large_for_float32_is_refused():
    u, y = _series([5])
    u[0][2, 1] = 1e39
    with pytest.raises(SeriesError, match=r"1e\+39 at step 2, column 1"):
        fit(_network(dtype=np.float32), u, y, ridge=1.0)


def test_feedback_without_a_teacher_or_a_readout_is_refused():
    w = _network(feedback=OUTPUTS)
    (u,), (y,) = _series([10])
    with pytest.raises(SeriesError, match="every step"):
        collect(w, u)
    with pytest.raises(SeriesError, match=r"2 outputs\. Got targets 1 wide"):
        collect(w, u, y[:, :1])
    with pytest.raises(SpecError, match="no readout yet"):
        predict(w, u)
    fitted = fit(w, u, y, ridge=1.0)
    with pytest.raises(SeriesError, match="longer"):
        predict(fitted, u[:4], teacher=y)
    with pytest.raises(SeriesError, match="has none"):
        predict(fit(_network(), u, y, ridge=1.0), u, teacher=y)
