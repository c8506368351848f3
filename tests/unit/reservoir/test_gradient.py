"""Backpropagation through time against central differences, for every part, activation and kind of matrix."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.reservoir.activations import ACTIVATIONS
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.gradient import loss_gradient
from metalforge.reservoir.series import SeriesError
from metalforge.reservoir.sparse import BlockSparse, to_dense
from metalforge.reservoir.weights import EsnWeights

UNITS, INPUTS, OUTPUTS, STEPS = 7, 3, 4, 9
STEP = 1e-6
"""Of the differences: their error is near 1e-12 from the curvature and 1e-10 from rounding."""


def _network(activation="tanh", seed=1, feedback=0, passthrough=False, dtype=np.float64):
    rng = np.random.default_rng(seed)
    w = EsnWeights(
        w_in=rng.uniform(-1, 1, (UNITS, INPUTS)),
        w_res=rng.normal(size=(UNITS, UNITS)) * 0.4,
        bias=rng.normal(size=UNITS) * 0.3,
        leak=0.7,
        activation=activation,
        w_fb=rng.uniform(-1, 1, (UNITS, feedback)) if feedback else None,
        w_out=rng.normal(size=(feedback or OUTPUTS, UNITS + INPUTS * passthrough)),
        out_bias=rng.normal(size=feedback or OUTPUTS),
        passthrough=passthrough,
    )
    return w.astype(dtype)


def _inputs(batch=None, width=INPUTS, seed=5):
    rng = np.random.default_rng(seed)
    shape = (STEPS, width) if batch is None else (batch, STEPS, width)
    return rng.normal(size=shape), rng.normal(size=(*shape[:-2], UNITS)) * 0.2


def _difference(f, x):
    """df/dx by central differences, entry by entry."""
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += STEP
        down[i] -= STEP
        slope[i] = (f(up) - f(down)) / (2 * STEP)
    return slope


def _check_all(weights, u, state, loss, found):
    """Hold each part of a gradient against differences of loss(weights, u, state)."""
    parts = ["w_in", "bias", "w_out", "out_bias", *(["w_fb"] if weights.w_fb is not None else [])]
    for name in parts:
        wanted = _difference(lambda x, name=name: loss(replace(weights, **{name: x}), u, state), getattr(weights, name))
        assert getattr(found, name) == pytest.approx(wanted, rel=1e-6, abs=1e-8), name
    dense = to_dense(weights.w_res)
    wanted = _difference(lambda x: loss(replace(weights, w_res=x), u, state), dense)
    assert to_dense(found.w_res) == pytest.approx(wanted * (dense != 0), rel=1e-6, abs=1e-8), "w_res"
    leak = _difference(lambda x: loss(replace(weights, leak=float(x[0])), u, state), np.array([weights.leak]))
    assert found.leak == pytest.approx(leak[0], rel=1e-6, abs=1e-8), "leak"
    assert found.inputs == pytest.approx(_difference(lambda x: loss(weights, x, state), u), rel=1e-6, abs=1e-8)
    assert found.state == pytest.approx(_difference(lambda x: loss(weights, u, x), state), rel=1e-6, abs=1e-8)


def _clear_of_kinks(weights, u, state):
    """Whether no pre-activation lies within 30 difference steps of a place where a piecewise activation bends."""
    states = EsnEngine(weights).run(u, state)
    before = np.concatenate([state[..., None, :], states[..., :-1, :]], axis=-2)
    pre = u @ weights.w_in.T + before @ to_dense(weights.w_res).T + weights.bias
    kinks = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
    return np.abs(np.abs(pre)[..., None] - kinks).min() > 30 * STEP


def _check_squares(weights, u, state):
    """Hold the gradient of squared errors from random targets against differences, and return it."""
    targets = np.random.default_rng(9).normal(size=(*u.shape[:-1], weights.outputs))

    def loss(weights, u, state):
        return loss_gradient(weights, u, targets, state=state)[0]

    found = loss_gradient(weights, u, targets, state=state)[1]
    _check_all(weights, u, state, loss, found)
    return found


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("batch", [None, 2])
def test_every_part_for_every_activation(activation, batch):
    weights = _network(activation)
    u, state = _inputs(batch)
    assert _clear_of_kinks(weights, u, state)
    _check_squares(weights, u, state)


def test_teacher_forced_feedback_is_part_of_the_inputs():
    weights = _network(feedback=2)
    u, state = _inputs(width=INPUTS + 2)
    found = _check_squares(weights, u, state)
    assert found.w_fb.shape == (UNITS, 2)
    assert found.inputs.shape == (STEPS, INPUTS + 2)


def _sparse_kinds():
    rng = np.random.default_rng(3)
    columns = np.array([[0, 2, 3, 6]], np.int32)
    values = np.zeros((1, 4, 16))
    values[:, :, :UNITS] = rng.normal(size=(1, 4, UNITS)) * 0.4
    free = np.where(rng.uniform(size=(UNITS, UNITS)) < 0.4, rng.normal(size=(UNITS, UNITS)) * 0.4, 0)
    return [csr_array(free), BlockSparse(UNITS, UNITS, columns, values)]


@pytest.mark.parametrize("w_res", _sparse_kinds(), ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("batch", [None, 2])
def test_a_sparse_matrix_has_a_gradient_of_its_own_kind(w_res, batch):
    weights = replace(_network(), w_res=w_res)
    u, state = _inputs(batch)
    found = _check_squares(weights, u, state)
    assert type(found.w_res) is type(w_res)
    assert 0 < np.count_nonzero(to_dense(found.w_res)) < UNITS * UNITS


@pytest.mark.parametrize("last_state_only", [False, True])
@pytest.mark.parametrize("kind", ["mse", "cross_entropy", "classes"])
@pytest.mark.parametrize(("batch", "passthrough"), [(None, True), (2, False), (2, True)])
def test_losses_and_their_gradients(last_state_only, kind, batch, passthrough):
    weights = _network(passthrough=passthrough)
    u, state = _inputs(batch)
    rng = np.random.default_rng(7)
    rows = ((batch,) if batch else ()) + (() if last_state_only else (STEPS - 2,))
    targets = {
        "mse": rng.normal(size=(*rows, OUTPUTS)),
        "cross_entropy": rng.dirichlet(np.ones(OUTPUTS), size=rows or None),
        "classes": rng.integers(OUTPUTS, size=rows),
    }[kind]
    options = {
        "loss": "mse" if kind == "mse" else "cross_entropy",
        "last_state_only": last_state_only,
        "washout": 0 if last_state_only else 2,
    }
    value, found = loss_gradient(weights, u, targets, state=state, **options)

    outputs = weights.output(EsnEngine(weights).run(u, state), u)
    counted = outputs[..., -1, :] if last_state_only else outputs[..., 2:, :]
    if kind == "mse":
        wanted = np.mean((counted - targets) ** 2)
    else:
        p = np.exp(counted) / np.exp(counted).sum(axis=-1, keepdims=True)
        probabilities = np.eye(OUTPUTS)[targets] if kind == "classes" else targets
        wanted = np.mean(-np.sum(probabilities * np.log(p), axis=-1))
    assert value == pytest.approx(wanted, rel=1e-12)

    def loss(weights, u, state):
        return loss_gradient(weights, u, targets, state=state, **options)[0]

    _check_all(weights, u, state, loss, found)


def test_a_small_step_along_the_sign_of_the_input_gradient_does_the_most_harm():
    """FGSM: of all changes within +-e, the loss grows fastest along sign(dL/du), by e |dL/du|_1."""
    weights = _network()
    u, _ = _inputs()
    label, size = np.array(1), 1e-5
    value, found = loss_gradient(weights, u, label, loss="cross_entropy", last_state_only=True)

    def harm(change):
        return loss_gradient(weights, u + change, label, loss="cross_entropy", last_state_only=True)[0] - value

    attack = harm(size * np.sign(found.inputs))
    assert attack == pytest.approx(size * np.abs(found.inputs).sum(), rel=1e-3)
    rng = np.random.default_rng(2)
    assert all(harm(size * rng.choice([-1.0, 1.0], u.shape)) < attack for _ in range(20))


def test_descent_along_the_gradient_learns():
    weights = _network()
    u, _ = _inputs()
    targets = np.random.default_rng(4).normal(size=(STEPS, OUTPUTS))
    first, found = loss_gradient(weights, u, targets)
    for _ in range(100):
        weights = replace(
            weights,
            w_in=weights.w_in - 0.05 * found.w_in,
            w_res=weights.w_res - 0.05 * found.w_res,
            w_out=weights.w_out - 0.05 * found.w_out,
        )
        value, found = loss_gradient(weights, u, targets)
    assert value < 0.4 * first


def test_without_a_state_a_series_starts_from_rest():
    weights, targets = _network(), np.zeros((2, STEPS, OUTPUTS))
    u, _ = _inputs(2)
    rested = loss_gradient(weights, u, targets)[1]
    given = loss_gradient(weights, u, targets, state=np.zeros((2, UNITS)))[1]
    assert np.array_equal(rested.w_in, given.w_in)


def test_float32_gradients_are_float32_and_near_those_of_float64():
    u, _ = _inputs()
    targets = np.random.default_rng(9).normal(size=(STEPS, OUTPUTS))
    single = loss_gradient(_network(dtype=np.float32), u, targets)[1]
    double = loss_gradient(_network(), u, targets)[1]
    for name in ("w_in", "w_res", "bias", "inputs", "w_out", "out_bias"):
        assert getattr(single, name).dtype == np.float32
        assert getattr(single, name) == pytest.approx(getattr(double, name), rel=1e-3, abs=1e-4)


def test_bad_arguments_are_named():
    weights = _network()
    u, _ = _inputs()
    targets = np.zeros((STEPS, OUTPUTS))
    with pytest.raises(SpecError, match="no readout yet"):
        loss_gradient(replace(weights, w_out=None, out_bias=None), u, targets)
    with pytest.raises(UnknownNameError, match="loss `hinge`"):
        loss_gradient(weights, u, targets, loss="hinge")
    with pytest.raises(SeriesError, match="at least one of 9 steps"):
        loss_gradient(weights, u, targets, washout=9)
    with pytest.raises(SeriesError, match=r"0 .. 3. Got 4 .. 4"):
        loss_gradient(weights, u, np.full(STEPS, 4), loss="cross_entropy")
    with pytest.raises(SeriesError, match="classes"):
        loss_gradient(weights, u, np.zeros((STEPS, 2)), loss="cross_entropy")
    with pytest.raises(SeriesError, match=r"shape \(9, 4\)"):
        loss_gradient(weights, u, np.zeros((STEPS, 2)))
    with pytest.raises(SeriesError, match=r"`u`.*shape \(steps, 3\)"):
        loss_gradient(weights, u[:, :2], targets)
