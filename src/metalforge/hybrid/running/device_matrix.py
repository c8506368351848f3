"""A matrix on a device: real vectors in, real vectors out, by way of chip integers; replaced while it is used.

y = W x, with W on the NPU as one or more programs (`compile_linear`). A network in chunks, or a layer of many units, is
several of these, one below the other. A replacement is a transaction: a device that stops in the middle of one holds
neither the old nor the new weights; the matrix is then stale, and the next use begins with `restore`.

`DeviceGuard` decides what happens when a device stops answering in the middle of a run. `ExactSteps` takes steps of a
network in one native call where all programs are on an emulated chip and no call of theirs can go wrong: the arithmetic
is the same, and the device's books are kept as if it had been called (`DevicePrograms.compute`).
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Doubles, Reals, SpecError, require_one_of
from metalforge.reservoir import EsnWeights
from metalforge.substrates import (
    CompiledLinear,
    DeviceGoneError,
    DevicePrograms,
    DeviceTimeoutError,
    ExactMatrix,
    NpuError,
    Program,
    SequenceLoop,
    compile_linear,
    exact_loop,
)

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


class ExactSteps:
    """The steps of a network whose rows are these matrices, one below the other, of lines [u; s], or s alone.

    `on_host` says that the host multiplies the inputs, and `by_turns` that the programs are called forwards in one step
    and backwards in the next.
    """

    def __init__(
        self, weights: EsnWeights, matrices: Sequence[DeviceMatrix], *, on_host: bool, by_turns: bool = False
    ) -> None:
        self._weights, self._matrices = weights, tuple(matrices)
        self._on_host = on_host
        self._programs = matrices[0].programs
        there = tuple(slot for matrix in matrices for slot in matrix.slots)
        self._slots, self._orders = there, (there, there[::-1], there) if by_turns else ()
        self._rows = tuple(p.encoding.rows for matrix in matrices for p in matrix.compiled.programs)
        self._made_of: tuple[object, ...] = ()
        self.loop: SequenceLoop | None = None
        """The loop of the last steps; None before the first, and where the device is called."""

    def step(self, u: Reals, states: Reals, *, backwards: bool = False) -> Reals | None:
        """Return the states after one step, both (units,) or both a batch; None where the device must be called."""
        new, lines = states.copy(), np.ascontiguousarray(u)
        samples = 1 if new.ndim == 1 else len(new)
        return self._spared(lambda loop: loop.step(lines, new), samples, 1, backwards)

    def run(self, u: Reals, states: Reals, out: Reals, *, backwards: bool = False) -> Reals | None:
        """Return `out`, filled with the states after every step, (samples, steps, units); None as `step`.

        `backwards` says so of the first step's calls.
        """
        return self._spared(lambda loop: loop.run(u, states, out), u.shape[0], u.shape[1], backwards)

    def _spared(self, work: Callable[[SequenceLoop], Reals], samples: int, steps: int, backwards: bool) -> Reals | None:
        def with_loop(held: tuple[Program, ...]) -> Reals | None:
            loop = self._present_loop(held)
            return None if loop is None else work(loop)

        rows = tuple([samples * rows for rows in self._rows])
        orders = self._orders[backwards : backwards + min(steps, 2)]
        try:
            return self._programs.compute(self._slots, with_loop, rows, steps, orders)
        except (ValueError, OverflowError):  # numbers that are not finite: the calls say what is wrong with them
            return None

    def _present_loop(self, held: tuple[Program, ...]) -> SequenceLoop | None:
        """Return the loop of what the chip holds now; None where there is none, or a matrix has to be restored."""
        compiled = [matrix.compiled for matrix in self._matrices]
        if (made_of := (*held, *compiled)) != self._made_of:  # as objects: none is ever changed in place
            self._made_of = made_of
            w, on_host = self._weights, self._on_host
            self.loop = exact_loop(
                compiled,
                held,
                inputs=0 if on_host else w.w_driven.shape[1],
                w_in=w.w_driven if on_host else None,
                bias=w.bias,
                leak=w.leak,
                activation=w.activation,
                precision="f64" if w.dtype == np.float64 else "mixed",
            )
        return None if any(matrix.stale for matrix in self._matrices) else self.loop
