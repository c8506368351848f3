"""Experiment 004's linear probe: the last-layer route passes it, every threshold trick fails it."""

import numpy as np
import pytest

from metalforge.substrates.npu import wire
from metalforge.substrates.npu.device import NpuError, with_variable
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Activation, FullyConnected, Program
from metalforge.substrates.npu.registers import (
    PROBE_LINES,
    linear_probe,
    locate,
    maximum_threshold,
    probe_program,
    threshold_address,
    word_to_threshold,
)

TOP, BOTTOM = (1 << 19) - 1, -(1 << 19)
WORDS = [0, 1, 7, (1 << 51) - 1, (1 << 63) - 1, (1 << 64) - 1, 1 << 63, (1 << 64) - 16]


def holding(activation, profile="akd1000-published"):
    device = EmulatedDevice(profile)
    device.load(probe_program(activation))
    return device


def write_all(device, word):
    (processor,) = device.placement().processors
    for unit in range(PROBE_LINES):
        device.bar0_write(threshold_address(processor, unit), word)


def test_the_linear_last_layer_passes_the_probe():
    probe = linear_probe(holding(Activation.LINEAR))
    assert probe.linear
    assert (probe.negative, probe.positive) == (-1.0, 1.0)


def test_the_plain_rectifier_fails_it():
    probe = linear_probe(holding(Activation.BOUNDED_RELU))
    assert not probe.linear
    assert (probe.negative, probe.positive) == (0.0, 1.0)


@pytest.mark.parametrize("through", ["variable", "program"])
def test_approach_a_fails_it_and_silences_the_unit(through):
    device = holding(Activation.BOUNDED_RELU)
    if through == "variable":
        device.set_variable("probe/threshold", maximum_threshold(PROBE_LINES))
    else:  # as the experiment writes it: a program with its thresholds at the maximum, injected as bytes
        silent = with_variable(
            probe_program(Activation.BOUNDED_RELU), "probe/threshold", maximum_threshold(PROBE_LINES)
        )
        device.program_external(wire.to_bytes(silent), 0x0000)
    probe = linear_probe(device)
    assert not probe.linear
    assert (probe.negative, probe.positive) == (0.0, 0.0)


@pytest.mark.parametrize("profile", ["akd1000-published", "akd1000-claimed"])
@pytest.mark.parametrize("word", WORDS)
def test_approach_c_fails_it_with_every_word(word, profile):
    device = holding(Activation.BOUNDED_RELU, profile)
    write_all(device, word)
    probe = linear_probe(device)
    assert not probe.linear
    # ceil(p - T), clipped: the register shifts the corner and nothing else.
    threshold = word_to_threshold(word)
    assert probe.negative == max(0, min(15, -15 - threshold)) / 15
    assert probe.positive == max(0, min(15, 15 - threshold)) / 15


def test_words_are_two_complement_and_saturate():
    assert [word_to_threshold(w) for w in WORDS] == [0, 1, 7, TOP, TOP, -1, BOTTOM, -16]
    with pytest.raises(NpuError, match=r"64-bit.*Got -1"):
        word_to_threshold(-1)


def test_registers_do_nothing_to_a_layer_without_activation():
    device = holding(Activation.LINEAR)
    write_all(device, 5)
    assert linear_probe(device).negative == -1.0


def test_register_writes_go_behind_the_program_and_reload_undoes_them():
    device = holding(Activation.BOUNDED_RELU)
    address = threshold_address(device.placement().processors[0], 3)
    device.bar0_write(address, (1 << 64) - 9)
    assert device.bar0_read(address) == (1 << 64) - 9
    assert device.get_variable("probe/threshold").tolist() == [0, 0, 0, -9] + [0] * 46
    assert not device.verify()
    device.reload()
    assert device.bar0_read(address) == 0
    assert device.verify()


def test_each_program_has_its_own_registers():
    device = EmulatedDevice()
    for slot in ("a", "b"):
        device.load(probe_program(Activation.BOUNDED_RELU), slot)
    device.bar0_write(threshold_address(device.placement("b").processors[0], 0), 1)
    assert device.verify("a")
    assert not device.verify("b")


def test_addresses_that_hold_nothing_are_refused():
    device = holding(Activation.BOUNDED_RELU)
    assert locate(threshold_address(7, 9)) == (7, 9)
    for address, message in (
        (0, "begin at 0x10000"),
        (0x10001, "8 bytes apart"),
        (threshold_address(5, 0), "no program is on processor 5"),
        (threshold_address(0, 50), "of 50 units. Got unit 50"),
    ):
        with pytest.raises(NpuError, match=message):
            device.bar0_write(address, 0)
    with pytest.raises(NpuError, match=r"0 .. 2047. Got unit 2048"):
        threshold_address(0, 2048)


def test_why_the_probe_has_two_rails():
    """With a zero point the identity's potentials are positive: a rectifier passes them, and a probe says nothing."""
    layer = FullyConnected(name="eye", weights=np.eye(4, dtype=np.int8), activation=Activation.BOUNDED_RELU)
    device = EmulatedDevice()
    device.load(Program(name="zero-point", layers=(layer,)))
    minus_one = np.full(4, 8 - 7, np.uint8)
    decoded = (device.infer(minus_one).astype(int) - 8) / 7
    assert decoded.tolist() == [-1.0] * 4
