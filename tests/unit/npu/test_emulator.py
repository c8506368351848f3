"""The emulated device: exact integers, the protocol's manners, virtual time, one caller at a time."""

import threading

import msgspec
import numpy as np
import pytest

from metalforge.core import Modelled, UnknownNameError
from metalforge.substrates.npu import wire
from metalforge.substrates.npu.conformance import random_inputs, random_program
from metalforge.substrates.npu.costs import cost, update_cost
from metalforge.substrates.npu.device import NpuDevice, NpuError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Activation, FullyConnected, Program, ProgramError
from metalforge.substrates.profiles import PROFILES

SEED = 20


def reference(program, x, bits=20, grid=16):
    """The chip in Python's own integers."""
    rows = x.tolist()
    for layer in program.layers:
        weights = layer.weights.T.tolist()
        top = (1 << (bits - 1)) - 1
        rows = [
            [max(-top - 1, min(top, sum(a * b for a, b in zip(row, w, strict=True)))) for w in weights] for row in rows
        ]
        if layer.activation is Activation.BOUNDED_RELU:
            limit = (1 << layer.activation_bits) - 1
            shift = 4 - layer.activation_bits
            steps = [int(float(s) * grid) << shift for s in layer.act_step]
            rows = [
                [
                    max(0, min(limit, -((-grid * (p - t)) // s)))
                    for p, t, s in zip(row, layer.threshold.tolist(), steps, strict=True)
                ]
                for row in rows
            ]
    return rows


def linear(rng, inputs=20, units=6, name="res"):
    weights = rng.integers(-7, 8, (inputs, units)).astype(np.int8)
    return Program(name="p", layers=(FullyConnected(name=name, weights=weights),))


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.mark.parametrize("case", range(40))
def test_random_programs_equal_plain_integers(case):
    program = random_program(SEED, case)
    x = random_inputs(program, SEED, case)
    with EmulatedDevice() as device:
        device.load(program)
        y = device.infer(x)
    assert y.tolist() == reference(program, x)
    assert y.dtype == (np.int32 if program.layers[-1].activation is Activation.LINEAR else np.uint8)


def test_saturation_is_reached_by_the_cases():
    program = random_program(SEED, 7)
    assert program.inputs == 6000
    raw = 15 * program.layers[0].weights.astype(int).sum(0)
    assert raw.min() < -(1 << 19)
    assert raw.max() > (1 << 19)


def test_a_single_vector_is_a_batch_without_its_first_axis(rng):
    device, program = EmulatedDevice(), linear(rng)
    device.load(program)
    x = rng.integers(0, 16, (7, 20)).astype(np.uint8)
    batch = device.infer(x)
    assert batch.shape == (7, 6)
    assert all(np.array_equal(device.infer(row), out) for row, out in zip(x, batch, strict=True))
    assert np.array_equal(device.infer_linear(x), x.astype(int) @ program.layers[0].weights.astype(int))


def test_it_keeps_the_protocol():
    assert isinstance(EmulatedDevice(), NpuDevice)


def test_linear_inference_of_a_rectifying_program_is_refused_and_says_what_to_do(rng):
    device = EmulatedDevice()
    layer = FullyConnected(name="res", weights=np.ones((4, 2), np.int8), activation=Activation.BOUNDED_RELU)
    device.load(Program(name="p", layers=(layer,)))
    with pytest.raises(NpuError, match=r"`res`.*ReLU(.|\n)*hint: .*last"):
        device.infer_linear(np.zeros(4, np.uint8))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 20)), "inputs must be uint8. Got float64"),
        (np.full((1, 20), np.nan), "inputs must be uint8. Got float64"),
        (np.zeros((1, 20), np.int8), "Got int8"),
        (np.full((1, 20), 16, np.uint8), r"lie in 0 .. 15. Got 16"),
        (np.zeros((1, 19), np.uint8), r"shape \(batch, 20\). Got \(1, 19\)"),
        (np.zeros((0, 20), np.uint8), r"Got \(0, 20\)"),
        ([1, 2], "Got list"),
    ],
)
def test_inputs_outside_the_chips_are_refused_and_not_charged(rng, x, message):
    device = EmulatedDevice()
    device.load(linear(rng))
    with pytest.raises(ProgramError, match=message):
        device.infer(x)
    assert device.statistics().calls == 0


def test_variables_come_and_go_as_copies(rng):
    device, program = EmulatedDevice(), linear(rng)
    device.load(program)
    x = rng.integers(0, 16, 20).astype(np.uint8)
    before = device.infer(x)
    program.layers[0].weights[:] = 0  # the caller's array is not the chip's
    device.get_variable("res/weights")[:] = 0
    assert np.array_equal(device.infer(x), before)
    new = rng.integers(-7, 8, (20, 6)).astype(np.int8)
    new_copy = new.copy()
    device.set_variable("res/weights", np.asfortranarray(new))  # any memory order
    device.set_variable("res/weights", new)
    new[:] = 0
    assert np.array_equal(device.get_variable("res/weights"), new_copy)
    assert np.array_equal(device.infer(x), x.astype(int) @ new_copy.astype(int))


