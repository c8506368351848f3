"""A matrix on a device: real vectors in, real vectors out, by way of chip integers.

y = W x, with W on the NPU as one or more programs (`compile_linear`). A device that holds several programs at once (the
emulator) keeps each in a slot of its own; one that holds a single program is loaded again whenever the turn changes,
and its statistics show what that costs.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import Handle, NpuDevice, Outputs
from metalforge.substrates.npu.program import Program

__all__ = ["DeviceLinear", "DevicePrograms", "SlottedDevice"]


@runtime_checkable
class SlottedDevice(Protocol):
    """A device that holds several programs side by side."""

    def load(self, program: Program, slot: str) -> Handle:
        """Put a program in a slot."""
        ...

    def infer(self, x: NDArray[np.uint8], slot: str) -> Outputs:
        """Return what the program in a slot gives."""
        ...

    def set_variable(self, name: str, values: NDArray[Any], slot: str) -> None:
        """Replace a variable of the program in a slot."""
        ...

    def unload(self, slot: str) -> None:
        """Take the program in a slot off the device."""
        ...

    def slots(self) -> tuple[str, ...]:
        """Return the slots that hold a program."""
        ...


class DevicePrograms:
    """The programs that one user keeps on one device, by name: in slots, or one at a time by turns."""

    def __init__(self, device: NpuDevice) -> None:
        self.device = device
        any_device: object = device  # mypy holds that no class can be both; the emulator's optional `slot` makes it so
        self._slotted = any_device if isinstance(any_device, SlottedDevice) else None
        self._programs: dict[str, Program] = {}
        self._resident: str | None = None

    def load(self, name: str, program: Program) -> None:
        """Take a program in under a name; what does not fit is refused now rather than at its first call."""
        if self._slotted is not None:
            self._slotted.load(program, name)
        else:
            self.device.load(program)
            self._resident = name
        self._programs[name] = program

    def reload(self) -> None:
        """Put every program on the device again, after it was reset."""
        for name, program in self._programs.items():
            self.load(name, program)

    def infer(self, name: str, rows: NDArray[np.uint8]) -> Outputs:
        """Return what a program gives for chip inputs (rows, lines)."""
        if self._slotted is not None:
            return self._slotted.infer(rows, name)
        if self._resident != name:
            self.device.load(self._programs[name])
            self._resident = name
        return self.device.infer(rows)

    def update(self, name: str, program: Program) -> int:
        """Replace the weights of a program of one layer; return the bytes that went to the device."""
        layer, old = program.layers[0], self._programs[name].layers[0]
        if np.array_equal(layer.weights, old.weights):
            return 0
        if self._slotted is not None:
            self._slotted.set_variable(f"{old.name}/weights", layer.weights, name)
        elif self._resident == name:
            self.device.set_variable(f"{old.name}/weights", layer.weights)
        self._programs[name] = program
        return layer.weights.nbytes

    def close(self) -> None:
        """Take these programs off the device; the device itself stays open for its other users."""
        for name in self._programs:
            if self._slotted is not None:
                self._slotted.unload(name)
        if self._slotted is None and self._resident is not None:
            self.device.unload()
        self._programs.clear()
        self._resident = None


class DeviceLinear:
    """One compiled matrix among the programs on a device, under a name that no other matrix there has."""

    def __init__(self, compiled: CompiledLinear, programs: DevicePrograms, name: str) -> None:
        self.compiled = compiled
        self._programs = programs
        self._names = [f"{name}/{program.name}" for program in compiled.programs]
        for slot, program in zip(self._names, compiled.programs, strict=True):
            programs.load(slot, program)

    @property
    def rows_per_sample(self) -> int:
        """Chip rows that one sample takes: nibbles of its activations, in every program."""
        return sum(program.encoding.activation_bits // 4 for program in self.compiled.programs)

    def __call__(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return y (batch, outputs) for x (batch, inputs); x beyond its range is clamped."""
        rows = self.compiled.encode(x)
        return self.compiled.decode(
            [self._programs.infer(name, part) for name, part in zip(self._names, rows, strict=True)]
        )

    def push(self, matrix: ArrayLike) -> int:
        """Replace the matrix by another of the same shape and ranges; return the bytes that went to the device.

        It is quantised with scales of its own, which stay on the host; programs whose integers stay are not sent.
        """
        old = self.compiled
        ranges = np.concatenate([ladder.ranges for ladder in old.ladders])
        new = compile_linear(old.programs[0].name, matrix, encoding=old.programs[0].encoding, ranges=ranges)
        if new.columns != old.columns or new.programs[0].outputs != old.programs[0].outputs:
            raise SpecError("the new matrix does not fall into programs of the same shapes; compile it anew")
        sent = sum(self._programs.update(name, p) for name, p in zip(self._names, new.programs, strict=True))
        self.compiled = new
        return sent
