r"""The encodings that can hold a matrix, and the error that each is predicted to make.

With ranges r, levels L and folded weights F_ij r_j = s_i W_ij + E_ij (`substrates.npu.ladder`), the error of output i
for independent inputs is

    e_i^2 = sum_j E_ij^2 <x_j^2> / r_j^2  +  (s_i W_ij / L)^2 / 12         rounded weights, rounded inputs

The second term is ||W_i|| delta / sqrt(12), the noise of a step delta. The predicted error is relative, over all
outputs: sqrt(sum e_i^2 / sum_ij F_ij^2 <x_j^2>). It is an expectation; `CompiledLinear.error_bound` is the worst case.

Precision has names: W8A12 is weights of 8 bits and activations of 12. Weights of 4, 8 and 12 bits are 1, 2 and 3
base-15 digits, activations of 4, 8, 12 and 16 bits are 1 to 4 nibble rows (`substrates.npu.ladder`): more digits are
more units of one layer, more nibbles are more rows of one call.
"""

import re
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from metalforge.core import Doubles, Reals, SpecError
from metalforge.substrates import Encoding, Quantized, digit_limit, input_levels, quantize_digits

from .ranges import ValueRange

Weights: TypeAlias = Reals | Quantized
ACTIVATION_BITS = (4, 8, 12, 16)
DIGITS = (1, 2, 3)
EVEN = 1 / 3
"""<x^2> / r^2 of a value spread evenly over -r .. r."""
ERROR_MODEL = "noise of rounded weights and inputs, relative to the output, both root mean square"


class Option(NamedTuple):
    """An encoding and the relative error it is predicted to make."""

    encoding: Encoding
    error: float


def encoding_options(matrix: Weights, x: ValueRange) -> tuple[Option, ...]:
    """Return every encoding that can hold a matrix (outputs, inputs), with its predicted error.

    Integers that exist already are kept: they have as many digits as they need, and no error of their own.
    """
    signed: Literal["unsigned", "zero_point"] = "unsigned" if x.nonnegative else "zero_point"
    found = []
    for widths in ACTIVATION_BITS[:1], ACTIVATION_BITS[1:]:  # of one range each
        at = x.at(widths[0])
        share = (at.rms / at.largest) ** 2
        for digits, weight_error, folded in _rounded(matrix, at):
            size = float(np.sum((folded + weight_error) ** 2 * share))
            for bits in widths:
                encoding = Encoding(activation_bits=bits, digits=digits, signed=signed)
                noise = _noise(folded, weight_error, share, encoding)
                found.append(Option(encoding, float(np.sqrt(noise / size)) if size else 0.0))
    return tuple(found)


def rms_error(matrix: Reals, ranges: Doubles, encoding: Encoding) -> float:
    """Return the predicted rms error of an output, in its own units, for inputs spread evenly over their ranges."""
    q = quantize_digits(matrix.astype(np.float64) * ranges, encoding.digits)
    noise = _noise(q.dequantize(), q.error, EVEN, encoding)
    return float(np.sqrt(noise / len(matrix)))


def _noise(
    folded: Doubles,
    weight_error: Doubles,
    share: float | Doubles,
    encoding: Encoding,
) -> float:
    """Return sum_i e_i^2; `share` is <x_j^2> / r_j^2."""
    return float(np.sum(weight_error**2 * share) + np.sum(folded**2) / (12 * input_levels(encoding) ** 2))


def _rounded(matrix: Weights, x: ValueRange) -> list[tuple[int, Doubles, Doubles]]:
    """Return digits, E and s W for each number of digits that can hold a matrix."""
    if isinstance(matrix, Quantized):
        largest = int(np.abs(matrix.values.astype(np.int64)).max())
        digits = next((d for d in DIGITS if digit_limit(d) >= largest), None)
        folded = matrix.dequantize() * x.largest
        return [] if digits is None else [(digits, np.zeros_like(folded), folded)]
    rounded = [quantize_digits(matrix.astype(np.float64) * x.largest, digits) for digits in DIGITS]
    return [(digits, q.error, q.dequantize()) for digits, q in zip(DIGITS, rounded, strict=True)]


LADDER = ("W4A4", "W4A8", "W8A8", "W8A12", "W12A12", "W12A16")
"""What `precision="auto"` climbs, cheapest first: the state's width matters before that of the weights."""


def encoding_of(precision: str, signed: Literal["zero_point", "two_rail", "unsigned"] = "zero_point") -> Encoding:
    """Return the encoding that a name such as W4A8 stands for."""
    match = re.fullmatch(r"W(4|8|12)A(4|8|12|16)", precision)
    if match is None:
        raise SpecError(
            f"`precision` must be auto, or W4, W8 or W12 with A4, A8, A12 or A16, such as W4A8. Got `{precision}`"
        )
    return Encoding(digits=int(match[1]) // 4, activation_bits=int(match[2]), signed=signed)


def precision_of(encoding: Encoding) -> str:
    """Return the name of an encoding's precision."""
    return f"W{4 * encoding.digits}A{encoding.activation_bits}"