@pytest.mark.parametrize(
    ("name", "values", "error", "message"),
    [
        ("res/weights", np.full((20, 6), 8, np.int8), ProgramError, r"lie in -7 .. 7. Got 8"),
        ("res/weights", np.full((20, 6), -8, np.int8), ProgramError, r"Got -8"),
        (
            "res/weights",
            np.zeros((6, 20), np.int8),
            ProgramError,
            r"int8 of shape \(20, 6\). Got int8 of shape \(6, 20\)",
        ),
        ("res/weights", np.zeros((20, 6)), ProgramError, "Got float64"),
        ("res/threshold", np.zeros(6, np.int64), ProgramError, "Got int64"),
        ("res/threshold", np.full(6, 1 << 19, np.int32), ProgramError, "20-bit"),
        ("res/threshold", np.zeros(0, np.int32), ProgramError, r"Got int32 of shape \(0,\)"),
        ("res/act_step", np.full(6, np.nan, np.float32), ProgramError, "finite"),
        ("res/act_step", np.full(6, 1 / 17, np.float32), ProgramError, "1/16"),
        ("res/weight", np.zeros(6), UnknownNameError, "did you mean `weights`"),
        ("ret/weights", np.zeros(6), ProgramError, "no layer `ret`; there are res"),
        ("weights", np.zeros(6), ProgramError, "such as `res/weights`. Got `weights`"),
    ],
)
def test_wrong_variables_are_refused_and_change_nothing(rng, name, values, error, message):
    device = EmulatedDevice()
    device.load(linear(rng))
    fingerprint = device.fingerprint()
    with pytest.raises(error, match=message):
        device.set_variable(name, values)
    assert device.fingerprint() == fingerprint
    assert device.statistics().weight_updates == 0


def test_time_and_energy_are_the_models_and_never_the_walls(rng):
    device, program = EmulatedDevice(), linear(rng)
    device.load(program)
    loaded = device.statistics().busy.value
    for batch in (1, 8, 8):
        device.infer(np.zeros((batch, 20), np.uint8))
    device.set_variable("res/weights", np.ones((20, 6), np.int8))
    wanted = [cost(program, batch) for batch in (1, 8, 8)] + [update_cost(120)]
    done = device.statistics()
    assert (done.calls, done.inferences, done.weight_updates, done.loads) == (3, 17, 1, 1)
    # Four-bit weights are packed for loading; the update counts the array that was handed over.
    assert done.bytes_pushed == 20 * 6 // 2 + 8 * 6 + 120
    assert isinstance(done.busy, Modelled)
    assert done.busy.value - loaded == pytest.approx(sum(c.latency.value for c in wanted), rel=1e-12)
    assert device.ledger.spent() == (done.busy.value, done.energy.value)
    assert done.energy.value == pytest.approx(0.918 * done.busy.value)
    assert done.busy.profile == done.energy.profile == "akd1000-published"


def test_a_call_costs_what_the_profile_claims(rng):
    device, program = EmulatedDevice("akd1000-claimed"), linear(rng)
    device.load(program)
    before = device.statistics()
    device.infer(np.zeros(20, np.uint8))
    assert (device.statistics().energy - before.energy).value == pytest.approx(1.4e-6)
    assert (device.statistics().busy - before.busy).value == pytest.approx(54e-6)


def test_runs_repeat_to_the_last_count():
    def run():
        device = EmulatedDevice()
        digest = []
        for case in range(10):
            program = random_program(SEED, case)
            device.load(program)
            digest.append(device.infer(random_inputs(program, SEED, case)).tobytes())
        return digest, device.statistics()

    assert run() == run()


def test_threads_get_their_own_answers_and_every_call_is_counted(rng):
    device, program = EmulatedDevice(), linear(rng, 64, 32)
    device.load(program)
    inputs = rng.integers(0, 16, (4, 25, 64)).astype(np.uint8)
    weights = program.layers[0].weights.astype(int)
    right = []

    def work(rows):
        right.extend(np.array_equal(device.infer_linear(row), row.astype(int) @ weights) for row in rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 100
    assert device.statistics().calls == 100
    single = EmulatedDevice()
    single.load(program)
    for _ in range(100):
        single.infer(inputs[0, 0])
    assert device.statistics().busy == single.statistics().busy


def test_programs_come_as_bytes_too(rng):
    device, program = EmulatedDevice(), linear(rng)
    device.program_external(wire.to_bytes(program))
    assert device.slots() == ("main",)
    with pytest.raises(ProgramError):
        device.program_external(b"not a program")
    assert device.fingerprint() == program.fingerprint()  # what was there is still there


def test_a_closed_device_and_an_empty_one_say_so(rng):
    with EmulatedDevice() as device:
        with pytest.raises(NpuError, match=r"slot `main`.*none"):
            device.infer(np.zeros(20, np.uint8))
        device.unload()  # nothing there: nothing happens
        device.load(linear(rng))
        device.unload()
        with pytest.raises(NpuError, match="no program"):
            device.get_variable("res/weights")
    with pytest.raises(NpuError, match="closed"):
        device.load(linear(rng))


def other_chip(bits, grid):
    published = PROFILES["akd1000-published"]
    constants = msgspec.structs.replace(
        published.arithmetic,
        accumulator_bits=msgspec.structs.replace(published.arithmetic.accumulator_bits, value=bits),
        steps_per_unit=msgspec.structs.replace(published.arithmetic.steps_per_unit, value=grid),
    )
    return msgspec.structs.replace(published, name="other", arithmetic=constants)


@pytest.mark.parametrize(("bits", "grid"), [(12, 16), (24, 16), (20, 4), (16, 1)])
def test_a_chip_with_other_constants_computes_with_them(bits, grid):
    device = EmulatedDevice(other_chip(bits, grid))
    usual = EmulatedDevice()
    differ = 0
    for case in range(24):
        program = random_program(SEED, case)
        if any(w.activation is Activation.BOUNDED_RELU and w.act_step.min() < 1 / grid for w in program.layers):
            with pytest.raises(ProgramError, match="at least"):
                device.load(program)
            continue
        x = random_inputs(program, SEED, case)
        device.load(program)
        usual.load(program)
        y = device.infer(x)
        assert y.tolist() == reference(program, x, bits, grid)
        differ += not np.array_equal(y, usual.infer(x))
    assert differ > 0
