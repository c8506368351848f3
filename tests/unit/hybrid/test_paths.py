"""Each way to a pre-activation does what its words say."""

import numpy as np
import pytest

from metalforge.core.errors import PlacementError, SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import input_errors
from metalforge.hybrid.esn.rectifiers import NativeLayer, Rectified, ScaleTrick
from metalforge.hybrid.routing.encodings import LADDER, encoding_of, precision_of
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.npu.quantize import quantize
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


def path_of(weights, precision, approach="last-layer", **options):
    return HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), approach, precision, **options).path


@pytest.mark.parametrize("approach", ["last-layer", "two-rail"])
def test_the_last_layer_is_linear_and_better_with_every_rung(weights, rows, approach):
    u, s = rows
    errors = []
    for precision in ("W4A4", "W8A8", "W12A12", "W12A16"):
        path = path_of(weights, precision, approach)
        errors.append(np.sqrt(np.mean((path(u, s) - exact(weights, u, s)) ** 2)))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 2e-3 * np.std(exact(weights, u, s))


@pytest.mark.parametrize("precision", LADDER)
@pytest.mark.parametrize("place", ["device", "host"])
def test_the_predicted_error_is_the_measured_one(weights, precision, place):
    rng = np.random.default_rng(1)
    u, s = rng.uniform(-1, 1, (4000, INPUTS)), rng.uniform(-1, 1, (4000, UNITS))
    path = path_of(weights, precision, inputs=place)
    measured = np.sqrt(np.mean((path(u, s) - exact(weights, u, s)) ** 2))
    assert input_errors(weights, Ranges(1, 1), encoding_of(precision))[place] == pytest.approx(measured, rel=0.15)


def test_inputs_move_to_the_host_where_joint_scaling_wastes_levels():
    weights = make_esn(UNITS, 1, seed=2, connectivity=1.0, input_scaling=8.0)
    assert path_of(weights, "W4A8").place == "host"
    errors = input_errors(weights, Ranges(1, 1), encoding_of("W4A8"))
    assert errors["host"] < errors["device"] / 2
    small = make_esn(UNITS, INPUTS, seed=2, connectivity=1.0, input_scaling=0.2)
    assert path_of(small, "W4A8").place == "device"


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


def test_approach_c_needs_registers(weights):
    class Plain:
        """Only what the protocol asks for: no registers."""

        def __init__(self):
            self._inner = EmulatedDevice()
            self.n_slots = None
            self.slots, self.load, self.statistics = self._inner.slots, self._inner.load, self._inner.statistics
            self.spent = self._inner.spent

    with pytest.raises(PlacementError, match="register map"):
        Rectified(weights, DevicePrograms(Plain()), Ranges(1, 1), "C")


def test_the_native_layer_is_a_bounded_relu(weights, rows):
    u, s = rows[0], np.abs(rows[1])
    path = NativeLayer(weights, DevicePrograms(EmulatedDevice()), Ranges(1, 1))
    found = path(np.hstack([u, s]))
    assert np.allclose(found * 15, np.rint(found * 15))
    # The same with weights, inputs and states rounded as the chip has them, in reals: equal to its last level.
    lines = quantize(np.hstack([weights.w_in / 7, weights.w_res / 15]), 4)
    rounded = np.hstack([np.rint(7 * u), np.rint(15 * s)])
    wanted = np.clip(rounded @ lines.dequantize().T + weights.bias, 0, 1)
    assert np.abs(found - wanted).max() <= 1.01 / 15
    assert np.sqrt(np.mean((np.clip(exact(weights, u, s) + weights.bias, 0, 1) - found) ** 2)) < 0.2


def test_precision_names_round_trip():
    assert [precision_of(encoding_of(p)) for p in LADDER] == list(LADDER)
    with pytest.raises(SpecError, match="W4A8"):
        encoding_of("W5A8")
