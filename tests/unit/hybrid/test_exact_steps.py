"""Steps that spare the emulator its calls: the bits, the books and the errors of calling it, for whatever it holds."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from metalforge.conductor.program import ConductorProgram
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, loss, refit
from metalforge.hybrid.routing.encodings import LADDER
from metalforge.reservoir import network
from metalforge.reservoir.activations import ACTIVATIONS
from metalforge.reservoir.engine import Affine, EsnEngine
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.heads import decoder_of
from metalforge.substrates.npu import EmulatedDevice
from metalforge.substrates.profiles import profile


class CalledDevice(EmulatedDevice):
    """A device that is called for every step, as a board is."""

    compute = None  # type: ignore[assignment]


def both(**options):
    return EmulatedDevice(**options), CalledDevice(**options)


def same_books(device, called):
    assert device.statistics() == called.statistics()
    assert device.ledger.spent() == called.ledger.spent()
    assert device.statistics().calls > 0


def a_network(seed=1, *, units=20, inputs=3, activation="tanh", dtype=np.float64, outputs=2, **options):
    rng = np.random.default_rng(seed)
    options = {"leak": 0.4, "input_scaling": 0.7, "bias_scaling": 0.2, "connectivity": 0.5} | options
    weights = make_esn(units, inputs, seed=seed, activation=activation, dtype=dtype, **options)
    return weights.with_readout(rng.normal(size=(outputs, units))) if outputs else weights


@settings(max_examples=15, deadline=None)
@given(
    units=st.integers(3, 40),
    inputs=st.integers(1, 9),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    precision=st.sampled_from(LADDER),
    dtype=st.sampled_from([np.float32, np.float64]),
    place=st.sampled_from(["device", "host"]),
    batch=st.sampled_from([None, 1, 3]),
    outputs=st.integers(0, 2),
    seed=st.integers(0, 2**16),
)
def test_runs_and_steps_have_the_bits_and_the_books_of_calls(
    units, inputs, activation, precision, dtype, place, batch, outputs, seed
):
    weights = a_network(seed, units=units, inputs=inputs, activation=activation, dtype=dtype, outputs=outputs)
    u = np.random.default_rng(seed).normal(size=(*([batch] * (batch is not None)), 17, inputs))
    with EmulatedDevice() as device, CalledDevice() as called:
        fast, slow = (
            HybridEsn.from_weights(weights).with_hardware_linear(d, precision=precision, inputs=place)
            for d in (device, called)
        )
        for esn in (fast, slow):
            esn.reset(batch=batch)
        assert np.array_equal(fast.run(u), slow.run(u))
        steps = u.swapaxes(0, -2) if batch is None else u.swapaxes(0, 1)
        for step in steps[:4]:
            assert np.array_equal(fast.step(step), slow.step(step))
        assert np.array_equal(fast.state, slow.state)
        assert np.array_equal(fast.states(u), slow.states(u))
        same_books(device, called)
        assert fast.statistics()[:1] + fast.statistics()[5:] == slow.statistics()[:1] + slow.statistics()[5:]
        for name in ("bytes_in", "bytes_out", "loads", "evictions", "resident"):
            assert getattr(fast.programs, name) == getattr(slow.programs, name)
        assert fast.statistics().host.value > 0


def test_steps_of_another_order_in_memory_and_other_users_do_not_make_the_loop_anew():
    u = np.asfortranarray(np.random.default_rng(0).normal(size=(4, 3)))
    with EmulatedDevice() as device:
        esn = HybridEsn.from_weights(a_network()).with_hardware_linear(device)
        esn.reset(batch=4)
        esn.step(u)
        loop = esn.path.exact.loop
        other = HybridEsn.from_weights(a_network(2)).with_hardware_linear(device)
        other.run(u)
        before = device.statistics().calls
        esn.step(u)
        assert loop is not None
        assert esn.path.exact.loop is loop
        assert device.statistics().calls == before + 1


def test_a_run_is_its_steps_and_breaks_where_it_will(monkeypatch):
    monkeypatch.setattr(network, "STEPS_AT_ONCE", 5)
    u = np.random.default_rng(0).normal(size=(23, 3))
    with EmulatedDevice() as device:
        esn = HybridEsn.from_weights(a_network(outputs=1)).with_hardware_linear(device)
        whole = esn.run(u)
        esn.reset()
        assert np.array_equal(np.concatenate([esn.run(u[:7]), [esn.step(u[7])], esn.run(u[8:])]), whole)
        software = esn.to_software_mode()
        software.reset()
        run = software.run(u)
        software.reset()
        assert np.array_equal([software.step(row).copy() for row in u], run)


@pytest.mark.parametrize("n_slots", [None, 1])
@pytest.mark.parametrize("place", ["device", "host"])
def test_chunks_have_the_bits_and_the_books_of_calls(n_slots, place):
    weights = a_network(3, units=30, outputs=1)
    u = np.random.default_rng(1).normal(size=(12, 3))
    device, called = both(n_slots=n_slots)
    fast, slow = (
        HybridEsn.from_weights(weights).with_chunks(d, chunk_units=11, inputs=place) for d in (device, called)
    )
    whole = HybridEsn.from_weights(weights).with_hardware_linear(EmulatedDevice(), precision="W4A8", inputs=place)
    expected = slow.run(u)
    assert np.array_equal(fast.run(u), expected)
    assert np.array_equal(whole.run(u), expected)
    assert np.array_equal(fast.step(u[0]), slow.step(u[0]))
    assert np.array_equal(fast.run(u), slow.run(u))
    same_books(device, called)
    assert fast.programs.resident == slow.programs.resident
    assert (fast.programs.loads, fast.programs.evictions) == (slow.programs.loads, slow.programs.evictions)


@pytest.mark.parametrize("n_slots", [None, 1])
def test_two_networks_share_a_device(n_slots):
    u = np.random.default_rng(2).normal(size=(9, 3))
    device, called = both(n_slots=n_slots)
    found = {}
    for d in (device, called):
        a, b = (HybridEsn.from_weights(a_network(seed)).with_hardware_linear(d) for seed in (4, 5))
        found[d] = [a.run(u), b.run(u), a.step(u[0]), b.step(u[0]), a.step(u[1]), b.states(u), a.run(u)]
        found[d] += [a.programs.reloads, b.programs.reloads]
    for ours, theirs in zip(found[device], found[called], strict=True):
        assert np.array_equal(ours, theirs)
    same_books(device, called)


def test_what_is_written_to_the_device_is_what_runs_on():
    u = np.random.default_rng(3).normal(size=(6, 3))
    device, called = both()
    nets = [HybridEsn.from_weights(a_network()).with_hardware_linear(d, precision="W4A8") for d in (device, called)]
    before = nets[0].states(u)
    assert np.array_equal(before, nets[1].states(u))
    slot = nets[0].path.blocks[0].product.slots[0]
    weights = device.get_variable("reservoir/weights", slot)
    for d in (device, called):
        d.set_variable("reservoir/weights", np.roll(weights, 1, axis=0), slot)
    after = nets[0].states(u)
    assert np.array_equal(after, nets[1].states(u))
    assert not np.array_equal(after, before)
    same_books(device, called)


def test_a_small_accumulator_saturates_as_it_does_by_calls():
    small = profile("akd1000-published")
    bits = msgspec.structs.replace(small.arithmetic.accumulator_bits, value=9)
    small = msgspec.structs.replace(small, arithmetic=msgspec.structs.replace(small.arithmetic, accumulator_bits=bits))
    u = np.random.default_rng(3).normal(size=(6, 3))
    found = [
        HybridEsn.from_weights(a_network(connectivity=1.0)).with_hardware_linear(d, precision="W4A8").states(u)
        for d in (EmulatedDevice(small), CalledDevice(small), EmulatedDevice())
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize("device", [EmulatedDevice, CalledDevice, None])
def test_numbers_that_are_not_finite_are_refused_before_anything_moves(device):
    esn = HybridEsn.from_weights(a_network())
    if device is not None:
        esn = esn.with_hardware_linear(device())
    u = np.zeros((4, 3))
    esn.run(u + 1)
    before = esn.state
    u[2, 1] = np.nan
    for call in (lambda: esn.run(u), lambda: esn.step(u[2]), lambda: device and esn.states(u)):
        with pytest.raises(SpecError, match="finite"):
            call() or esn.run(u)
    assert np.array_equal(esn.state, before)


def test_feedback_refit_and_loss_run_on_the_same_loop():
    u = np.random.default_rng(6).normal(size=(30, 1)) * 0.3
    fed = a_network(7, inputs=1, outputs=1, feedback=1, feedback_scaling=0.3)
    task = Task(inputs=u[np.newaxis], targets=np.roll(u, 1, axis=0)[np.newaxis], washout=5)
    found = []
    for device in both():
        fast = HybridEsn.from_weights(fed).with_hardware_linear(device)
        fitted = refit(HybridEsn.from_weights(a_network(8, inputs=1, outputs=0)).with_hardware_linear(device), task)
        found.append((fast.run(u), fitted.weights.w_out, loss(fitted, task), device.statistics()))
    for ours, theirs in zip(*found, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("n_slots", [None, 1])
@pytest.mark.parametrize("passthrough", [True, False])
def test_a_conductor_pass_has_the_bits_and_the_books_of_two_calls(n_slots, passthrough):
    weights = a_network(9, units=40, inputs=6, dtype=np.float32, outputs=0)
    lines = 40 + 6 * passthrough
    w_out = np.random.default_rng(1).normal(size=(7, lines)).astype(np.float32)
    kinds = ("identity", "sigmoid", "relu", "tanh", "softmax")
    heads = tuple(
        HeadSpec(name=kind, width=3 if kind == "softmax" else 1, activation=kind, scale=2.0, offset=0.5)
        for kind in kinds
    )
    layout = HeadLayout(name="kinds", heads=heads)
    trained = weights.with_readout(w_out, np.ones(7, np.float32), passthrough=passthrough, heads=layout)
    frames = np.random.default_rng(2).normal(size=(12, 6)).astype(np.float32)
    device, called = both(n_slots=n_slots)
    fast, slow = (ConductorProgram(trained, d, calibration=frames) for d in (device, called))
    for frame in frames:
        ours, theirs = fast.run_conductor(frame), slow.run_conductor(frame)
        assert list(ours) == list(kinds)
        assert np.array_equal(ours.vector, theirs.vector)
    for run in (fast, slow):
        run.reset(batch=4)
    assert np.array_equal(fast.run_conductor(frames[:4]).vector, slow.run_conductor(frames[:4]).vector)
    assert np.array_equal(fast.state, slow.state)
    with pytest.raises(SpecError, match="shape"):
        fast.run_conductor(frames[0])
    with pytest.raises(SpecError, match="finite"):
        fast.run_conductor(frames[:4] * np.nan)
    assert np.array_equal(fast.state, slow.state)
    same_books(device, called)
    software = ConductorProgram(trained)
    alone = [software.run_conductor(frame) for frame in frames]
    states = EsnEngine(trained).run(frames)
    seen = np.concatenate([states, frames], axis=1) if passthrough else states
    outputs = Affine(trained.w_out, trained.out_bias)(seen)
    whole = decoder_of(layout)(outputs)
    assert np.array_equal(whole.vector, [one.vector for one in alone])
    y = outputs.astype(np.float64)
    raised = np.exp(y[:, 4:] - y[:, 4:].max(axis=1, keepdims=True))
    expected = np.column_stack(
        [y[:, 0], expit(y[:, 1]), np.maximum(y[:, 2], 0), np.tanh(y[:, 3]), raised / raised.sum(axis=1, keepdims=True)]
    )
    assert np.allclose(whole.vector, 0.5 + 2 * expected, rtol=1e-14, atol=1e-14)
