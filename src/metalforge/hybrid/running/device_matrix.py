"""A matrix on a device: real vectors in, real vectors out, by way of chip integers; replaced while it is used.

y = W x, with W on the NPU as one or more programs (`compile_linear`). A network in chunks, or a layer of many units, is
several of these, one below the other. A replacement is a transaction: a device that stops in the middle of one holds
neither the old nor the new weights; the matrix is then stale, and the next use begins with `restore`.

`DeviceGuard` decides what happens when a device stops answering in the middle of a run.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError, require_one_of
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.device import DeviceGoneError, DeviceTimeoutError, NpuError
from metalforge.substrates.npu.exact import ExactMatrix
from metalforge.substrates.npu.program import Program
from metalforge.substrates.npu.residency import DevicePrograms

OnFailure: TypeAlias = Literal["fallback", "raise"]
T = TypeVar("T")


class DeviceFallbackWarning(UserWarning):
    """A device stopped answering; software goes on from the same state."""


class DeviceGuard:
    """Runs calls on a device; after a failure, as the policy says, runs them in software for good.

    A time-out is tried once more, and so is a device that is gone where `reconnect` can bring it back. A second failure
    ends its use: `fallback` warns once and counts every call that software took over, `raise` lets the error through
    before anything has changed.
    """

    def __init__(self, policy: OnFailure, reconnect: Callable[[], object] | None = None) -> None:
        require_one_of("fallback", "raise", on_device_failure=policy)
        self.policy, self._reconnect = policy, reconnect
        self.lost = False
        self.retries = self.fallbacks = 0

    def call(self, on_device: Callable[[], T], in_software: Callable[[], T]) -> T:
        """Return what the device gives, or software in its place."""
        if not self.lost:
            try:
                return self._twice(on_device)
            except (DeviceTimeoutError, DeviceGoneError) as error:
                if self.policy == "raise":
                    raise
                self.lost = True
                warnings.warn(
                    f"the NPU stopped answering ({str(error).splitlines()[0]}); software goes on from the same state",
                    DeviceFallbackWarning,
                    stacklevel=3,
                )
        self.fallbacks += 1
        return in_software()

    def _twice(self, on_device: Callable[[], T]) -> T:
        try:
            return on_device()
        except DeviceTimeoutError:
            self.retries += 1
        except DeviceGoneError:
            if self._reconnect is None:
                raise
            self._reconnect()
        return on_device()


class Push(NamedTuple):
    """What an update did: integers that changed, bytes that went over, and attempts that failed on the way."""

    changed: int
    bytes: int
    failures: int


class DeviceMatrix:
    """A compiled matrix among its user's programs; `prefix` begins the names of its slots.

    An update is sent `attempts` times before a time-out comes through: the last time, of several, as whole programs.
    With one attempt the caller tries again, and reloads its programs where it gives up.
    """

    def __init__(self, compiled: CompiledLinear, programs: DevicePrograms, prefix: str, *, attempts: int = 1) -> None:
        self.compiled = compiled
        self.attempts = attempts
        self.stale = False
        """Whether an update failed and the device may hold half of it; the next use restores it."""
        self.programs = programs
        self._made_of: tuple[object, ...] = ()
        self._exact: ExactMatrix | None = None
        self.slots = tuple(programs.add(f"{prefix}/{program.name}", program) for program in compiled.programs)

    @property
    def rows_per_sample(self) -> int:
        """Chip rows that one sample takes: nibbles of its activations, in every program."""
        return sum(program.encoding.rows for program in self.compiled.programs)

    def __call__(self, x: ArrayLike, *, backwards: bool = False) -> Doubles:
        """Return y (batch, outputs) for x (batch, inputs); x beyond its range is clamped.

        `backwards` calls the programs in that order: by turns it evicts least (`residency`) and changes no result.
        """
        if self.stale:
            self.restore()
        if (exact := self._exactly(np.asarray(x), backwards)) is not None:
            return exact
        calls = list(zip(self.slots, self.compiled.encode(x), strict=True))
        found = [self.programs.infer(slot, rows) for slot, rows in (reversed(calls) if backwards else calls)]
        return self.compiled.decode(found[::-1] if backwards else found)

    def _exactly(self, x: NDArray[Any], backwards: bool) -> Doubles | None:
        """Return y without chip rows, from a device that can be spared its calls; the same bits."""
        if x.dtype not in (np.float32, np.float64) or x.ndim != 2 or x.shape[1] != self.compiled.inputs or not len(x):
            return None

        def work(held: tuple[Program, ...]) -> Doubles | None:
            made_of = (self.compiled, x.dtype, *held)
            if made_of != self._made_of:  # as objects: programs and matrices are never changed in place
                self._made_of, self._exact = made_of, ExactMatrix.of(self.compiled, held, x.dtype.type)
            return None if self._exact is None else self._exact(x)

        rows = (len(x) * self.compiled.programs[0].encoding.rows,) * len(self.slots)
        return self.programs.compute(self.slots, work, rows, orders=(self.slots[::-1],) if backwards else ())

    def push(self, matrix: ArrayLike) -> Push:
        """Replace the matrix by another of the same shape and ranges, quantised with scales of its own."""
        old = self.compiled
        new = compile_linear(old.name, matrix, encoding=old.programs[0].encoding, ranges=old.ranges)
        if new.columns != old.columns or new.programs[0].outputs != old.programs[0].outputs:
            raise SpecError("the new matrix does not fall into programs of the same shapes; compile it anew")
        return self.replace(new)

    def replace(self, new: CompiledLinear) -> Push:
        """Give the device other integers, in programs of the same shapes; those that stay are not sent."""
        before = zip(self.compiled.ladders, new.ladders, strict=True)
        changed = sum(int(np.count_nonzero(a.integers != b.integers)) for a, b in before)
        # What the device shall hold is known before it is told: whatever happens, `restore` brings it there.
        self.compiled = new
        if self.stale and self.attempts > 1:
            self.restore()
            return Push(changed, sum(program.layers[0].weights.nbytes for program in new.programs), 0)
        if not changed and not self.stale:
            return Push(0, 0, 0)
        self.stale = True
        sent = failures = 0
        while True:
            try:
                for slot, program in zip(self.slots, new.programs, strict=True):
                    if failures and failures == self.attempts - 1:
                        self.programs.write(slot, program)
                        sent += program.layers[0].weights.nbytes
                    else:
                        sent += self.programs.update(slot, program)
                break
            except DeviceTimeoutError:
                failures += 1
                if failures >= self.attempts:
                    raise
        self.stale = False
        if failures and not self.verify():
            self.restore()
        return Push(changed, sent, failures)

    def verify(self) -> bool:
        """Return whether the device holds these integers, by reading them back.

        A program that waits for its turn is compared as it will be written.
        """
        for slot, program in zip(self.slots, self.compiled.programs, strict=True):
            try:
                held = self.programs.get_variable(slot, f"{program.layers[0].name}/weights")
            except NpuError:  # no program there: a reset took it, or the device is gone
                return False
            if not np.array_equal(held, program.layers[0].weights):
                return False
        return True

    def restore(self) -> None:
        """Put the whole matrix on the device again, and read it back."""
        self.stale = True
        for slot, program in zip(self.slots, self.compiled.programs, strict=True):
            self.programs.write(slot, program)
        if not self.verify():
            name = self.compiled.name
            raise NpuError(f"`{name}` was written to the device and reads back otherwise\nhint: reset the device")
        self.stale = False
