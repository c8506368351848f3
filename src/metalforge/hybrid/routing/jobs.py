"""Work for the device, compiled: which nodes a job computes, its programs, and what rounding does to its results.

A `LinearJob` is one matrix: a layer, several sibling layers, or the packed matrix of a recurrent step; bias, activation
and leak are the host's. A `ChainJob` is layers with bounded ReLUs between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.program import Encoding, Program
from metalforge.substrates.npu.quantize import Quantized

from .chain import ChainStage, CompiledChain, compile_chain
from .encodings import Weights
from .ranges import ValueRange

__all__ = ["ChainJob", "Job", "LinearJob", "build_chain", "build_linear", "loading_order", "program_name"]

LONGEST_NAME = 60
"""Of a node, in the name of its program: there must be room for what is added to it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearJob:
    """y = W x for some nodes, in blocks of rows; `spans` says which rows belong to which node."""

    name: str
    nodes: tuple[str, ...]
    spans: Mapping[str, slice]
    blocks: tuple[CompiledLinear, ...]
    rows: tuple[slice, ...]
    encoding: Encoding
    error: float
    """Predicted relative error (`encodings`)."""
    positions: int
    """Vectors of one sample: the extents between the batch and the last axis."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """What goes to the device."""
        return tuple(program for block in self.blocks for program in block.programs)

    @property
    def passes(self) -> int:
        """Chip rows that one sample takes, in all programs."""
        return self.positions * len(self.programs) * (self.encoding.activation_bits // 4)

    @property
    def error_bound(self) -> NDArray[np.float64]:
        """The largest error of each output for inputs within their ranges."""
        return np.concatenate([block.error_bound for block in self.blocks])

    @property
    def ranges(self) -> NDArray[np.float64]:
        """The largest modulus of each input line."""
        return np.concatenate([ladder.ranges for ladder in self.blocks[0].ladders])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainJob(CompiledChain):
    """Layers with bounded ReLUs between them, in one program of 4 bits."""

    name: str
    nodes: tuple[str, ...]
    positions: int

    @property
    def programs(self) -> tuple[Program, ...]:
        """What goes to the device."""
        return (self.program,)

    @property
    def passes(self) -> int:
        """Chip rows that one sample takes."""
        return self.positions

    @property
    def encoding(self) -> Encoding:
        """Digits are those of the last layer."""
        return self.program.encoding

    @property
    def ranges(self) -> NDArray[np.float64]:
        """The largest modulus of each input line."""
        return self.first.ranges


Job: TypeAlias = LinearJob | ChainJob


def build_linear(
    nodes: Sequence[str],
    matrix: Weights,
    x: ValueRange,
    encoding: Encoding,
    error: float,
    *,
    spans: Mapping[str, slice] | None = None,
    rows: Sequence[slice] = (),
    positions: int = 1,
) -> LinearJob:
    """Return a job for a matrix (outputs, inputs), whole or in blocks of rows."""
    outputs = _rows(matrix)
    blocks = tuple(rows) or (slice(0, outputs),)
    name = program_name(nodes)
    names = [name] if len(blocks) == 1 else [f"{name}[{span.start}:{span.stop}]" for span in blocks]
    ranges = x.of_one_size().largest if isinstance(matrix, Quantized) else x.largest
    return LinearJob(
        name=name,
        nodes=tuple(nodes),
        spans=spans or {nodes[0]: slice(0, outputs)},
        blocks=tuple(
            compile_linear(part, _take(matrix, span), encoding=encoding, ranges=ranges)
            for part, span in zip(names, blocks, strict=True)
        ),
        rows=blocks,
        encoding=encoding,
        error=error,
        positions=positions,
    )


def build_chain(graph: OpGraph, nodes: Sequence[str], x: ValueRange, *, digits: int, positions: int = 1) -> ChainJob:
    """Return a job for layers and the bounded ReLUs that follow them; raises `ProgramError` where the chip cannot.

    A bounded ReLU that follows no layer of the run gets the identity for one.
    """
    stages: list[ChainStage] = []
    for name in nodes:
        op = graph[name].op
        if isinstance(op, FullyConnectedOp):
            weights: Weights = op.weights if isinstance(op.weights, Quantized) else op.matrix.astype(np.float64)
            stages.append(ChainStage(name=program_name([name]), weights=weights, bias=op.bias, rectified=False))
        elif isinstance(op, Elementwise) and stages:
            stages.append(replace(stages.pop(), rectified=True))
        else:
            stages.append(
                ChainStage(name=program_name([name]), weights=np.eye(x.largest.size), bias=None, rectified=True)
            )
    whole = x.of_one_size() if isinstance(stages[0].weights, Quantized) else x
    chain = compile_chain(program_name(nodes), stages, whole, digits=digits)
    parts = {field.name: getattr(chain, field.name) for field in fields(chain)}
    return ChainJob(name=chain.program.name, nodes=tuple(nodes), positions=positions, **parts)


def loading_order(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return jobs with the largest layers first: they have the fewest processors to choose from."""
    return tuple(sorted(jobs, key=lambda job: -max(w.inputs * w.units for p in job.programs for w in p.layers)))


def program_name(nodes: Iterable[str]) -> str:
    """Return a name for the program of some nodes that the chip's records can hold: short, printable, its own."""
    first, *others = nodes
    plain = "".join(c if c.isprintable() else "_" for c in first)
    if plain != first or len(plain) > LONGEST_NAME:
        plain = f"{plain[:LONGEST_NAME]}~{crc32(first.encode()):08x}"
    return f"{plain}+{len(others)}" if others else plain


def _rows(matrix: Weights) -> int:
    return int(matrix.values.shape[0] if isinstance(matrix, Quantized) else matrix.shape[0])


def _take(matrix: Weights, span: slice) -> NDArray[Any] | Quantized:
    """Return some rows of a matrix."""
    if not isinstance(matrix, Quantized):
        return matrix[span]
    scales = np.broadcast_to(matrix.scales, matrix.values.shape[:1])
    return Quantized(
        values=matrix.values[span], scales=scales[span].copy(), limits=matrix.limits, error=matrix.error[span]
    )
