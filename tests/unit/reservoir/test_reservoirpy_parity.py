"""The same weights in reservoirpy 0.4 and here: the same states, readouts and online learning, in float64."""

import numpy as np
import pytest
from reservoirpy.nodes import LMS, RLS, Reservoir, Ridge
from scipy.sparse import csr_array

from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.online import Lms, Rls, learn
from metalforge.reservoir.readout import ridge
from metalforge.reservoir.running import predict
from metalforge.reservoir.training import collect, fit
from metalforge.reservoir.weights import EsnWeights

UNITS, INPUTS, OUTPUTS, STEPS = 60, 4, 2, 300
STATES = {"rtol": 0, "atol": 1e-6}
"""The promise; what is found is nearer to 1e-15."""


def _network(leak=1.0, bias=0.0, feedback=False, activation="tanh", sparse=False):
    rng = np.random.default_rng(11)
    w_res = rng.normal(size=(UNITS, UNITS)) * (rng.uniform(size=(UNITS, UNITS)) < 0.2)
    w_res *= 0.9 / np.abs(np.linalg.eigvals(w_res)).max()
    return EsnWeights(
        w_in=rng.uniform(-0.5, 0.5, (UNITS, INPUTS)),
        w_res=csr_array(w_res) if sparse else w_res,
        bias=bias * rng.uniform(-1, 1, UNITS),
        leak=leak,
        activation=activation,
        w_fb=rng.uniform(-0.5, 0.5, (UNITS, OUTPUTS)) if feedback else None,
    )


def _peer(w):
    """A reservoirpy node of the same weights; it sees [u; y before] where there is feedback."""
    w_in = w.w_in if w.w_fb is None else np.concatenate([w.w_in, w.w_fb], axis=1)
    return Reservoir(Win=w_in, W=w.w_res, bias=w.bias, lr=w.leak, activation=w.activation)


def _task(steps=STEPS, seed=12):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(steps, INPUTS))
    mixed = np.cumsum(u[:, :OUTPUTS], axis=0) * 0.1 + rng.normal(size=(steps, OUTPUTS)) * 0.05
    return u, np.sin(mixed)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu", "identity", "sigmoid"])
@pytest.mark.parametrize(("leak", "bias"), [(1.0, 0.0), (0.3, 0.0), (0.3, 1.0)])
def test_states(leak, bias, activation, sparse):
    w = _network(leak, bias, activation=activation, sparse=sparse)
    u, _ = _task()
    wanted = _peer(w).run(u)
    assert np.abs(wanted).max() > 0.1
    assert np.allclose(EsnEngine(w).run(u), wanted, **STATES)
    ((features, _),) = collect(w, u)
    assert np.allclose(features, wanted, **STATES)


@pytest.mark.parametrize("penalty", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("fit_bias", [True, False])
def test_ridge_readouts(penalty, fit_bias):
    w = _network(leak=0.5, bias=0.2)
    u, y = _task()
    node = Ridge(ridge=penalty, fit_bias=fit_bias)
    model = _peer(w) >> node
    model.fit(u, y, warmup=50)
    fitted = fit(w, u, y, ridge=penalty, washout=50, fit_bias=fit_bias)
    assert fitted.w_out == pytest.approx(node.Wout.T, rel=1e-6, abs=1e-7)
    assert fitted.out_bias == pytest.approx(np.ravel(node.bias), rel=1e-6, abs=1e-7)
    model.reset()
    assert np.allclose(predict(fitted, u), model.run(u), **STATES)


def test_ridge_readouts_of_several_series():
    w = _network(leak=0.5)
    series = [_task(n, seed=n) for n in (80, 120, 60)]
    node = Ridge(ridge=1e-3)
    model = _peer(w) >> node
    model.fit([u for u, _ in series], [y for _, y in series], warmup=20)
    fitted = fit(w, [u for u, _ in series], [y for _, y in series], ridge=1e-3, washout=20)
    assert fitted.w_out == pytest.approx(node.Wout.T, rel=1e-6, abs=1e-7)


def test_output_feedback_taught_and_on_its_own():
    w = _network(leak=0.4, bias=0.3, feedback=True)
    u, y = _task()
    node = Ridge(ridge=1e-2)
    reservoir = _peer(w)
    model = (reservoir >> node) & (reservoir << node)
    model.fit(u, y, warmup=20)
    fitted = fit(w, u, y, ridge=1e-2, washout=20)
    assert fitted.w_out == pytest.approx(node.Wout.T, rel=1e-6, abs=1e-7)
    model.reset()
    free = model.run(u)
    assert np.abs(free).max() > 0.1
    assert np.allclose(predict(fitted, u), free, **STATES)


@pytest.mark.parametrize("fit_bias", [True, False])
def test_lms(fit_bias):
    u, y = _task()
    node = LMS(learning_rate=0.01, fit_bias=fit_bias)
    node.partial_fit(u, y)
    state, _ = learn(Lms(rate=0.01, fit_bias=fit_bias), u, y)
    assert state.w_out == pytest.approx(node.Wout.T, rel=1e-10)
    assert state.out_bias == pytest.approx(np.ravel(node.bias), rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("forgetting", [1.0, 0.98])
def test_rls_without_a_bias(forgetting):
    u, y = _task()
    node = RLS(alpha=0.1, forgetting=forgetting, fit_bias=False)
    node.partial_fit(u, y)
    state, _ = learn(Rls(alpha=0.1, forgetting=forgetting, fit_bias=False), u, y)
    assert state.w_out == pytest.approx(node.Wout.T, rel=1e-9)
    assert state.inverse == pytest.approx(node.P, rel=1e-9, abs=1e-15)


def test_rls_with_a_bias_is_another_rule_there():
    """Ours is the ridge solution; reservoirpy's moves its bias by a running mean of errors and is not."""
    u, y = _task()
    u = u + 1.0
    node = RLS(alpha=0.1)
    node.partial_fit(u, y)
    state, _ = learn(Rls(alpha=0.1), u, y)
    wanted = ridge(u, y, 0.1)
    assert state.out_bias == pytest.approx(wanted.out_bias, rel=1e-9)
    assert np.abs(np.ravel(node.bias) - wanted.out_bias).max() > 1e-4
