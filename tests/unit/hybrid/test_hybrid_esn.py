"""The hybrid network: the same equation on both substrates, the state carried between them, failures survived."""

import warnings

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, loss, refit
from metalforge.hybrid.running.device_matrix import DeviceFallbackWarning
from metalforge.reservoir import load_weights, save_weights
from metalforge.reservoir.datasets import narma
from metalforge.reservoir.estimators import EsnRegressor
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.npu.device import DeviceGoneError
from reference.esn import trajectory
from reference.faulty_npu import FaultyDevice, Timeout, Vanish

UNITS = 60


@pytest.fixture
def weights():
    return make_esn(UNITS, 3, seed=1, connectivity=1.0, leak=0.4, bias_scaling=0.2)


@pytest.fixture
def series():
    return np.random.default_rng(2).uniform(-1, 1, (40, 3))


@pytest.fixture(scope="module")
def narma_task():
    u, y = narma(1200, seed=5)
    u = 2 * (u - 0.25)
    cut = 600
    train = Task(inputs=u[None, :cut], targets=y[None, :cut], washout=50)
    return train, Task(inputs=u[None, cut:], targets=y[None, cut:], washout=50)


def test_software_mode_is_the_equation(weights, series):
    assert np.allclose(HybridEsn.from_weights(weights).run(series), trajectory(weights, series)[0], atol=1e-12)


@pytest.mark.parametrize(
    ("approach", "precision", "most"),
    [
        ("last-layer", "W4A8", 0.15),
        ("last-layer", "W8A8", 0.02),
        ("last-layer", "W12A16", 2e-3),
        ("two-rail", "W8A8", 0.02),
    ],
)
def test_hybrid_states_follow_software_ones(weights, series, approach, precision, most):
    esn = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), approach, precision)
    difference = esn.run(series) - trajectory(weights, series)[0]
    assert 0 < np.sqrt(np.mean(difference**2)) < most


def test_an_int4_grid_reservoir_has_only_the_rounding_of_its_state(series):
    weights = make_esn(UNITS, 3, seed=1, connectivity=1.0, grid="int4")
    errors = {}
    for precision in ("W4A8", "W4A12", "W4A16"):
        esn = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision=precision, inputs="host")
        errors[precision] = np.abs(esn.run(series) - trajectory(weights, series)[0]).max()
    assert errors["W4A16"] < 1e-3
    assert errors["W4A12"] < errors["W4A8"] / 8


def test_the_state_goes_along_when_modes_change(weights, series):
    whole = HybridEsn.from_weights(weights)
    first = whole.run(series[:20])
    moved = whole.with_hardware_linear(EmulatedDevice(), precision="W12A16")
    assert np.array_equal(moved.state, first[-1])
    middle = moved.run(series[20:30])
    back = moved.to_software_mode()
    last = back.run(series[30:])
    found = np.concatenate([first, middle, last])
    assert np.abs(found - trajectory(weights, series)[0]).max() < 2e-3
    assert np.array_equal(whole.state, first[-1])  # the one that was moved stays where it was


def test_batches_equal_single_runs(weights):
    series = np.random.default_rng(4).uniform(-1, 1, (5, 12, 3))
    esn = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W8A8")
    together = esn.states(series)
    assert together.shape == (5, 12, UNITS)
    for one, states in zip(series, together, strict=True):
        assert np.allclose(esn.states(one), states, atol=1e-12)


def test_native_mode_is_a_bounded_relu_reservoir(weights, series):
    esn = HybridEsn.from_weights(weights).with_hardware_native(EmulatedDevice())
    states = esn.run(series)
    assert states.min() >= 0
    assert states.max() <= 1
    assert states.std() > 0.02


def test_another_readout_begins_without_feedback_for_each_of_a_batch(series):
    rng = np.random.default_rng(3)
    weights = make_esn(UNITS, 3, seed=1, connectivity=1.0, feedback=2, feedback_scaling=0.3)
    first = weights.with_readout(rng.normal(size=(2, UNITS)) * 0.1)
    esn = HybridEsn.from_weights(first)
    esn.reset(batch=4)
    esn.step(np.repeat(series[:1], 4, axis=0))
    other = esn.with_weights(first.with_readout(rng.normal(size=(2, UNITS)) * 0.1))
    at_rest = HybridEsn.from_weights(other.weights)
    at_rest.state = esn.state[0]
    found = other.step(np.repeat(series[1:2], 4, axis=0))
    assert found == pytest.approx(np.repeat(at_rest.step(series[1])[None], 4, axis=0), abs=1e-12)


def test_output_feedback_goes_through_the_device(series):
    weights = make_esn(UNITS, 3, seed=1, connectivity=1.0, feedback=2, feedback_scaling=0.3)
    rng = np.random.default_rng(0)
    weights = weights.with_readout(0.05 * rng.normal(size=(2, UNITS)), 0.1 * rng.normal(size=2))
    software = HybridEsn.from_weights(weights).run(series)
    assert np.allclose(software, trajectory(weights, series)[1], atol=1e-12)
    hybrid = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W12A16")
    assert np.abs(hybrid.run(series) - software).max() < 2e-3


@pytest.mark.parametrize(("outputs", "width"), [(0, UNITS), (2, 2)])
def test_no_steps_give_no_rows_of_the_width_that_steps_give(weights, outputs, width):
    if outputs:
        weights = weights.with_readout(np.ones((outputs, UNITS)))
    esn = HybridEsn.from_weights(weights)
    assert esn.run(np.zeros((0, 3))).shape == (0, width)
    with pytest.raises(SpecError, match="`u`"):
        esn.run(np.zeros((0, 4)))


