"""Several users on one device: slots of their own, turns where there is no room, and no program lost for good."""

import numpy as np
import pytest

from metalforge.core.errors import UnknownNameError
from metalforge.substrates.npu.device import NpuDevice, NpuError, ResourceError, image_bytes, with_variable
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Activation, FullyConnected, Program
from metalforge.substrates.npu.residency import DevicePrograms

X = np.ones((2, 20), np.uint8)


def program(name, units=10, weight=1):
    layer = FullyConnected(name=name, weights=np.full((20, units), weight, np.int8))
    return Program(name=name, layers=(layer,))


def test_what_was_used_longest_ago_is_evicted():
    programs = DevicePrograms(EmulatedDevice("akd1000-claimed"), by_turns=True)  # five programs at a time
    for name in "abcde":
        programs.add(name, program(name))
    assert (programs.loads, programs.reloads) == (5, 0)
    programs.bring("a")
    programs.add("f", program("f"))  # full: it waits for its first call
    assert "f" not in programs.resident
    programs.bring("f")
    assert programs.resident == ("c", "d", "e", "a", "f")
    programs.bring("b")
    assert (programs.loads, programs.reloads, programs.evictions) == (7, 1, 2)
    assert programs.reloaded_bytes == image_bytes(program("b"))
    with pytest.raises(UnknownNameError):
        programs.bring("z")


def test_a_program_that_never_fits_says_by_how_much():
    programs = DevicePrograms(EmulatedDevice(), by_turns=True)
    layers = (
        FullyConnected(name=f"l{i}", weights=np.ones((4, 4), np.int8), activation=Activation.BOUNDED_RELU)
        for i in range(23)
    )
    programs.add("deep", Program(name="deep", layers=tuple(layers)))
    with pytest.raises(ResourceError, match="23 layers"):
        programs.bring("deep")


@pytest.mark.parametrize("by_turns", [True, False])
def test_a_device_of_one_slot_takes_turns(by_turns):
    programs = DevicePrograms(EmulatedDevice(n_slots=1), by_turns=by_turns)
    programs.add("a", program("a"))
    programs.add("b", program("b", units=7))
    assert programs.infer("b", X).shape == (2, 7)
    assert programs.infer("a", X).shape == (2, 10)
    assert programs.update("a", with_variable(program("a"), "a/weights", np.full((20, 10), 2, np.int8))) == 200
    assert (programs.infer("a", X) == 40).all()
    assert programs.infer("b", X).max() == 20
    assert (programs.infer("a", X) == 40).all()
    assert (programs.loads, programs.reloads, programs.evictions) == (5, 3, 4)
    assert (programs.get_variable("b", "b/weights") == 1).all()  # as it will be written


def test_own_programs_that_do_not_fit_side_by_side_are_refused_unless_they_take_turns():
    device = EmulatedDevice("akd1000-claimed")
    programs = DevicePrograms(device)
    for name in "abcde":
        programs.add(name, program(name))
    with pytest.raises(ResourceError):
        programs.add("f", program("f"))
    assert programs.resident == device.slots() == tuple("abcde")
    programs.close()
    assert device.slots() == ()


@pytest.mark.parametrize("n_slots", [1, 2, None])
def test_users_share_a_device_without_meeting(n_slots):
    device = EmulatedDevice("akd1000-claimed", n_slots=n_slots)
    users = [DevicePrograms(device) for _ in range(7)]  # more than fit
    slots = [user.add("m", program("m", weight=i)) for i, user in enumerate(users)]
    assert len(set(slots)) == 7
    assert slots[:2] == ["m", "m#2"]
    for _ in range(2):
        for i, (user, slot) in enumerate(zip(users, slots, strict=True)):
            assert (user.infer(slot, X) == 20 * i).all()
    users[0].close()
    for i in range(1, 7):
        assert (users[i].infer(slots[i], X) == 20 * i).all()
    with pytest.raises(UnknownNameError):
        users[1].infer(slots[2], X)  # another's


def test_device_time_and_energy_of_users_add_up_to_the_devices():
    device = EmulatedDevice("akd1000-claimed", n_slots=2)
    users = [DevicePrograms(device) for _ in range(3)]
    slots = [user.add("m", program("m")) for user in users]
    for calls, (user, slot) in enumerate(zip(users, slots, strict=True), start=1):
        for _ in range(calls):
            user.infer(slot, X)
    users[0].update(slots[0], program("m", weight=2))
    users[0].close()
    again = DevicePrograms(device)
    assert again.add("m", program("m")) == slots[0]  # the slot of the one that went
    again.infer(slots[0], X)
    spent = [user.spent() for user in (*users, again)]
    whole = device.statistics()
    assert sum(one.busy.value for one in spent) == pytest.approx(whole.busy.value, rel=1e-12)
    assert sum(one.energy.value for one in spent) == pytest.approx(whole.energy.value, rel=1e-12)
    assert all(one.busy.value > 0 for one in spent)
    assert DevicePrograms(device).spent().busy.value == 0


def test_a_reset_through_one_user_brings_everybody_back_when_called():
    device = EmulatedDevice()
    one, two = DevicePrograms(device), DevicePrograms(device)
    a, b = one.add("m", program("m", weight=1)), two.add("m", program("m", weight=2))
    one.reset_device()
    assert device.slots() == ()
    assert (two.infer(b, X) == 40).all()
    assert (one.infer(a, X) == 20).all()


def test_what_was_loaded_by_hand_is_left_alone():
    device = EmulatedDevice(n_slots=1)
    device.load(program("mine"), "m")
    programs = DevicePrograms(device)
    with pytest.raises(ResourceError, match="holds 1 program: `m`"):
        programs.add("m", program("m"))
    assert device.slots() == ("m",)
    device.unload("m")
    assert programs.add("m", program("m")) == "m"


def test_slots_are_part_of_the_protocol():
    device = EmulatedDevice(n_slots=2)
    assert isinstance(device, NpuDevice)
    device.load(program("a"), "a")
    device.load(program("b"), "b")
    with pytest.raises(ResourceError, match="holds 2 programs"):
        device.load(program("c"), "c")
    device.load(program("c"), "b")  # in place of the one there
    with pytest.raises(NpuError, match="slot"):
        EmulatedDevice(n_slots=0)
