"""The three ways around the chip's rectifier do what experiment 004 says of them."""

import numpy as np
import pytest

from experiments.hybrid_tanh import Rectified, ScaleTrick, linear_probe
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import Activation, EmulatedDevice
from metalforge.substrates.npu.residency import DevicePrograms

UNITS, INPUTS = 40, 6


@pytest.fixture
def weights():
    return make_esn(UNITS, INPUTS, seed=3, connectivity=1.0, bias_scaling=0.1)


@pytest.fixture
def rows():
    rng = np.random.default_rng(5)
    return rng.uniform(-1, 1, (9, INPUTS)), rng.uniform(-1, 1, (9, UNITS))


def exact(weights, u, s):
    return u @ weights.w_in.T + s @ weights.w_res.T


def test_approach_a_is_silent(weights, rows):
    path = Rectified(weights, DevicePrograms(EmulatedDevice()), Ranges(1, 1), "A")
    assert not np.any(path(np.hstack(rows)))


@pytest.mark.parametrize("approach", ["B", "C"])
def test_approaches_b_and_c_rectify(weights, rows, approach):
    path = Rectified(weights, DevicePrograms(EmulatedDevice()), Ranges(1, 1), approach)
    wanted = exact(weights, *rows)
    found = path(np.hstack(rows))
    assert found.min() >= 0
    far = np.abs(wanted) > 0.5
    assert not np.any(found[far & (wanted < 0)])
    positive = far & (wanted > 0) & (found < 0.9 * path.trick.span)
    assert positive.sum() > 20
    assert np.sqrt(np.mean((found - wanted)[positive] ** 2)) < 0.2  # int4 weights and 15 levels


def test_epsilon_of_the_scale_trick_cancels(weights, rows, monkeypatch):
    honest = Rectified(weights, DevicePrograms(EmulatedDevice()), Ranges(1, 1), "B")(np.hstack(rows))
    config = ScaleTrick.from_weights(weights, Ranges(1, 1))
    monkeypatch.setattr(ScaleTrick, "from_weights", lambda *_: ScaleTrick(epsilon=0.03125, span=config.span))
    again = Rectified(weights, DevicePrograms(EmulatedDevice()), Ranges(1, 1), "B")(np.hstack(rows))
    assert np.array_equal(again > 0, honest > 0)
    assert np.allclose(again, honest, rtol=1e-12)


def test_three_sigma_of_the_scale_trick(weights):
    rng = np.random.default_rng(0)
    config = ScaleTrick.from_weights(weights, Ranges(2.0, 0.5))
    u, s = rng.uniform(-2, 2, (20000, INPUTS)), rng.uniform(-0.5, 0.5, (20000, UNITS))
    assert np.allclose(3 * exact(weights, u, s).std(axis=0), config.span, rtol=0.05)
    assert config.epsilon * config.span.max() == pytest.approx(0.1)


@pytest.mark.parametrize(("activation", "negative"), [(Activation.LINEAR, -1.0), (Activation.BOUNDED_RELU, 0.0)])
def test_only_a_layer_without_activation_passes_the_linear_probe(activation, negative):
    with EmulatedDevice() as device:
        assert linear_probe(device, activation) == negative
