"""Slopes in the inputs: exact in software, and of the straight-through surrogate at a device's states."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from experiments.attacks import Victim, effective_weights, input_slope
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir.activations import activation
from metalforge.reservoir.generate import make_esn
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
@pytest.mark.parametrize("passthrough", [False, True])
def test_software_slopes_agree_with_finite_differences(act, passthrough):
    victim = Victim(HybridEsn(_weights(passthrough, act)))
    u, y = _data()
    _, slope = victim.loss_and_slope(u, y)
    rng = np.random.default_rng(5)
    for _ in range(10):
        way = rng.normal(size=u.shape)
        h = 1e-6
        change = victim.loss(u + h * way, y) - victim.loss(u - h * way, y)
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
    with EmulatedDevice() as device:
        native = HybridEsn.from_weights(_weights(), calibration=u).with_hardware_native(device)
        with pytest.raises(SpecError, match="native"):
            Victim(native)
    w = _weights()
    with pytest.raises(SpecError, match="feedback"):
        input_slope(
            replace(w, w_fb=np.zeros((UNITS, CLASSES))), u, np.zeros((SERIES, STEPS, UNITS)), np.zeros((SERIES, UNITS))
        )
