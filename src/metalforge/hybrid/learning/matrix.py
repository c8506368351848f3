r"""A matrix that is written again and again while the device uses it: real weights in, int4 digits on the chip.

    W_ij r_j = s_i q_ij + error,    q_ij = rint(W_ij r_j / s_i) within the limit of 1 to 3 base-15 digits

with r_j the range of input j (`substrates.npu.ladder`). A row keeps its scale s_i while its largest weight fills `KEEP`
of the grid and no more than all of it: a scale that followed every step would move all integers for nothing, and
integers that do not move need not be sent.

An update is a transaction. A device that stops in the middle of one holds neither the old nor the new weights; it is
then written again, as a variable first and as a whole program last, and read back. Where it is gone for good the error
comes through, and the next use begins with `restore`: nothing is ever computed with half an update.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.running.device_linear import DevicePrograms
from metalforge.substrates.npu.device import DeviceTimeoutError, NpuError, ResourceError
from metalforge.substrates.npu.ladder import Ladder, digit_limit, input_levels
from metalforge.substrates.npu.program import Encoding, FullyConnected, Program, ProgramError

__all__ = ["DeviceMatrix", "Push", "requantise"]

KEEP = 0.8
"""A row keeps its scale while its largest weight fills this part of the grid; a digit of 7 is then 5.6 or more."""
ATTEMPTS = 3
"""Times that an update is sent before the error comes through: twice as a variable, then as a whole program."""
MOST_LINES = ((1 << 19) - 1) // (15 * 7)
"""Lines that cannot saturate the accumulator whatever their weights become: 15 times 7 each, 20 bits with sign."""


class Push(NamedTuple):
    """What an update did: integers that changed, bytes that went over, and attempts that failed on the way."""

    changed: int
    bytes: int
    failures: int


@runtime_checkable
class _ReadableSlots(Protocol):
    """A device with slots whose variables can be read back."""

    def get_variable(self, name: str, slot: str) -> NDArray[Any]:
        """Return a variable of the program in a slot."""
        ...

    def slots(self) -> tuple[str, ...]:
        """Return the slots that hold a program."""
        ...


def requantise(
    folded: NDArray[np.float64], digits: int, scales: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return integers and one scale a row for weights (outputs, inputs); rows keep a scale that still serves them."""
    limit = digit_limit(digits)
    peak = np.abs(folded).max(axis=1)
    fresh = np.where(peak > limit * np.finfo(np.float64).tiny, peak / limit, 1.0)
    if scales is not None:
        filled = peak / (limit * scales)
        fresh = np.where((filled >= KEEP) & (filled <= 1 + 0.5 / limit), scales, fresh)
    integers = np.clip(np.rint(folded / fresh[:, np.newaxis]), -limit, limit)
    return integers.astype(np.int64), fresh


