"""A real matrix to chip programs and the host's two halves: encode before them, decode after.

One program is enough unless its potentials could saturate; then the inputs are split, each part is a program of its
own, and the host adds their integers: W q = sum_c W_c q_c.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Array, BriefRepr, Doubles

from .certificate import split_lines
from .ladder import Ladder, build_ladder, ladder_of
from .products import run_program
from .program import MAX_INPUTS, Encoding, FullyConnected, Head, Program, ProgramError
from .quantize import Clip, Quantized

Infer: TypeAlias = Callable[[Program, NDArray[np.uint8]], Array]
"""Runs a program on chip inputs (rows, lines) and returns its potentials (rows, units)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CompiledLinear(BriefRepr):
    """y = matrix @ x on the chip: program c takes the inputs `columns[c]`, in the encoding of `ladders[c]`.

    For an x within its ranges, each output is within `error_bound` of the real product.
    """

    programs: tuple[Program, ...]
    columns: tuple[slice, ...]
    ladders: tuple[Ladder, ...]
    error_bound: Doubles

    @property
    def program(self) -> Program:
        """The only program; raises when the inputs had to be split."""
        if len(self.programs) > 1:
            raise ProgramError(
                f"`{self.programs[0].name}` is one of {len(self.programs)}: one layer could saturate on so many "
                "inputs; use `programs`"
            )
        return self.programs[0]

    @property
    def name(self) -> str:
        """What the matrix was called when it was compiled."""
        first = self.programs[0].name
        return first if len(self.programs) == 1 else first.removesuffix(".0")

    @property
    def ranges(self) -> Doubles:
        """The largest size of each real input."""
        return np.concatenate([ladder.ranges for ladder in self.ladders])

    @property
    def inputs(self) -> int:
        """Number of real inputs."""
        return sum(ladder.ranges.size for ladder in self.ladders)

    def encode(self, x: ArrayLike) -> list[NDArray[np.uint8]]:
        """Return the chip inputs of each program for real x of shape (batch, inputs)."""
        real = np.asarray(x)
        if real.ndim != 2 or real.shape[1] != self.inputs:
            raise ProgramError(f"inputs must have shape (batch, {self.inputs}). Got {real.shape}")
        return [ladder.encode(real[:, span]) for ladder, span in zip(self.ladders, self.columns, strict=True)]

    def join(self, potentials: Sequence[Array]) -> NDArray[np.int64]:
        """Return the exact integers (batch, outputs) from the potentials of each program."""
        if len(potentials) != len(self.ladders):
            raise ProgramError(f"potentials of {len(self.ladders)} programs are wanted. Got {len(potentials)}")
        parts = [ladder.join(p) for ladder, p in zip(self.ladders, potentials, strict=True)]
        return parts[0] if len(parts) == 1 else np.asarray(np.sum(parts, axis=0))

    def decode(self, potentials: Sequence[Array]) -> Doubles:
        """Return y of shape (batch, outputs) from the potentials of each program."""
        return self.join(potentials) * self.ladders[0].scales

    def run(self, x: ArrayLike, infer: Infer = run_program) -> Doubles:
        """Return y of shape (batch, outputs) for x of shape (batch, inputs), by way of `infer`."""
        return self.decode([infer(program, rows) for program, rows in zip(self.programs, self.encode(x), strict=True)])


def compile_linear(
    name: str,
    matrix: ArrayLike | Quantized,
    *,
    encoding: Encoding = Encoding(),  # noqa: B008  frozen
    ranges: ArrayLike = 1.0,
    heads: Sequence[Head] = (),
    clip: Clip = "max",
) -> CompiledLinear:
    """Return programs that give matrix @ x, for a matrix (outputs, inputs) and inputs within `ranges`.

    Several programs, called name.0, name.1 and so on, when one could saturate or would have too many lines.
    """
    ladder = build_ladder(matrix, encoding, ranges=ranges, clip=clip)
    columns = _split_inputs(ladder)
    parts = [ladder.columns(span) for span in columns]
    names = [name] if len(parts) == 1 else [f"{name}.{i}" for i in range(len(parts))]
    programs = [
        Program(
            name=part_name,
            layers=(FullyConnected(name=part_name, weights=part.chip_weights()),),
            encoding=encoding,
            heads=tuple(heads),
            scales=part.scales,
            ranges=part.ranges,
        )
        for part_name, part in zip(names, parts, strict=True)
    ]
    real = matrix.dequantize() if isinstance(matrix, Quantized) else matrix
    return CompiledLinear(
        programs=tuple(programs),
        columns=tuple(columns),
        ladders=tuple(parts),
        error_bound=ladder.error_bound(real),
    )


def joined(programs: Sequence[Program], *, ranges: ArrayLike | None = None) -> CompiledLinear:
    """Return programs of one matrix, as they were written, as the matrix that they are parts of.

    `ranges` are for programs without any of their own. What rounding did to the matrix is not known any more.
    """
    ladders = tuple(ladder_of(program, ranges=ranges) for program in programs)
    ends = np.cumsum([0, *(ladder.ranges.size for ladder in ladders)])
    if any(not np.array_equal(ladder.scales, ladders[0].scales) for ladder in ladders):
        raise ProgramError("these programs are no parts of one matrix: their outputs have other scales")
    return CompiledLinear(
        programs=tuple(programs),
        columns=tuple(slice(int(a), int(b)) for a, b in pairwise(ends)),
        ladders=ladders,
        error_bound=np.full(len(ladders[0].scales), np.inf),
    )


def _split_inputs(ladder: Ladder) -> list[slice]:
    """Return the fewest runs of inputs whose programs cannot saturate."""
    lines = ladder.chip_weights()
    if ladder.encoding.signed != "two_rail":
        return split_lines(lines)
    # Both rails of an input go to the same program. Together they can lift a unit by 15 |w|, and lower it by as much.
    return split_lines(np.abs(lines[: len(lines) // 2]), max_lines=MAX_INPUTS // 2)
