"""Several programs on one device: each has its place, and none feels the others."""

import numpy as np
import pytest

from metalforge.substrates.npu.conformance import random_inputs, random_program
from metalforge.substrates.npu.device import NpuError, ResourceError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Activation, FullyConnected, Head, Program

SEED = 21


def chain(name, layers=1, width=8, heads=0):
    made = tuple(
        FullyConnected(name=f"l{i}", weights=np.ones((width, width), np.int8), activation=Activation.BOUNDED_RELU)
        for i in range(layers)
    )
    return Program(name=name, layers=made, heads=tuple(Head(name=f"h{i}", start=i, width=1) for i in range(heads)))


def test_programs_have_processors_of_their_own():
    device = EmulatedDevice()
    for name, layers in (("a", 3), ("b", 1), ("c", 2)):
        device.load(chain(name, layers), name)
    held = [p for name in "abc" for p in device.placement(name).processors]
    assert device.slots() == ("a", "b", "c")
    assert len(held) == len(set(held)) == 6


def test_nothing_done_to_one_program_shows_in_another():
    device, alone = EmulatedDevice(), EmulatedDevice()
    programs = {f"s{i}": random_program(SEED, i) for i in range(4)}
    inputs = {slot: random_inputs(p, SEED, i) for i, (slot, p) in enumerate(programs.items())}
    for slot, program in programs.items():
        device.load(program, slot)
    before = {slot: (device.fingerprint(slot), device.infer(inputs[slot], slot).tobytes()) for slot in programs}
    for slot, program in programs.items():
        alone.load(program)
        assert before[slot] == (program.fingerprint(), alone.infer(inputs[slot]).tobytes())

    first = programs["s0"].layers[0]
    device.set_variable(f"{first.name}/weights", np.zeros_like(first.weights), "s0")
    device.load(chain("other", 2), "s1")
    device.unload("s2")
    assert device.fingerprint("s0") != before["s0"][0]
    assert (device.fingerprint("s3"), device.infer(inputs["s3"], "s3").tobytes()) == before["s3"]


def test_the_same_program_twice_is_two_programs():
    device, program = EmulatedDevice(), chain("a")
    device.load(program, "x")
    device.load(program, "y")
    device.set_variable("l0/weights", np.zeros((8, 8), np.int8), "x")
    assert device.fingerprint("y") == program.fingerprint()
    assert device.get_variable("l0/weights", "y").all()


def test_a_full_device_refuses_names_who_is_there_and_takes_more_after_eviction():
    device = EmulatedDevice()
    device.load(chain("long", 20), "long")
    device.load(chain("pair", 2), "pair")
    with pytest.raises(ResourceError, match=r"1 more (.|\n)*unload `long` or `pair`"):
        device.load(chain("late"), "late")
    assert device.slots() == ("long", "pair")
    device.unload("long")
    device.load(chain("late"), "late")
    assert device.slots() == ("pair", "late")


def test_a_program_that_does_not_fit_leaves_the_one_in_its_slot():
    device = EmulatedDevice()
    device.load(chain("a"))
    with pytest.raises(ResourceError):
        device.load(chain("b", 23))
    assert device.fingerprint() == chain("a").fingerprint()
    device.load(chain("c", 22))  # its own slot counts as free
    assert len(device.placement().rows) == 22


def test_slots_that_are_not_there_are_named():
    device = EmulatedDevice()
    device.load(chain("a"), "a")
    with pytest.raises(NpuError, match=r"slot `b`.*`a`"):
        device.infer(np.zeros(8, np.uint8), "b")


def test_claimed_accounting_fills_a_thousand_nps_and_finds_gaps():
    device = EmulatedDevice("akd1000-claimed")
    for i in range(5):
        device.load(chain(f"p{i}"), f"p{i}")  # 5 x 179 = 895
    assert [device.placement(f"p{i}").span for i in range(5)] == [range(179 * i, 179 * (i + 1)) for i in range(5)]
    with pytest.raises(ResourceError, match=r"179 NPs .*74 more .*105 of 1000"):
        device.load(chain("p5"), "p5")
    device.unload("p1")
    device.unload("p3")
    # 179 + 105 + 179 are free, in pieces of 179: a program with a head does not fit one.
    with pytest.raises(ResourceError, match=r"191 NPs .*12 more .*463 of 1000"):
        device.load(chain("headed", heads=1), "headed")
    device.load(chain("p5"), "p5")
    assert device.placement("p5").span == range(179, 358)
