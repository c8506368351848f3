"""Each way to a pre-activation does what its words say."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import NativeLayer, input_errors
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