class DeviceMatrix:
    """y = W x on a device, W of shape (outputs, inputs) and |x_j| within `ranges`; `name` is that of its layer.

    `programs` are the user's programs on the device; the slot is found free. `push` takes real weights, `write` takes
    integers (what evolution does); both change nothing but the weights.
    """

    def __init__(
        self, name: str, matrix: ArrayLike, programs: DevicePrograms, *, encoding: Encoding, ranges: ArrayLike
    ) -> None:
        real = _finite_matrix(name, matrix)
        if real.shape[1] * (2 if encoding.signed == "two_rail" else 1) > MOST_LINES:
            raise ResourceError(
                f"`{name}` has {real.shape[1]} inputs; at most {MOST_LINES} lines can hold any weights without "
                "saturating\nhint: a smaller network, or its readout in software"
            )
        self.name, self.encoding = name, encoding
        self._programs = programs
        self._ranges = np.broadcast_to(np.asarray(ranges, np.float64), real.shape[1:]).copy()
        self._slot = _free_slot(programs, name)
        self._stale = False
        self._ladder, self._scales = self._quantised(real, None)
        programs.load(self._slot, self._program(self._ladder))

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        outputs, inputs = self._ladder.integers.shape
        return int(outputs), int(inputs)

    @property
    def integers(self) -> NDArray[np.int64]:
        """A copy of the integers that the device was given, (outputs, inputs), digits joined."""
        return self._ladder.integers.copy()

    @property
    def limit(self) -> int:
        """The largest integer: 7, 112 or 1687."""
        return digit_limit(self.encoding.digits)

    @property
    def program(self) -> Program:
        """What the device holds."""
        return self._program(self._ladder)

    @property
    def rows_per_sample(self) -> int:
        """Chip rows that one sample takes."""
        return self.encoding.activation_bits // 4

    @property
    def variable_bytes(self) -> int:
        """Bytes of one update: the chip has no partial write."""
        return int(self._ladder.integers.size * self.encoding.digits * (2 if self._two_rail else 1))

    def real(self) -> NDArray[np.float64]:
        """Return the weights that the integers stand for, (outputs, inputs)."""
        return self.real_of(self._ladder.integers)

    def real_of(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights that other integers would stand for, with the scales that the rows have."""
        return np.asarray(integers * self._scales[:, np.newaxis] / self._ranges)

    def __call__(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return y (rows, outputs) for x (rows, inputs), computed by the device; x beyond its range is clamped."""
        if self._stale:
            self.restore()
        return self._ladder.decode(self._programs.infer(self._slot, self._ladder.encode(x)))

    # Updates.

    def changed(self, matrix: ArrayLike) -> int:
        """Return how many integers `push` would change."""
        ladder, _ = self._quantised(_finite_matrix(self.name, matrix, self.shape), self._scales)
        return int(np.count_nonzero(ladder.integers != self._ladder.integers))

    def push(self, matrix: ArrayLike) -> Push:
        """Give the device the integers nearest to real weights; nothing is sent where none changes."""
        return self._send(*self._quantised(_finite_matrix(self.name, matrix, self.shape), self._scales))

    def write(self, integers: NDArray[np.int64]) -> Push:
        """Give the device integers, with the scales that it has."""
        if integers.shape != self.shape or integers.dtype.kind not in "iu" or np.abs(integers).max() > self.limit:
            raise SpecError(
                f"`{self.name}` takes integers of shape {self.shape} within +-{self.limit}. "
                f"Got {integers.dtype} of shape {integers.shape}"
            )
        return self._send(self._made(integers.astype(np.int64), self._scales), self._scales)

    def verify(self) -> bool:
        """Return whether the device holds these integers, by reading them back.

        A device of one program that holds another just now answers True: this one is written whole when its turn comes.
        """
        name, device = f"{self.name}/weights", self._programs.device
        slotted: object = device
        if isinstance(slotted, _ReadableSlots):
            if self._slot not in slotted.slots():
                return False
            held = slotted.get_variable(name, self._slot)
        else:
            try:
                held = device.get_variable(name)
            except ProgramError:
                return True
        return bool(np.array_equal(held, self._ladder.chip_weights()))

    def restore(self) -> None:
        """Put the whole program on the device again, and read it back."""
        self._stale = True
        self._programs.load(self._slot, self._program(self._ladder))
        if not self.verify():
            raise NpuError(f"`{self.name}` was written to the device and reads back otherwise\nhint: reset the device")
        self._stale = False

    @property
    def stale(self) -> bool:
        """Whether an update failed and the device may hold half of it; the next use restores it."""
        return self._stale

    def _send(self, ladder: Ladder, scales: NDArray[np.float64]) -> Push:
        changed = int(np.count_nonzero(ladder.integers != self._ladder.integers))
        # What the device shall hold is known before it is told: whatever happens, `restore` brings it there.
        self._ladder, self._scales = ladder, scales
        if self._stale:
            self.restore()
            return Push(changed, self.variable_bytes, 0)
        if not changed:
            return Push(0, 0, 0)
        self._stale = True
        program = self._program(ladder)
        sent = failures = 0
        while True:
            try:
                sent += self._once(program, whole=failures >= ATTEMPTS - 1)
                break
            except DeviceTimeoutError:
                failures += 1
                if failures >= ATTEMPTS:
                    raise
        self._stale = False
        if failures and not self.verify():
            self.restore()
        return Push(changed, sent, failures)

    def _once(self, program: Program, *, whole: bool) -> int:
        if whole:
            self._programs.load(self._slot, program)
            return self.variable_bytes
        return self._programs.update(self._slot, program)

    # Integers.

    @property
    def _two_rail(self) -> bool:
        return self.encoding.signed == "two_rail"

    def _quantised(
        self, real: NDArray[np.float64], scales: NDArray[np.float64] | None
    ) -> tuple[Ladder, NDArray[np.float64]]:
        integers, found = requantise(real * self._ranges, self.encoding.digits, scales)
        return self._made(integers, found), found

    def _made(self, integers: NDArray[np.int64], scales: NDArray[np.float64]) -> Ladder:
        return Ladder(
            encoding=self.encoding,
            integers=integers,
            scales=scales / input_levels(self.encoding),
            ranges=self._ranges,
        )

    def _program(self, ladder: Ladder) -> Program:
        layer = FullyConnected(name=self.name, weights=ladder.chip_weights())
        return Program(name=self.name, layers=(layer,), encoding=self.encoding, scales=ladder.scales)


def _free_slot(programs: DevicePrograms, name: str) -> str:
    any_device: object = programs.device
    taken = any_device.slots() if isinstance(any_device, _ReadableSlots) else ()
    slot, count = f"learning/{name}", 1
    while slot in taken:
        count += 1
        slot = f"learning/{name}#{count}"
    return slot


def _finite_matrix(name: str, matrix: ArrayLike, shape: tuple[int, int] | None = None) -> NDArray[np.float64]:
    real = np.asarray(matrix, np.float64)
    if real.ndim != 2 or 0 in real.shape or (shape is not None and real.shape != shape):
        wanted = "(outputs, inputs), not empty" if shape is None else str(shape)
        raise SpecError(f"the weights of `{name}` must have shape {wanted}. Got {real.shape}")
    if not np.all(np.isfinite(real)):
        raise SpecError(f"the weights of `{name}` must be finite. Got {real[~np.isfinite(real)][0]}")
    return real
