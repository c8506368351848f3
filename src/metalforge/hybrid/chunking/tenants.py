"""Several programs on one device: resident while they fit, evicted and loaded again by turns when they do not.

A step calls every program once, and the order does not matter, for the results are gathered afterwards. So a caller
goes through them forwards and backwards by turns, and the program that was used longest ago is evicted. Of n equal
programs of which c fit, each step then finds the last c of the step before still there and loads n - c: no order can
do with less. (Always forwards, the same rule would evict what is wanted next and load all n.)

The host keeps each program as it was written last, so an evicted one comes back with the variables that were set.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import UnknownNameError
from metalforge.hybrid.running.device_linear import SlottedDevice
from metalforge.substrates.npu.device import Handle, NpuDevice, Outputs, ResourceError, image_bytes, with_variable
from metalforge.substrates.npu.mesh import Placement, plan
from metalforge.substrates.npu.program import Program
from metalforge.substrates.profiles import DeviceProfile

__all__ = ["PaperDevice", "Room", "Tenants", "room_of"]


class Room(Protocol):
    """What tenants need of a device: slots that programs are put in and taken from."""

    def load(self, program: Program, slot: str) -> object:
        """Put a program in a slot; raises `ResourceError` where it does not fit beside the others."""
        ...

    def unload(self, slot: str) -> None:
        """Empty a slot."""
        ...

    def infer(self, x: NDArray[np.uint8], slot: str) -> Outputs:
        """Return what the program in a slot gives."""
        ...

    def set_variable(self, name: str, values: NDArray[Any], slot: str) -> None:
        """Replace a variable of the program in a slot."""
        ...


class Tenants:
    """Programs by name that share a device. `loads`, `reloads` and `evictions` count since they were made.

    The first load of a program is not a reload. `reloaded_bytes` are what reloads sent over the link.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._programs: dict[str, Program] = {}
        self._resident: dict[str, None] = {}  # oldest use first
        self._seen: set[str] = set()
        self.loads = self.reloads = self.evictions = self.reloaded_bytes = 0

    def add(self, name: str, program: Program) -> None:
        """Take a program in; it goes to the device at its first call, or now where there is room."""
        if name in self._programs:
            self._drop(name)
        self._programs[name] = program
        if not self._fits(name):
            return
        self._entered(name)

    @property
    def resident(self) -> tuple[str, ...]:
        """The programs on the device now; the one that was used longest ago comes first."""
        return tuple(self._resident)

    def infer(self, name: str, rows: NDArray[np.uint8]) -> Outputs:
        """Return what a program gives for chip inputs (rows, lines); loads it first where it is not there."""
        self.bring(name)
        return self._room.infer(rows, name)

    def bring(self, name: str) -> None:
        """Make a program resident, in place of those used longest ago; raises `ResourceError` where it never fits."""
        if name not in self._programs:
            raise UnknownNameError("program among these tenants", name, self._programs)
        if name in self._resident:
            del self._resident[name]  # it was used last
            self._resident[name] = None
            return
        while not self._fits(name):
            if not self._resident:
                self._room.load(self._programs[name], name)  # alone and still too large: its own error says by how much
            self._evict(next(iter(self._resident)))
        self._entered(name)

    def program(self, name: str) -> Program:
        """Return a program as the host wrote it last."""
        if name not in self._programs:
            raise UnknownNameError("program among these tenants", name, self._programs)
        return self._programs[name]

    def set_variable(self, name: str, variable: str, values: NDArray[Any]) -> None:
        """Replace a variable of one program, resident or not; the others are not touched."""
        changed = with_variable(self.program(name), variable, values)  # refuses what is wrong before anything is sent
        if name in self._resident:
            self._room.set_variable(variable, values, name)
        self._programs[name] = changed

    def close(self) -> None:
        """Take these programs off the device, which stays open for others."""
        for name in tuple(self._resident):
            self._drop(name)
        self._programs.clear()

    def _fits(self, name: str) -> bool:
        try:
            self._room.load(self._programs[name], name)
        except ResourceError:
            return False
        return True

    def _entered(self, name: str) -> None:
        self._resident[name] = None
        self.loads += 1
        if name in self._seen:
            self.reloads += 1
            self.reloaded_bytes += image_bytes(self._programs[name])
        self._seen.add(name)

    def _evict(self, name: str) -> None:
        self._drop(name)
        self.evictions += 1

    def _drop(self, name: str) -> None:
        if name in self._resident:
            self._room.unload(name)
            del self._resident[name]


class PaperDevice:
    """A `Room` without a chip: it knows what fits where, so that a plan can count evictions before they happen."""

    def __init__(self, profile: DeviceProfile) -> None:
        self.profile = profile
        self.placements: dict[str, Placement] = {}

    def load(self, program: Program, slot: str) -> None:
        """Put a program in a slot, on paper."""
        others = [placement for name, placement in self.placements.items() if name != slot]
        self.placements[slot] = plan(program, self.profile, beside=others)

    def unload(self, slot: str) -> None:
        """Empty a slot."""
        self.placements.pop(slot, None)

    def infer(self, x: NDArray[np.uint8], slot: str) -> Outputs:
        """Refuse: paper does not compute."""
        raise ResourceError(f"slot `{slot}` is on paper: a plan places programs and runs none")

    def set_variable(self, name: str, values: NDArray[Any], slot: str) -> None:
        """Do nothing: what a program holds does not change where it fits."""


class _OneProgram:
    """A device that holds one program at a time, as a `Room` of one slot."""

    def __init__(self, device: NpuDevice) -> None:
        self._device, self._slot = device, ""

    def load(self, program: Program, slot: str) -> Handle:
        if self._slot not in ("", slot):
            raise ResourceError(f"the device holds one program, and `{self._slot}` is there")
        handle = self._device.load(program)
        self._slot = slot
        return handle

    def unload(self, slot: str) -> None:
        if slot == self._slot:
            self._device.unload()
            self._slot = ""

    def infer(self, x: NDArray[np.uint8], slot: str) -> Outputs:
        return self._device.infer(x)

    def set_variable(self, name: str, values: NDArray[Any], slot: str) -> None:
        self._device.set_variable(name, values)


def room_of(device: NpuDevice) -> Room:
    """Return a device as a room: its own slots, or one slot where it holds a single program."""
    any_device: object = device  # mypy holds that no class can be both; the emulator's optional `slot` makes it so
    return any_device if isinstance(any_device, SlottedDevice) else _OneProgram(device)
