r"""A matrix that is written again and again while the device uses it: real weights in, int4 digits on the chip.

    W_ij r_j = s_i q_ij + error,    q_ij = rint(W_ij r_j / s_i) within the limit of 1 to 3 base-15 digits

with r_j the range of input j (`substrates.npu.ladder`). A row keeps its scale s_i while its largest weight fills `KEEP`
of the grid and no more than all of it: a scale that followed every step would move all integers for nothing, and
integers that do not move need not be sent.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Doubles, SpecError
from metalforge.hybrid.running.device_matrix import DeviceMatrix, Push
from metalforge.substrates import (
    CompiledLinear,
    DevicePrograms,
    Encoding,
    FullyConnected,
    Ladder,
    Program,
    ResourceError,
    digit_limit,
    input_levels,
)

KEEP = 0.8
"""A row keeps its scale while its largest weight fills this part of the grid; a digit of 7 is then 5.6 or more."""
ATTEMPTS = 3
"""Times that an update is sent before the error comes through: twice as a variable, then as a whole program."""
MOST_LINES = ((1 << 19) - 1) // (15 * 7)
"""Lines that cannot saturate the accumulator whatever their weights become: 15 times 7 each, 20 bits with sign."""


def requantise(folded: Doubles, digits: int, scales: Doubles | None = None) -> tuple[NDArray[np.int64], Doubles]:
    """Return integers and one scale per row for weights (outputs, inputs); rows keep a scale that still serves them."""
    limit = digit_limit(digits)
    peak = np.abs(folded).max(axis=1)
    fresh = np.where(peak > limit * np.finfo(np.float64).tiny, peak / limit, 1.0)
    if scales is not None:
        filled = peak / (limit * scales)
        fresh = np.where((filled >= KEEP) & (filled <= 1 + 0.5 / limit), scales, fresh)
    integers = np.clip(np.rint(folded / fresh[:, np.newaxis]), -limit, limit)
    return integers.astype(np.int64), fresh


class WrittenMatrix(DeviceMatrix):
    """y = W x on a device, W of shape (outputs, inputs) and |x_j| within `ranges`; `name` is that of its layer.

    `push` takes real weights, `write` takes integers (what evolution does); both change nothing but the weights.
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
        self.name, self.encoding, self.shape = name, encoding, real.shape
        self.limit = digit_limit(encoding.digits)
        """The largest integer: 7, 112 or 1687."""
        self._ranges = np.broadcast_to(np.asarray(ranges, np.float64), real.shape[1:]).copy()
        integers, self._scales = requantise(real * self._ranges, encoding.digits)
        super().__init__(self._compiled(integers), programs, "learning", attempts=ATTEMPTS)

    @property
    def integers(self) -> NDArray[np.int64]:
        """A copy of the integers that the device was given, (outputs, inputs), digits joined."""
        return self.compiled.ladders[0].integers.copy()

    @property
    def variable_bytes(self) -> int:
        """Bytes of one update: the chip has no partial write."""
        return int(self.compiled.program.layers[0].weights.nbytes)

    def real(self, integers: NDArray[np.int64] | None = None) -> Doubles:
        """Return the weights (outputs, inputs) that the integers stand for, or that others would with these scales."""
        held = self.integers if integers is None else integers
        return np.asarray(held * self._scales[:, np.newaxis] / self._ranges)

    def changed(self, matrix: ArrayLike) -> int:
        """Return how many integers `push` would change."""
        integers, _ = self._quantised(matrix)
        return int(np.count_nonzero(integers != self.compiled.ladders[0].integers))

    def push(self, matrix: ArrayLike) -> Push:
        """Give the device the integers nearest to real weights; nothing is sent where none changes."""
        integers, self._scales = self._quantised(matrix)
        return self.replace(self._compiled(integers))

    def write(self, integers: NDArray[np.int64]) -> Push:
        """Give the device integers, with the scales that it has."""
        if integers.shape != self.shape or integers.dtype.kind not in "iu" or np.abs(integers).max() > self.limit:
            raise SpecError(
                f"`{self.name}` takes integers of shape {self.shape} within +-{self.limit}. "
                f"Got {integers.dtype} of shape {integers.shape}"
            )
        return self.replace(self._compiled(integers.astype(np.int64)))

    def _quantised(self, matrix: ArrayLike) -> tuple[NDArray[np.int64], Doubles]:
        real = _finite_matrix(self.name, matrix, self.shape)
        return requantise(real * self._ranges, self.encoding.digits, self._scales)

    def _compiled(self, integers: NDArray[np.int64]) -> CompiledLinear:
        """Return the program of some integers with the present scales: one, for it cannot saturate."""
        ladder = Ladder(
            encoding=self.encoding,
            integers=integers,
            scales=self._scales / input_levels(self.encoding),
            ranges=self._ranges,
        )
        layer = FullyConnected(name=self.name, weights=ladder.chip_weights())
        program = Program(name=self.name, layers=(layer,), encoding=self.encoding, scales=ladder.scales)
        return CompiledLinear(
            programs=(program,),
            columns=(slice(0, integers.shape[1]),),
            ladders=(ladder,),
            error_bound=ladder.error_bound(self.real(integers)),
        )


def _finite_matrix(name: str, matrix: ArrayLike, shape: tuple[int, ...] | None = None) -> Doubles:
    real = np.asarray(matrix, np.float64)
    if real.ndim != 2 or 0 in real.shape or (shape is not None and real.shape != shape):
        wanted = "(outputs, inputs), not empty" if shape is None else str(shape)
        raise SpecError(f"the weights of `{name}` must have shape {wanted}. Got {real.shape}")
    if not np.all(np.isfinite(real)):
        raise SpecError(f"the weights of `{name}` must be finite. Got {real[~np.isfinite(real)][0]}")
    return real
