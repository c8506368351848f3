"""Chunked reservoirs: the same bits as the whole network on either substrate, isolation, eviction, failures."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid import HybridEsn, plan_chunks
from metalforge.hybrid.running.device_matrix import DeviceFallbackWarning
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.weights import Ranges
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.npu.device import DeviceGoneError, with_variable
from reference.faulty_npu import FaultyDevice, Timeout, Vanish

UNITS, INPUTS = 100, 3


def network(**changes):
    given = {"leak": 0.4, "bias_scaling": 0.2, "connectivity": 0.3} | changes
    return make_esn(UNITS, INPUTS, seed=1, **given)


@pytest.fixture
def series():
    return np.random.default_rng(2).uniform(-1, 1, (30, INPUTS))


def chunked(weights, device=None, **planning):
    return HybridEsn.from_weights(weights).with_chunks(device or EmulatedDevice(), **planning)


@pytest.mark.parametrize("size", [16, 37])
@pytest.mark.parametrize("kind", ["dense", "csr", "block16"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_software_have_the_bits_of_the_whole_network(series, kind, size, dtype):
    weights = network(kind=kind, dtype=dtype)
    esn = chunked(weights, ranges=Ranges(1.0, 1.0), chunk_units=size, device_units=size)
    for u in series.astype(dtype):
        before = esn.state
        assert np.array_equal(esn.step(u)[size:], EsnEngine(weights).step(before, u)[size:])


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "piecewise_tanh"])
def test_rows_in_software_keep_the_bits_of_every_activation(series, activation):
    weights = network(activation=activation, spectral_radius=0.5)
    planning = {"ranges": Ranges(1.0, 1.0), "chunk_units": 37, "device_units": 37}
    esn = chunked(weights, **planning)
    for u in series:
        before = esn.state
        assert np.array_equal(esn.step(u)[37:], EsnEngine(weights).step(before, u)[37:])
    nothing = chunked(weights, device_units=0)
    assert np.array_equal(nothing.run(series), EsnEngine(weights).run(series))
    assert nothing.plan.device_units == 0


@pytest.mark.parametrize(
    ("size", "precision", "inputs"),
    [
        (1, "W4A8", "device"),
        (37, "W4A4", "host"),
        (37, "W4A8", "host"),
        (37, "W8A12", "device"),
        (16, "W4A8", "auto"),
        (100, "W4A8", "device"),
    ],
)
def test_device_chunks_give_the_bits_of_the_whole_network_on_the_device(series, size, precision, inputs):
    weights = network()
    esn = chunked(weights, chunk_units=size, precision=precision, inputs=inputs, overflow="swap")
    whole = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision=precision, inputs=inputs)
    assert esn.plan.device_units == UNITS
    assert np.array_equal(esn.run(series[:8]), whole.run(series[:8]))


def test_a_mixed_network_takes_each_row_from_its_substrate(series):
    weights = network()
    mixed = chunked(weights, chunk_units=25, device_units=50)
    assert [chunk.place for chunk in mixed.plan.chunks] == ["device", "device", "software", "software"]
    hybrid = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W4A8")
    for u in series:
        before = mixed.state
        hybrid.state = before
        now, on_device = mixed.step(u), hybrid.step(u)
        in_software = EsnEngine(weights).step(before, u)
        assert np.array_equal(now[:50], on_device[:50])
        assert np.array_equal(now[50:], in_software[50:])
        assert not np.array_equal(on_device[50:], in_software[50:])


def test_batches_and_single_samples_agree(series):
    weights = network()
    batch = np.stack([series, series[::-1]])
    # With W_in on the host its product is NumPy's, whose last bit may depend on the batch; the device's may not.
    for units in (0, UNITS):
        one = chunked(weights, chunk_units=40, inputs="device", device_units=units)
        alone = []
        for rows in batch:
            one.reset()
            alone.append(one.run(rows))
        one.reset(batch=2)
        assert np.array_equal(one.run(batch), np.stack(alone))


def test_feedback_and_readout_are_those_of_the_hybrid_network(series):
    rng = np.random.default_rng(4)
    weights = network(feedback=2, feedback_scaling=0.3).with_readout(rng.normal(size=(2, UNITS)) * 0.1)
    esn = chunked(weights, chunk_units=30)
    whole = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W4A8")
    found = esn.run(series)
    assert found.shape == (len(series), 2)
    assert np.array_equal(found, whole.run(series))
    software = chunked(weights, device_units=0)
    assert np.array_equal(software.run(series), HybridEsn.from_weights(weights).run(series))


def test_programs_do_not_overlap_and_one_changes_without_the_others(series):
    weights = network()
    device = EmulatedDevice()
    esn = chunked(weights, device, chunk_units=25)
    used = [processor for slot in device.slots() for processor in device.placement(slot).processors]
    assert len(used) == len(set(used)) == 4
    changed = "rows 25 .. 49/rows25"
    others = {slot: device.fingerprint(slot) for slot in device.slots() if slot != changed}
    old = device.get_variable("rows25/weights", changed)
    esn.programs.update(changed, with_variable(esn.programs.program(changed), "rows25/weights", -old))
    assert np.array_equal(device.get_variable("rows25/weights", changed), -old)
    assert {slot: device.fingerprint(slot) for slot in others} == others
    esn.state = np.ones(UNITS) / 2
    twin = chunked(weights, chunk_units=25)
    twin.state = np.ones(UNITS) / 2
    one, other = esn.step(series[0]), twin.step(series[0])
    same = one == other
    assert same[:25].all()
    assert same[50:].all()
    assert not same[25:50].all()


def test_what_does_not_fit_is_swapped_and_counted(series):
    weights = network()
    device = EmulatedDevice("akd1000-claimed")  # five programs at a time
    plan = plan_chunks(weights, device.profile, chunk_units=10, overflow="swap")
    esn = HybridEsn.from_weights(weights).with_chunks(device, plan)
    assert len(device.slots()) == 5
    found = esn.run(series[:10])
    whole = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W4A8")
    assert np.array_equal(found, whole.run(series[:10]))
    done = esn.programs
    # Ten programs, five places: the first step loads the other five for the first time, every later one five again.
    assert (done.loads, done.reloads, done.evictions) == (5 + 10 * 5, 9 * 5, 10 * 5)
    assert plan.swaps.reloads == 5
    assert device.statistics().loads == done.loads


def test_reloads_are_part_of_the_modelled_step():
    weights = make_esn(120, 1, seed=3)
    device = EmulatedDevice()
    plan = plan_chunks(weights, device.profile, chunk_units=4, overflow="swap")  # 30 programs, 22 processors
    esn = HybridEsn.from_weights(weights).with_chunks(device, plan)
    assert plan.swaps.reloads == 8
    u = np.zeros((8, 1))
    esn.run(u[:4])  # the turns settle
    before = device.statistics().busy
    esn.run(u[4:])
    after = device.statistics().busy
    assert (after - before).value / 4 == pytest.approx(plan.device.latency.value, rel=1e-9)
    assert plan.swaps.cost.latency.value > 0
    calls = sum(chunk.cost.latency.value for chunk in plan.chunks)
    assert plan.device.latency.value == pytest.approx(calls + plan.swaps.cost.latency.value)


def test_an_evicted_program_comes_back_with_its_variables(series):
    weights = network()
    device = EmulatedDevice("akd1000-claimed")
    esn = chunked(weights, device, chunk_units=10, overflow="swap")
    name = "rows 90 .. 99/rows90"
    assert name not in device.slots()
    zeros = np.zeros_like(esn.programs.program(name).layers[0].weights)
    # While it is not on the device.
    esn.programs.update(name, with_variable(esn.programs.program(name), "rows90/weights", zeros))
    esn.run(series[:3])
    assert name in device.slots()
    assert not device.get_variable("rows90/weights", name).any()


def test_a_vanished_device_is_survived_from_the_same_state(series):
    weights = network()
    device = FaultyDevice(faults=(Vanish(at=10),))  # in the third step, at the second of 4 chunks
    esn = chunked(weights, device, chunk_units=25)
    healthy = chunked(weights, chunk_units=25)
    assert np.array_equal(esn.run(series[:2]), healthy.run(series[:2]))
    before = esn.state
    with pytest.warns(DeviceFallbackWarning, match="software goes on"):
        third = esn.step(series[2])
    software = EsnEngine(weights).step(before, series[2])
    assert np.array_equal(third[:25], healthy.step(series[2])[:25])  # what the device had answered is kept
    assert np.array_equal(third[25:], software[25:])
    with pytest.warns(DeviceFallbackWarning):
        fourth = esn.step(series[3])
    assert np.array_equal(fourth, EsnEngine(weights).step(third, series[3]))
    esn.run(series[4:])
    assert esn.statistics().fallbacks == 28
    fallbacks = esn.path.fallbacks
    assert fallbacks == {"rows 0 .. 24": 27, "rows 25 .. 49": 28, "rows 50 .. 74": 28, "rows 75 .. 99": 28}


def test_one_timeout_is_tried_again_and_changes_nothing(series):
    weights = network()
    esn = chunked(weights, FaultyDevice(faults=(Timeout(at=6),)), chunk_units=25)
    healthy = chunked(weights, chunk_units=25)
    assert np.array_equal(esn.run(series), healthy.run(series))
    assert esn.statistics().fallbacks == 0


def test_raise_lets_the_error_through_before_anything_changed(series):
    device = FaultyDevice(faults=(Vanish(at=6),))
    esn = chunked(network(), device, chunk_units=25, on_device_failure="raise")
    esn.step(series[0])
    before = esn.state
    with pytest.raises(DeviceGoneError):
        esn.step(series[1])
    assert np.array_equal(esn.state, before)
    assert esn.statistics().steps == 1


def test_statistics_keep_measured_and_modelled_apart(series):
    device = EmulatedDevice()
    esn = chunked(network(), device, chunk_units=50)
    esn.run(series)
    done = esn.statistics()
    assert isinstance(done.host, Measured)
    assert isinstance(done.device, Modelled)
    assert done.device.profile == "akd1000-published"
    assert done.steps == len(series)
    esn.close()
    assert device.slots() == ()


def test_what_is_wrong_is_told(series):
    weights = network()
    plan = plan_chunks(weights, chunk_units=50)
    with pytest.raises(SpecError, match="100 units"):
        HybridEsn.from_weights(make_esn(50, 1, seed=1)).with_chunks(EmulatedDevice(), plan)
    esn = chunked(weights)
    with pytest.raises(SpecError, match=r"shape \(3,\)"):
        esn.step(np.zeros(4))
    with pytest.raises(SpecError, match="finite"):
        esn.step(np.array([0.0, np.nan, 0.0]))
    with pytest.raises(SpecError, match="in software"):
        _ = esn.to_software_mode().programs
