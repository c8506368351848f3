"""Precision by name: W8A12 is weights of 8 bits and activations of 12.

Weights of 4, 8 and 12 bits are 1, 2 and 3 base-15 digits, activations of 4, 8, 12 and 16 bits are 1 to 4 nibble rows
(`substrates.npu.ladder`): more digits are more units of one layer, more nibbles are more rows of one call.
"""

import re
from typing import Literal

from metalforge.core.errors import SpecError
from metalforge.substrates.npu.program import Encoding

__all__ = ["LADDER", "encoding_of", "precision_of"]

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
