"""Faults on purpose: drivers see clean errors, silent damage shows in the fingerprint, reload mends."""

import msgspec
import numpy as np
import pytest

from metalforge.core import MetalforgeError
from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError, NpuError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.faults import BitFlip, FaultPlan, PartialUpdate, Timeout, Vanish, flip_bits
from metalforge.substrates.npu.program import FullyConnected, Program, weight_limits

SEED = 22


def program(bits=4):
    low, high = weight_limits(bits)
    weights = np.random.default_rng(SEED).integers(low, high + 1, (30, 10)).astype(np.int8)
    return Program(name="p", layers=(FullyConnected(name="res", weights=weights, weight_bits=bits),))


def opened(*faults, seed=0):
    device = EmulatedDevice(faults=FaultPlan(faults=faults, seed=seed))
    device.load(program())
    return device


X = np.random.default_rng(SEED).integers(0, 16, 30).astype(np.uint8)
GOOD = X.astype(int) @ program().layers[0].weights.astype(int)


def test_a_time_out_is_an_error_of_one_call():
    device = opened(Timeout(at=2))
    assert np.array_equal(device.infer(X), GOOD)
    with pytest.raises(DeviceTimeoutError, match=r"call 2 (.|\n)*hint: try again"):
        device.infer(X)
    assert np.array_equal(device.infer(X), GOOD)
    assert device.verify()
    done = device.statistics()
    assert (done.calls, done.failures) == (2, 1)


def test_refused_inputs_are_no_calls():
    device = opened(Timeout(at=1))
    with pytest.raises(MetalforgeError, match="uint8"):
        device.infer(X.astype(float))
    with pytest.raises(DeviceTimeoutError):
        device.infer(X)


def test_a_vanished_device_answers_nothing_until_it_is_reset_and_reloaded():
    device = opened(Vanish(at=2))
    device.infer(X)
    for attempt in (
        lambda: device.infer(X),
        lambda: device.infer_linear(X),
        lambda: device.load(program()),
        lambda: device.set_variable("res/weights", program().layers[0].weights),
        lambda: device.get_variable("res/weights"),
        lambda: device.fingerprint(),
        lambda: device.reload(),
        lambda: device.bar0_write(0x10000, 0),
    ):
        with pytest.raises(DeviceGoneError, match="hint: reset"):
            attempt()
    device.reset()
    assert device.slots() == ()
    with pytest.raises(NpuError, match=r"reset(.|\n)*reload"):
        device.infer(X)
    handle = device.reload()
    assert handle.fingerprint == program().fingerprint() == device.fingerprint()
    assert np.array_equal(device.infer(X), GOOD)


def test_bit_flips_are_silent_show_in_the_fingerprint_and_are_mended_by_reload():
    device = opened(BitFlip(at=2, bits=3), seed=5)
    good = device.fingerprint()
    device.infer(X)
    assert device.verify()
    device.infer(np.zeros(30, np.uint8))
    assert not device.verify()
    assert device.fingerprint() != good
    damaged = device.get_variable("res/weights") != program().layers[0].weights
    assert damaged.sum() == 3
    assert not np.array_equal(device.infer(np.full(30, 15, np.uint8)), 15 * program().layers[0].weights.sum(0))
    assert device.reload().fingerprint == good == device.fingerprint()
    assert np.array_equal(device.infer(X), GOOD)


def test_an_update_after_a_flip_mends_only_what_it_writes():
    device = opened(BitFlip(at=1))
    device.infer(X)
    device.set_variable("res/threshold", np.ones(10, np.int32))
    assert not device.verify()
    device.set_variable("res/weights", program().layers[0].weights)
    assert device.verify()


def test_the_same_seed_strikes_the_same_bits_and_another_does_not():
    def struck(seed):
        device = opened(BitFlip(at=1), seed=seed)
        device.infer(X)
        return device.fingerprint()

    assert struck(1) == struck(1)
    assert len({struck(seed) for seed in range(8)}) > 4


def test_flips_strike_one_of_several_programs():
    device = EmulatedDevice(faults=FaultPlan(faults=(BitFlip(at=1),)))
    for slot in "abc":
        device.load(program(), slot)
    device.infer(X, "a")
    assert sorted(device.verify(slot) for slot in "abc") == [False, True, True]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_every_flip_gives_a_legal_and_different_weight(bits):
    before = program(bits)
    low, high = weight_limits(bits)
    after = flip_bits(before, 300, np.random.default_rng(SEED)).layers[0].weights
    assert after.min() >= low
    assert after.max() <= high
    assert (after != before.layers[0].weights).all()
    if bits == 4:
        changes = np.abs(after.astype(int) - before.layers[0].weights)
        assert {1, 2, 4} <= set(changes.ravel().tolist())


def test_a_broken_update_is_neither_old_nor_new_and_reload_brings_back_the_old():
    device = opened(PartialUpdate(at=2, fraction=0.25))
    middle = np.ones((30, 10), np.int8)
    device.set_variable("res/weights", middle)
    known = device.fingerprint()
    with pytest.raises(DeviceTimeoutError, match=r"75 of 300(.|\n)*reload"):
        device.set_variable("res/weights", np.full((30, 10), 7, np.int8))
    assert not device.verify()
    held = device.get_variable("res/weights").ravel()
    assert (held[:75] == 7).all()
    assert (held[75:] == 1).all()
    assert device.reload().fingerprint == known
    assert np.array_equal(device.get_variable("res/weights"), middle)
    device.set_variable("res/weights", np.full((30, 10), 7, np.int8))  # the third attempt is not in the plan
    assert device.verify()
    assert device.statistics().weight_updates == 2


def test_plans_are_strict_data():
    plan = FaultPlan(faults=(Timeout(at=1), PartialUpdate(at=3, fraction=0.1)), seed=4)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"faults": [{"kind": "timeout", "att": 1}]}', type=FaultPlan)
    for wrong in (lambda: Timeout(at=0), lambda: BitFlip(at=1, bits=0), lambda: PartialUpdate(at=1, fraction=1.0)):
        with pytest.raises(ValueError, match="Got"):
            wrong()
