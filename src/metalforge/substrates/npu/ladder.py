"""The precision ladder: wide activations and weights on a chip of 4 bits, exact by construction.

Both are positional number systems, so an integer product falls apart into chip products and is put together again
without error:

    q = sum_k 16^k n_k,    n_k in 0 .. 15     activations of 4, 8, 12, 16 bits are 1 to 4 rows of one batch
    W = sum_k 15^k d_k,    d_k in -7 .. 7     weights to +-7, +-112, +-1687 are 1 to 3 blocks of units of one layer

Chip inputs have no sign. Three encodings give them one; r is the range of x, b are the activation bits:

    unsigned     q = rint(x (2^b - 1) / r),                     x in 0 .. r
    zero_point   q = rint(x (2^(b-1) - 1) / r) + 2^(b-1),       W q - 2^(b-1) sum_j W_ij on the host; zero is exact
    two_rail     lines [q+; q-] of max(x, 0) and max(-x, 0),    weights [W; -W]; twice the lines, one more bit

(B. Jacob et al., CVPR 2018, arXiv:1712.05877, for the zero point and its row-sum correction.) `Ladder` joins them for
one matrix; only its scales are real numbers, everything before them is int64.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Array, BriefRepr, Doubles

from .program import Encoding, Program, ProgramError
from .quantize import Clip, Quantized, quantize_to

BASE, DIGIT = 15, 7
"""Balanced digits -7 .. 7: all that a symmetric 4-bit weight can hold, and so base 15."""

SMALLEST_RANGE = 1e-300
"""Below it, levels over range would overflow."""


def digit_limit(digits: int) -> int:
    """Return the largest weight of 1, 2 or 3 digits: 7, 112 or 1687, that is (15^digits - 1) / 2."""
    if digits not in (1, 2, 3):
        raise ProgramError(f"weights have 1, 2 or 3 digits. Got {digits}")
    return int((BASE**digits - 1) // 2)


def split_digits(q: Array, digits: int) -> NDArray[np.int8]:
    """Return integers as balanced base-15 digits of shape (digits, *q.shape), the most significant first."""
    rest = _integers("weights", q)
    limit = digit_limit(digits)
    if rest.size and (rest.min() < -limit or rest.max() > limit):
        bad = int(rest.min() if rest.min() < -limit else rest.max())
        raise ProgramError(f"weights of {digits} digits lie in {-limit} .. {limit}. Got {bad}; use more digits")
    found = []
    for _ in range(digits):
        low = (rest + DIGIT) % BASE - DIGIT
        found.append(low)
        rest = (rest - low) // BASE
    return np.stack(found[::-1]).astype(np.int8)


def join_digits(potentials: Array, digits: int) -> NDArray[np.int64]:
    """Return sum_k 15^k p_k for digit blocks side by side on the last axis, the most significant first."""
    wide = _integers("potentials", potentials)
    digit_limit(digits)
    if wide.ndim == 0 or wide.shape[-1] % digits:
        raise ProgramError(f"the last axis of {wide.shape} does not hold {digits} equal digit blocks")
    return _horner(wide.reshape(*wide.shape[:-1], digits, wide.shape[-1] // digits), BASE)


def nibble_rows(q: Array, bits: int) -> NDArray[np.uint8]:
    """Return (batch, lines) integers of 4, 8, 12 or 16 bits as (batch * bits / 4, lines) rows of 4 bits.

    The rows of one sample follow each other, the most significant first.
    """
    wide = _integers("activations", q)
    n_rows = _nibbles(bits)
    if wide.ndim != 2:
        raise ProgramError(f"activations must have shape (batch, lines). Got {wide.shape}")
    if wide.size and (wide.min() < 0 or wide.max() >> bits):
        bad = int(wide.min() if wide.min() < 0 else wide.max())
        raise ProgramError(f"activations of {bits} bits lie in 0 .. {(1 << bits) - 1}. Got {bad}")
    shifts = np.arange(bits - 4, -1, -4)[:, np.newaxis]
    rows = (wide[:, np.newaxis, :] >> shifts) & 15
    return rows.astype(np.uint8).reshape(len(wide) * n_rows, wide.shape[1])


def join_nibbles(potentials: Array, bits: int) -> NDArray[np.int64]:
    """Return (batch, units) sums 16^k p_k of the (batch * bits / 4, units) potentials of `nibble_rows`."""
    wide = _integers("potentials", potentials)
    n_rows = _nibbles(bits)
    if wide.ndim != 2 or len(wide) % n_rows:
        raise ProgramError(
            f"potentials of {bits}-bit activations have {n_rows} rows per sample and shape (rows, units). "
            f"Got {wide.shape}"
        )
    return _horner(wide.reshape(len(wide) // n_rows, n_rows, wide.shape[1]), 16)


def encode_unsigned(x: ArrayLike, scale: ArrayLike, bits: int) -> NDArray[np.int64]:
    """Return rint(x (2^bits - 1) / scale) within 0 .. 2^bits - 1; values outside 0 .. scale are clamped."""
    top = (1 << bits) - 1
    return _nearest_level(x, scale, 0, top)


def encode_zero_point(x: ArrayLike, scale: ArrayLike, bits: int) -> NDArray[np.int64]:
    """Return rint(x L / scale) + 2^(bits-1) with L = 2^(bits-1) - 1, so that zero is exactly 2^(bits-1).

    Values outside -scale .. scale are clamped; the integer 0 is never used.
    """
    zero = 1 << (bits - 1)
    return _nearest_level(x, scale, 1 - zero, zero - 1) + zero


def encode_two_rail(x: ArrayLike, scale: ArrayLike, bits: int) -> NDArray[np.int64]:
    """Return [q+; q-] side by side on the last axis: the unsigned encodings of max(x, 0) and max(-x, 0)."""
    rails = [encode_unsigned(sign * np.asarray(x, np.float64), scale, bits) for sign in (1.0, -1.0)]
    return np.concatenate(rails, axis=-1)


ENCODERS: dict[str, Callable[[ArrayLike, ArrayLike, int], NDArray[np.int64]]] = {
    "unsigned": encode_unsigned,
    "zero_point": encode_zero_point,
    "two_rail": encode_two_rail,
}


def input_levels(encoding: Encoding) -> int:
    """Return the integer that stands for an input equal to its range."""
    bits = encoding.activation_bits
    return (1 << (bits - 1)) - 1 if encoding.signed == "zero_point" else (1 << bits) - 1


def group_ranges(*groups: tuple[int, float]) -> Doubles:
    """Return one range a line from (lines, range) groups, such as (50, max |u|), (128, max |x|)."""
    return np.repeat([float(largest) for _, largest in groups], [lines for lines, _ in groups])


def quantize_digits(weights: ArrayLike, digits: int, *, clip: Clip = "max") -> Quantized:
    """Return weights (outputs, inputs) quantised to what 1, 2 or 3 digits hold: +-7, +-112, +-1687."""
    limit = digit_limit(digits)
    return quantize_to(weights, (-limit, limit), clip=clip)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Ladder(BriefRepr):
    """One integer matrix under one encoding: what the chip is given, and what its potentials mean.

    `integers` is int64 of shape (outputs, inputs), `scales` what one unit of each output's integer is worth,
    `ranges` the largest |x| of each input. For an x within its ranges, `decode` is matrix @ x to `error_bound`.
    """

    encoding: Encoding
    integers: NDArray[np.int64]
    scales: Doubles
    ranges: Doubles
    correction: NDArray[np.int64] = field(init=False)
    """2^(bits-1) * row sums for the zero point, else 0."""

    def __post_init__(self) -> None:
        q = self.integers
        if q.dtype != np.int64 or q.ndim != 2 or (self.scales.shape, self.ranges.shape) != (q.shape[:1], q.shape[1:]):
            raise ProgramError(
                "a ladder wants int64 integers (outputs, inputs), one scale per output and one range per input. "
                f"Got {q.dtype} of shape {q.shape}, scales {self.scales.shape}, ranges {self.ranges.shape}"
            )
        zero = 1 << (self.encoding.activation_bits - 1) if self.encoding.signed == "zero_point" else 0
        object.__setattr__(self, "correction", zero * q.sum(axis=1))

    def chip_weights(self) -> NDArray[np.int8]:
        """Return int4 weights (lines, digits * outputs): digit blocks side by side, the most significant first."""
        q = self.integers.T
        lines = np.concatenate([q, -q]) if self.encoding.signed == "two_rail" else q
        return np.concatenate(list(split_digits(lines, self.encoding.digits)), axis=1)

    def encode(self, x: ArrayLike) -> NDArray[np.uint8]:
        """Return chip inputs (batch * nibbles, lines) for real x of shape (batch, inputs); clamps x to its ranges."""
        bits = self.encoding.activation_bits
        real = np.asarray(x)
        if real.ndim != 2 or real.shape[1] != self.ranges.size:
            raise ProgramError(f"inputs must have shape (batch, {self.ranges.size}). Got {real.shape}")
        return nibble_rows(ENCODERS[self.encoding.signed](real, self.ranges, bits), bits)

    def join(self, potentials: Array) -> NDArray[np.int64]:
        """Return the exact integers (batch, outputs): the matrix of integers times the encoded inputs, signed."""
        units = self.encoding.digits * len(self.integers)
        if np.ndim(potentials) != 2 or np.shape(potentials)[1] != units:
            raise ProgramError(f"potentials must have shape (rows, {units}). Got {np.shape(potentials)}")
        wide = join_nibbles(potentials, self.encoding.activation_bits)
        return join_digits(wide, self.encoding.digits) - self.correction

    def decode(self, potentials: Array) -> Doubles:
        """Return y of shape (batch, outputs): `join` times the scales."""
        return self.join(potentials) * self.scales

    def columns(self, span: slice) -> "Ladder":
        """Return the ladder of some inputs; ladders that cover all of them add up to this one."""
        return replace(self, integers=self.integers[:, span], ranges=self.ranges[span])

    def error_bound(self, matrix: ArrayLike) -> Doubles:
        """Return the largest possible |decode - matrix @ x| of each output for an x within its ranges.

        With x_j = r_j (q_j + e_j) / L, |e_j| <= 1/2, and L the input levels, the error of output i is
        sum_j (F_ij r_j - s_i L W_ij) x_j / r_j - s_i W_ij e_j, at most
        sum_j |F_ij r_j - s_i L W_ij| + s_i |W_ij| / 2. Rounding of float64 is not counted.
        """
        scales = self.scales[:, np.newaxis]
        weight = np.asarray(matrix, np.float64) * self.ranges - scales * input_levels(self.encoding) * self.integers
        return np.asarray((np.abs(weight) + scales * np.abs(self.integers) / 2).sum(axis=1))


def build_ladder(
    matrix: ArrayLike | Quantized,
    encoding: Encoding,
    *,
    ranges: ArrayLike = 1.0,
    clip: Clip = "max",
) -> Ladder:
    """Return the ladder of a real matrix (outputs, inputs), or of integers that are quantised already.

    `ranges` is the largest |x|, one in all or one per input. Ranges are folded into the matrix before it is quantised,
    so lines of different size do not waste levels; integers that exist cannot be folded and want one range.
    """
    if isinstance(matrix, Quantized):
        quantized, fold = matrix, _ranges(ranges, matrix.values.shape[1])
        if np.any(fold != fold[0]):
            raise ProgramError("quantised weights want one range for all inputs; give the real matrix for several")
        unit = float(fold[0])
    else:
        shape = np.shape(matrix)
        fold, unit = _ranges(ranges, shape[-1] if shape else 0), 1.0
        quantized = quantize_digits(np.asarray(matrix) * fold, encoding.digits, clip=clip)
    outputs = quantized.values.shape[0]
    return Ladder(
        encoding=encoding,
        integers=quantized.values.astype(np.int64),
        scales=np.broadcast_to(quantized.scales * (unit / input_levels(encoding)), outputs).copy(),
        ranges=fold,
    )


def ladder_of(program: Program, *, ranges: ArrayLike | None = None) -> Ladder:
    """Return the ladder of a program of one layer, read back from its weights, encoding, scales and ranges.

    `ranges` are for a program that has none of its own: its scales were made for some, and others would clamp or
    stretch what goes in.
    """
    if len(program.layers) != 1:
        raise ProgramError(f"program `{program.name}` has {len(program.layers)} layers; only one can be read back")
    q = join_digits(program.layers[0].weights, program.encoding.digits).T
    if program.encoding.signed == "two_rail":
        half = q.shape[1] // 2
        if not np.array_equal(q[:, :half], -q[:, half:]):
            raise ProgramError(f"program `{program.name}` is two_rail, but its weights are not [W; -W]")
        q = q[:, :half]
    given = None if ranges is None else _ranges(ranges, q.shape[1])
    if given is None and not program.ranges.size:
        raise ProgramError(
            f"program `{program.name}` does not say how large its inputs are, so real ones cannot be encoded"
            "\nhint: give the range it was compiled for (`--range`), or compile it anew"
        )
    if given is not None and program.ranges.size and not np.array_equal(given, program.ranges):
        raise ProgramError(
            f"program `{program.name}` was compiled for inputs up to {program.ranges.max():g}. Got {given.max():g}"
            "\nhint: leave the range out, or compile for another"
        )
    held = program.ranges if given is None else given
    return Ladder(encoding=program.encoding, integers=q, scales=program.scales, ranges=held)


def _horner(blocks: NDArray[np.int64], base: int) -> NDArray[np.int64]:
    """Return sum_k base^k b_k over the last axis but one, the most significant first."""
    total = blocks[..., 0, :]
    for k in range(1, blocks.shape[-2]):
        total = base * total + blocks[..., k, :]
    return total


def _nibbles(bits: int) -> int:
    if bits not in (4, 8, 12, 16):
        raise ProgramError(f"activations have 4, 8, 12 or 16 bits. Got {bits}")
    return bits // 4


def _integers(what: str, values: Array) -> NDArray[np.int64]:
    """Return values as int64; raises when they are not integers."""
    given = np.asarray(values)
    if given.dtype.kind not in "iu":
        raise ProgramError(f"{what} must be integers. Got {given.dtype}")
    return given.astype(np.int64)


def _nearest_level(x: ArrayLike, scale: ArrayLike, lowest: int, highest: int) -> NDArray[np.int64]:
    """Return rint(x * (highest / scale)) within lowest .. highest; raises when x is not finite.

    The factor is formed first, as in the native sequence loop: both must fall on the same side of every tie.
    """
    real = np.asarray(x, np.float64)
    if not np.all(np.isfinite(real)):
        raise ProgramError(f"inputs must be finite numbers. Got {real[~np.isfinite(real)][0]}")
    with np.errstate(over="ignore"):  # beyond any range is clamped, infinitely far beyond too
        level = np.clip(real * (highest / _positive(scale)), lowest, highest)
    return np.rint(level).astype(np.int64)


def _positive(ranges: ArrayLike) -> Doubles:
    real = np.asarray(ranges, np.float64)
    if not np.all(np.isfinite(real) & (real >= SMALLEST_RANGE)):
        raise ProgramError(f"the range of an input must be a finite number of at least {SMALLEST_RANGE}")
    return real


def _ranges(ranges: ArrayLike, inputs: int) -> Doubles:
    """Return one range an input."""
    real = _positive(ranges)
    if real.shape not in ((), (inputs,)):
        raise ProgramError(f"`ranges` must be one number or {inputs}, one per input. Got shape {real.shape}")
    return np.broadcast_to(real, (inputs,)).copy()
