"""Matrices that an emulated chip holds, from real inputs to real outputs in one native call.

Encoding, products, joining and scaling give the same bits here as by way of chip rows: the products are integers, and
the rest is the same arithmetic on each number. What the calls would have cost is entered by `DevicePrograms.compute`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, Reals
from metalforge.native import kernels

from .compile import CompiledLinear
from .ladder import input_levels
from .program import Program
from .sequence import LoopPrecision, SequenceLoop, row_sums


class ExactMatrix:
    """y = W x of a compiled matrix, with the integers that the chip holds; x of one real type.

    Its lines are two groups of one range each, `first` of them and the others, with a zero point.
    """

    def __init__(self, native: Any, inputs: int, first: int, outputs: int) -> None:
        self.first, self.outputs = first, outputs
        self.run: Callable[[Reals, Reals | None, Doubles], None] = native.run
        """y (outputs,) or (batch, outputs) from the first lines and the others, none where there are no others."""
        self._whole = first == inputs

    @classmethod
    def of(cls, compiled: CompiledLinear, held: Sequence[Program], dtype: Any) -> "ExactMatrix | None":
        """Return the matrix, split where its ranges change; None where its lines are not such groups."""
        encoding, ranges = compiled.programs[0].encoding, compiled.ranges
        edges = np.flatnonzero(np.diff(ranges)) + 1
        first = int(edges[0]) if edges.size else len(ranges)
        if encoding.signed != "zero_point" or not _one_range(ranges[:first], ranges[first:]):
            return None
        module, weights = kernels(), _lines(held)
        levels, scales = input_levels(encoding), compiled.ladders[0].scales
        native = getattr(module, "NpuMatrix_f32" if dtype == np.float32 else "NpuMatrix_f64")(
            module.NpuWeights(weights),
            first,
            len(ranges) - first,
            np.ascontiguousarray(scales),
            row_sums(weights, encoding.digits).astype(np.float64),
            np.zeros(len(scales)),
            encoding.digits,
            encoding.activation_bits,
            levels / ranges[0],
            levels / ranges[-1],
            "auto",
        )
        return cls(native, len(ranges), first, len(scales))

    def __call__(self, x: Reals) -> Doubles | None:
        """Return y (batch, outputs) for x (batch, inputs); None where x is not such an array of finite numbers."""
        out = np.empty((len(x), self.outputs))
        try:
            if self._whole:
                self.run(x, None, out)
            else:
                self.run(np.ascontiguousarray(x[:, : self.first]), np.ascontiguousarray(x[:, self.first :]), out)
        except (TypeError, ValueError):
            return None
        return out


def exact_loop(
    blocks: Sequence[CompiledLinear],
    held: Sequence[Program],
    *,
    inputs: int,
    w_in: Reals | None,
    bias: Reals,
    leak: float,
    activation: str,
    precision: LoopPrecision,
) -> SequenceLoop | None:
    """Return the loop of a reservoir whose rows are these matrices, one below the other, of lines [u; s].

    `inputs` of the lines are inputs; none where the host multiplies them by `w_in`. None where the loop cannot have
    such lines.
    """
    encoding, ranges = blocks[0].programs[0].encoding, blocks[0].ranges
    same = all(b.programs[0].encoding == encoding and np.array_equal(b.ranges, ranges) for b in blocks)
    if encoding.signed != "zero_point" or not same or not _one_range(ranges[:inputs], ranges[inputs:]):
        return None
    digits, parts, rest = encoding.digits, [], list(held)
    for block in blocks:
        mine, rest = rest[: len(block.programs)], rest[len(block.programs) :]
        lines = _lines(mine)
        parts.append(lines.reshape(len(lines), digits, -1))
    weights = np.concatenate(parts, axis=2).reshape(len(ranges), -1)
    return SequenceLoop(
        weights,
        np.concatenate([block.ladders[0].scales for block in blocks]),
        inputs=inputs,
        w_in=w_in,
        digits=digits,
        bits=encoding.activation_bits,
        bias=bias.astype(np.float64),
        leak=leak,
        input_range=float(ranges[0]),
        state_range=float(ranges[-1]),
        activation=activation,
        precision=precision,
    )


def _one_range(*groups: Doubles) -> bool:
    return not any(np.any(group != group[:1]) for group in groups)


def _lines(held: Sequence[Program]) -> NDArray[np.int8]:
    """Return the weights of programs that share the lines among them, (lines, digits * outputs)."""
    return np.ascontiguousarray(np.concatenate([program.layers[0].weights for program in held]))