def test_a_repeat_gives_the_same_bits(weights, series):
    runs = [
        HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W4A8").run(series)
        for _ in range(2)
    ]
    assert np.array_equal(*runs)


def test_statistics_keep_measured_and_modelled_apart(weights, series):
    with EmulatedDevice() as device:
        esn = HybridEsn.from_weights(weights).with_hardware_linear(device, precision="W8A8")
        esn.run(series)
        seen = esn.statistics()
    assert isinstance(seen.host, Measured)
    assert isinstance(seen.device, Modelled)
    assert seen.steps == len(series)
    assert seen.rows == 2 * len(series)  # two nibbles
    # 40 calls of at least one round trip of 650 us each, and the load before them was not this network's running
    assert seen.device.value >= len(series) * 650e-6
    assert seen.host.value > 0


def test_a_vanished_device_is_survived_with_the_state_intact(weights, series):
    device = FaultyDevice(faults=(Vanish(at=15),))
    esn = HybridEsn.from_weights(weights).with_hardware_linear(device, precision="W8A8")
    before = esn.run(series[:14])
    software = esn.to_software_mode()
    with pytest.warns(DeviceFallbackWarning, match="stopped answering") as seen:
        after = esn.run(series[14:])
    assert len(seen) == 1
    assert np.array_equal(after, software.run(series[14:]))
    assert esn.statistics().fallbacks == len(series) - 14
    assert len(before) == 14


def test_one_time_out_is_tried_again(weights, series):
    plain = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W8A8").run(series)
    device = FaultyDevice(faults=(Timeout(at=9),))
    esn = HybridEsn.from_weights(weights).with_hardware_linear(device, precision="W8A8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(esn.run(series), plain)
    assert esn.statistics().fallbacks == 0


def test_raise_leaves_the_state_before_the_step(weights, series):
    device = FaultyDevice(faults=(Vanish(at=8),))
    esn = HybridEsn.from_weights(weights).with_hardware_linear(device, precision="W8A8", on_device_failure="raise")
    esn.run(series[:7])
    state = esn.state
    with pytest.raises(DeviceGoneError):
        esn.step(series[7])
    assert np.array_equal(esn.state, state)


def test_a_refit_recovers_what_int4_weights_lose(narma_task):
    train, test = narma_task
    weights = make_esn(UNITS, 1, seed=1, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
    software = refit(HybridEsn.from_weights(weights, calibration=train.inputs), train)
    kept = software.with_hardware_linear(EmulatedDevice(), precision="W4A8")
    fitted = refit(kept, train)
    assert loss(kept, test) > loss(software, test) + 0.1
    assert loss(fitted, test) < loss(software, test) + 0.05


def test_the_ridge_goes_with_the_readout(narma_task, tmp_path):
    train, _ = narma_task
    weights = make_esn(UNITS, 1, seed=1, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
    fitted = refit(HybridEsn.from_weights(weights, calibration=train.inputs), train, ridge=1.0)
    assert fitted.weights.ridge == 1.0
    with EmulatedDevice() as device:
        chip = refit(fitted.with_hardware_linear(device), train)
        assert chip.weights.ridge == 1.0
        assert np.array_equal(chip.weights.w_out, refit(chip, train, ridge=1.0).weights.w_out)
    save_weights(fitted.weights, tmp_path / "w.safetensors")
    assert load_weights(tmp_path / "w.safetensors").ridge == 1.0
    assert fitted.weights.with_readout(fitted.weights.w_out).ridge is None  # another readout, of which nobody said it
    found = EsnRegressor(units=20, ridge=0.25, random_state=1).fit(train.inputs[0], train.targets[0])
    assert found.weights_.ridge == 0.25


def test_bad_input_is_named(weights, series):
    esn = HybridEsn.from_weights(weights)
    with pytest.raises(SpecError, match=r"`u`.*shape \(3,\)"):
        esn.step(np.zeros(4))
    with pytest.raises(SpecError, match="finite"):
        esn.step(np.array([0.0, np.nan, 0.0]))
    with pytest.raises(SpecError, match="`precision`"):
        esn.with_hardware_linear(EmulatedDevice(), precision="W5A8")
    with pytest.raises(SpecError, match="`approach`"):
        esn.with_hardware_linear(EmulatedDevice(), "D")
    with pytest.raises(SpecError, match="state is finite"):
        esn.state = np.zeros(3)


def test_an_outlier_does_not_set_the_ranges_of_a_network():
    weights = make_esn(30, 3, seed=2, leak=0.5, input_scaling=0.4)
    u = np.random.default_rng(1).uniform(-1, 1, (900, 3))
    clean, faulty = (HybridEsn.from_weights(weights, calibration=one) for one in (u, np.vstack([u[:-1], 100 * u[-1:]])))
    assert faulty.ranges.u == pytest.approx(clean.ranges.u, rel=0.02)
    assert faulty.ranges.s == pytest.approx(clean.ranges.s, rel=0.05)
    assert clean.ranges_at(8).u == pytest.approx(1.25 * clean.ranges_at(4).u)
    assert clean.ranges_at(8).s <= 1
    with EmulatedDevice() as device:
        chip = clean.with_hardware_linear(device, precision="W8A8")
        assert chip.ranges == chip.ranges_at(4) == clean.ranges_at(8)
