"""Slopes in the inputs: exact in software, and of the straight-through surrogate at a device's states."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from experiments.attacks import Victim, effective_weights, input_slope
from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.activations import activation
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.gradient import loss_gradient
from metalforge.substrates.npu.emulator import EmulatedDevice

UNITS, INPUTS, CLASSES, SERIES, STEPS = 24, 3, 4, 5, 7


def _weights(passthrough=False, act="tanh", seed=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    w = make_esn(UNITS, INPUTS, seed=seed, leak=0.4, connectivity=1.0, bias_scaling=0.3, activation=act)
    width = UNITS + INPUTS * passthrough
    return w.with_readout(rng.normal(size=(CLASSES, width)), rng.normal(size=CLASSES), passthrough=passthrough).astype(
        dtype
    )


def _data(seed=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(SERIES, STEPS, INPUTS)), rng.integers(0, CLASSES, SERIES)


@pytest.mark.parametrize("act", ["tanh", "bounded_relu"])
def test_software_slopes_are_those_of_backpropagation(act):
    w = _weights(act=act)
    u, y = _data()
    value, wanted = loss_gradient(w, u, y, loss="cross_entropy", last_state_only=True)
    losses, slope = Victim(HybridEsn(w)).loss_and_slope(u, y)
    assert losses.mean() == pytest.approx(value, rel=1e-12)
    assert np.abs(wanted.inputs).max() > 1e-3
    assert slope / SERIES == pytest.approx(wanted.inputs, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("objective", ["cross_entropy", "margin"])
@pytest.mark.parametrize("passthrough", [False, True])
def test_software_slopes_agree_with_finite_differences(objective, passthrough):
    victim = Victim(HybridEsn(_weights(passthrough)))
    u, y = _data()
    _, slope = victim.loss_and_slope(u, y, objective)
    rng = np.random.default_rng(5)
    for _ in range(10):
        way = rng.normal(size=u.shape)
        h = 1e-6
        change = victim.loss(u + h * way, y, objective) - victim.loss(u - h * way, y, objective)
        assert (slope * way).sum(axis=(1, 2)) == pytest.approx(change / (2 * h), rel=1e-5, abs=1e-7)


def test_sparse_weights_have_the_same_slopes():
    w = _weights()
    u, y = _data()
    sparse = replace(w, w_res=csr_array(w.w_res))
    assert Victim(HybridEsn(sparse)).loss_and_slope(u, y)[1] == pytest.approx(
        Victim(HybridEsn(w)).loss_and_slope(u, y)[1]
    )


def _surrogate(w, u, offsets):
    """The last state of s_t = F(s_{t-1}, u_t) + c_t: a smooth function that passes through given states."""
    s = np.zeros((len(u), w.units))
    for t in range(u.shape[1]):
        pre = u[:, t] @ w.w_in.T + s @ w.w_res.T + w.bias
        s = (1 - w.leak) * s + w.leak * activation(w.activation).value(pre) + offsets[:, t]
    return s


def test_straight_through_is_the_slope_of_a_surrogate_through_the_device_states():
    w = _weights()
    u, _ = _data()
    with EmulatedDevice() as device:
        states = HybridEsn.from_weights(w, calibration=u).with_hardware_linear(device, precision="W4A4").states(u)
    before = np.concatenate([np.zeros((SERIES, 1, UNITS)), states[:, :-1]], axis=1)
    step = (1 - w.leak) * before + w.leak * np.tanh(u @ w.w_in.T + before @ w.w_res.T + w.bias)
    offsets = states - step
    assert np.abs(offsets).max() > 1e-3
    assert _surrogate(w, u, offsets) == pytest.approx(states[:, -1])
    rng = np.random.default_rng(6)
    last = rng.normal(size=(SERIES, UNITS))
    slope = input_slope(w, u, states, last)
    for _ in range(5):
        way, h = rng.normal(size=u.shape), 1e-6
        change = (last * (_surrogate(w, u + h * way, offsets) - _surrogate(w, u - h * way, offsets))).sum(axis=1)
        assert (slope * way).sum(axis=(1, 2)) == pytest.approx(change / (2 * h), rel=1e-5, abs=1e-7)


def test_effective_weights_in_software_are_the_weights():
    w = _weights()
    assert effective_weights(HybridEsn(w)) is w


@pytest.mark.parametrize("place", ["host", "device"])
def test_effective_weights_of_a_linear_path_explain_its_states(place):
    w = _weights()
    u, _ = _data()
    esn = HybridEsn.from_weights(w, calibration=u)
    with EmulatedDevice() as device:
        chip = esn.with_hardware_linear(device, precision="W4A16", inputs=place)  # only the weights are rounded much
        states, found = chip.states(u), effective_weights(chip)
    assert np.abs(found.w_res - w.w_res).max() > 1e-3
    assert (np.abs(found.w_in - w.w_in).max() > 1e-3) == (place == "device")
    assert states == pytest.approx(HybridEsn(found).states(u), abs=2e-3)
    assert np.abs(states - esn.states(u)).max() > 2e-2


def test_effective_weights_of_the_native_path_explain_a_step_to_half_a_level():
    w = replace(_weights(), bias=np.full(UNITS, 0.3))
    esn = HybridEsn.from_weights(replace(w, leak=1.0), input_range=2.0)
    on_grid = 2.0 / 7 * np.random.default_rng(7).integers(-7, 8, (50, 1, INPUTS))
    with EmulatedDevice() as device:
        chip = esn.with_hardware_native(device)
        found, states = effective_weights(chip), chip.states(on_grid)[:, 0]
    assert found.activation == "bounded_relu"
    exact = np.clip(on_grid[:, 0] @ found.w_in.T + found.bias, 0, 1)
    assert np.ptp(exact) > 0.9
    assert np.abs(states - exact).max() < 1 / 15  # half a level, and what a whole threshold leaves
    unrounded = np.clip(on_grid[:, 0] @ w.w_in.T + w.bias, 0, 1)
    assert np.abs(states - exact).mean() < np.abs(states - unrounded).mean()


def test_a_native_victim_has_slopes_of_a_bounded_relu():
    w = _weights()
    u, y = _data()
    with EmulatedDevice() as device:
        victim = Victim(HybridEsn.from_weights(w, calibration=u).with_hardware_native(device))
        assert victim.twin.activation == "bounded_relu"
        losses, slope = victim.loss_and_slope(u, y)
        assert losses == pytest.approx(victim.loss(u, y, "cross_entropy"))
    assert slope.shape == u.shape
    assert np.abs(slope).max() > 0


def test_queries_are_counted_and_names_made():
    victim = Victim(HybridEsn(_weights()))
    u, y = _data()
    victim.predict(u)
    victim.loss_and_slope(u, y)
    assert victim.queries == 2 * SERIES
    assert victim.name == "software float64"


def test_what_cannot_be_attacked_is_refused():
    u, y = _data()
    with pytest.raises(SpecError, match="two classes"):
        Victim(HybridEsn(make_esn(UNITS, INPUTS, seed=1)))
    victim = Victim(HybridEsn(_weights()))
    with pytest.raises(SpecError, match=r"0 \.\. 3"):
        victim.loss(u, y + 4)
    with pytest.raises(SpecError, match="whole numbers"):
        victim.loss(u, y.astype(float))
    with pytest.raises(SpecError, match="series, steps, 3"):
        victim.predict(u[0])
    with pytest.raises(UnknownNameError, match="hinge"):
        victim.loss(u, y, "hinge")
    w = _weights()
    with pytest.raises(SpecError, match="`states` must be"):
        input_slope(w, u, np.zeros((SERIES, STEPS, UNITS + 1)), np.zeros((SERIES, UNITS)))
    with pytest.raises(SpecError, match="feedback"):
        input_slope(
            replace(w, w_fb=np.zeros((UNITS, CLASSES))), u, np.zeros((SERIES, STEPS, UNITS)), np.zeros((SERIES, UNITS))
        )
