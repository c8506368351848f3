"""The device protocol: what a driver may ask of an NPU, whether it is emulated or on a board.

Programs go in, unsigned integers go in, what the last layer gives comes out. A device holds programs in named slots, as
many as it has or as fit beside each other; who shares one with others goes through `residency`. Variables of a program
are named ``layer/variable``: ``res/weights``, ``res/threshold``, ``res/act_step``. The errors::

    NpuError                    the device was asked for something it cannot do
    |-- DeviceTimeoutError      no answer; the call may be tried again
    |-- DeviceGoneError         the device left the bus; `reset`, then load again
    `-- ResourceError           a program does not fit

What breaks a rule of the chip (a range, a shape, a type) is a `ProgramError`, here as everywhere.
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, MetalforgeError, Modelled, require_known

from .program import Activation, Program, ProgramError

DEFAULT_SLOT = "main"
"""Where a program goes when nobody says where."""
VARIABLES = ("weights", "threshold", "act_step")
"""What every layer has."""

Outputs: TypeAlias = NDArray[np.int32] | NDArray[np.uint8]
"""Potentials (int32) of a linear last layer, activations (uint8) of a rectifying one."""


class NpuError(MetalforgeError):
    """The device was asked for something it cannot do."""


class DeviceTimeoutError(NpuError):
    """The device gave no answer; the call may be tried again."""


class DeviceGoneError(NpuError):
    """The device left the bus; nothing works before `reset`."""


class ResourceError(NpuError):
    """A program does not fit; the message says by how much and what would make it fit."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a device did since it was opened. Seconds and joules are modelled; None where there is no model of them."""

    calls: int = 0
    inferences: int = 0
    """Inputs of those calls."""
    loads: int = 0
    weight_updates: int = 0
    bytes_pushed: int = 0
    """Programs and variables sent to the device; inputs are not counted."""
    failures: int = 0
    """Calls and updates that ended in a time-out or a lost device; they are not in the other figures."""
    busy: Modelled | None = None
    energy: Modelled | None = None


class Spent(NamedTuple):
    """Modelled seconds and joules of a device; None where there is no model."""

    busy: Modelled | None
    energy: Modelled | None

    def since(self, before: "Spent") -> "Spent":
        """Return what was spent after `before`."""
        return Spent(*(None if a is None or b is None else a - b for a, b in zip(self, before, strict=True)))

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum of both."""
        return Spent(*(None if a is None or b is None else a + b for a, b in zip(self, other, strict=True)))


@runtime_checkable
class NpuDevice(AbstractContextManager["NpuDevice"], Protocol):
    """One NPU. Methods may be called from any thread; the device answers one at a time."""

    @property
    def n_slots(self) -> int | None:
        """How many programs it holds at a time; None where it is as many as fit."""

    def slots(self) -> tuple[str, ...]:
        """Return the slots that hold a program, oldest first."""

    def load(self, program: Program, slot: str = DEFAULT_SLOT) -> None:
        """Put a program in a slot, in place of the one there; `ResourceError` where it does not fit beside others."""

    def infer(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> Outputs:
        """Return what the last layer gives: (batch, units) for (batch, inputs), (units,) for (inputs,)."""

    def infer_linear(self, x: NDArray[np.uint8], slot: str = DEFAULT_SLOT) -> NDArray[np.int32]:
        """Return signed potentials; raises `NpuError` where the last layer rectifies."""

    def set_variable(self, name: str, values: Array, slot: str = DEFAULT_SLOT) -> None:
        """Replace a variable of a program by one of the same type and shape."""

    def get_variable(self, name: str, slot: str = DEFAULT_SLOT) -> Array:
        """Return a copy of a variable, as the device holds it."""

    def program_external(self, data: bytes) -> None:
        """Put a program that comes as bytes (`wire`) in the default slot."""

    def unload(self, slot: str = DEFAULT_SLOT) -> None:
        """Take a program off the device; nothing happens when there is none."""

    def reset(self) -> None:
        """Bring the device back to how it is after power-on: no program."""

    def statistics(self) -> Statistics:
        """Return counts since the device was opened."""

    def spent(self, slot: str) -> Spent:
        """Return what calls, updates and loads of one slot took since the device was opened; slots add up to all."""


def slot_limit(n_slots: int, held: tuple[str, ...]) -> ResourceError:
    """Return the error of a device whose slots are all taken."""
    there = ", ".join(f"`{slot}`" for slot in held)
    return ResourceError(f"the device holds {n_slots} program{'s' * (n_slots > 1)}: {there}\nhint: unload one first")


def as_rows(x: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], bool]:
    """Return inputs as (batch, inputs), and whether they came as a single vector."""
    if isinstance(x, np.ndarray) and x.ndim == 1:
        return x[np.newaxis], True
    return x, False


def check_linear(program: Program) -> None:
    """Return if the last layer gives signed potentials; raises `NpuError` otherwise."""
    last = program.layers[-1]
    if last.activation is not Activation.LINEAR:
        raise NpuError(
            f"`infer_linear` wants signed potentials, but layer `{last.name}` has a bounded ReLU: what it cut is gone"
            "\nhint: give the last layer activation `linear`, or call `infer`"
        )


def variable(program: Program, name: str) -> Array:
    """Return a copy of a variable by its name, such as ``res/weights``."""
    layer, what = _split(program, name)
    values: Array = getattr(program.layers[layer], what)
    return values.copy()


def with_variable(program: Program, name: str, values: Array) -> Program:
    """Return the program with one variable replaced by a copy of `values`, which must have its type and shape."""
    index, what = _split(program, name)
    layer = program.layers[index]
    old: Array = getattr(layer, what)
    if not isinstance(values, np.ndarray) or values.dtype != old.dtype or values.shape != old.shape:
        came = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise ProgramError(f"`{name}` must be {old.dtype} of shape {old.shape}. Got {came}")
    # `replace` makes a new record, which checks the ranges.
    changed = replace(layer, **{what: np.ascontiguousarray(values).copy()})  # type: ignore[arg-type]  # by name
    return replace(program, layers=(*program.layers[:index], changed, *program.layers[index + 1 :]))


def image_bytes(program: Program) -> int:
    """Return the bytes that a program sends to the device: packed weights, threshold and step of 4 bytes per unit."""
    return sum((w.inputs * w.units * w.weight_bits + 7) // 8 + 8 * w.units for w in program.layers)


def _split(program: Program, name: str) -> tuple[int, str]:
    layer, slash, what = name.rpartition("/")
    if not slash:
        raise ProgramError(
            f"variables are named layer/variable, such as `{program.layers[0].name}/weights`. Got `{name}`"
        )
    require_known("variable", what, VARIABLES)
    return program.layers.index(program.layer(layer)), what
