r"""Work for the device, compiled: which nodes a job computes, its programs, and what rounding does to its results.

A `LinearJob` is one matrix: a layer, several sibling layers, or the packed matrix of a recurrent step; bias, activation
and leak are the host's. A `ChainJob` is layers with bounded ReLUs between them as one chip program: one call, 4 bits
between the layers.

A layer of real weights F and bias b takes inputs x_j = r_j (q_j - z) / L, with z = 8 for signed chip inputs and 0 for
others. With F_ij r_j = s_i W_ij + E_ij its potential p = W q gives F x + b = u_i (p - z sum_j W_ij) + b_i + rounding,
u_i = s_i / L. The chip's bounded ReLU, ceil((p - T) / d) within 0 .. 15, is 15 clip(F x + b, 0, 1) rounded to nearest
when

    d_i = 1 / (15 u_i)          floored to sixteenths, as the chip does
    T_i = z sum_j W_ij - b_i / u_i + d_i / 2          rounded to an integer

and the next layer reads q with L = 15, r = 1, z = 0. A last layer may be linear; then it can have several digits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import BriefRepr, Doubles
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.ops import FullyConnectedOp
from metalforge.substrates import (
    POTENTIAL_BITS,
    Activation,
    CompiledLinear,
    Encoding,
    FullyConnected,
    Ladder,
    Program,
    ProgramError,
    Quantized,
    build_ladder,
    compile_linear,
    encode_unsigned,
    encode_zero_point,
    input_levels,
    join_digits,
    overflow_certificate,
)

from .encodings import Option, Weights
from .ranges import EVENLY, ValueRange

LEVELS = 15
"""Steps of a 4-bit activation."""
FINEST = 16
"""Steps are whole sixteenths."""
LARGEST_STEP = 65535


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeviceJob(BriefRepr):
    """Some nodes of a graph as work for the device."""

    nodes: tuple[str, ...]
    positions: int = 1
    """Vectors of one sample: the extents between the batch and the last axis."""
    programs: tuple[Program, ...]
    """What goes to the device."""
    ranges: Doubles
    """The largest modulus of each input line."""
    error: float
    """Predicted relative error (`encodings`)."""
    error_bound: Doubles
    """The largest error of each output for inputs within their ranges."""
    beyond: int = 0
    """Numbers of the calibration data beyond the ranges."""

    @property
    def name(self) -> str:
        """What its programs are called after."""
        return program_name(self.nodes)

    @property
    def encoding(self) -> Encoding:
        """How the host writes its inputs and reads its outputs."""
        return self.programs[0].encoding

    @property
    def passes(self) -> int:
        """Chip rows that one sample takes, in all programs."""
        return self.positions * len(self.programs) * self.encoding.rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LinearJob(DeviceJob):
    """y = W x for some nodes, in blocks of rows; `spans` says which rows belong to which node."""

    spans: Mapping[str, slice]
    blocks: tuple[CompiledLinear, ...]

    @classmethod
    def of(cls, blocks: Sequence[CompiledLinear], spans: Mapping[str, slice], **fields: Any) -> "LinearJob":
        """Return the job of matrices that lie one below the other."""
        return cls(
            nodes=tuple(spans),
            spans=spans,
            blocks=tuple(blocks),
            programs=tuple(program for block in blocks for program in block.programs),
            ranges=blocks[0].ranges,
            error_bound=np.concatenate([block.error_bound for block in blocks]),
            **fields,
        )

    @property
    def rows(self) -> tuple[slice, ...]:
        """The rows of the whole matrix that each block has."""
        return one_after_another(len(block.error_bound) for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ChainJob(DeviceJob):
    """Layers with bounded ReLUs between them, in one program of 4 bits; its digits are those of the last layer."""

    offset: Doubles
    """What the host adds: the bias of a linear last layer."""

    @classmethod
    def of(cls, program: Program, nodes: Sequence[str], offset: Doubles, **fields: Any) -> "ChainJob":
        """Return the job of a program."""
        return cls(nodes=tuple(nodes), programs=(program,), ranges=program.ranges, offset=offset, **fields)

    def encode(self, x: ArrayLike) -> NDArray[np.uint8]:
        """Return chip inputs for real x (batch, inputs); beyond their ranges they are clamped."""
        write = encode_unsigned if self.encoding.signed == "unsigned" else encode_zero_point
        return write(x, self.ranges, 4).astype(np.uint8)

    def decode(self, outputs: NDArray[Any]) -> Doubles:
        """Return y (batch, outputs) from what the program gives."""
        return join_digits(outputs, self.encoding.digits) * self.programs[0].scales + self.offset


class _Stage(NamedTuple):
    """One layer of a chain: y = W x + b, and whether a bounded ReLU follows."""

    name: str
    weights: Weights
    bias: Doubles
    rectified: bool


class _Signal(NamedTuple):
    """What a layer reads: its range, and the error it carries already, at worst and in the mean square."""

    x: ValueRange
    bound: Doubles
    noise: Doubles


def build_chain(
    graph: OpGraph, nodes: Sequence[str], x: ValueRange, *, digits: int = 1, positions: int = 1
) -> ChainJob:
    """Return a job for layers and the bounded ReLUs that follow them; raises `ProgramError` where the chip cannot.

    A bounded ReLU that follows no layer of the run gets the identity for one. `digits` are those of the last layer, if
    it is linear; before a rectifier there is only one.
    """
    stages = _stages(graph, nodes, x.largest.size)
    x = x.of_one_size() if isinstance(stages[0].weights, Quantized) else x
    signed = "unsigned" if x.nonnegative else "zero_point"
    signal, error = _Signal(x, np.zeros(x.largest.size), np.zeros(x.largest.size)), 0.0
    layers: list[FullyConnected] = []
    for stage in stages:
        encoding = Encoding(digits=1 if stage.rectified else digits, signed="unsigned" if layers else signed)
        ladder = build_ladder(stage.weights, encoding, ranges=signal.x.largest)
        step = _step(stage, ladder) if stage.rectified else None
        signal, error = _after(stage, ladder, step, signal, fresh=not layers)
        layers.append(_layer(stage, ladder, step))
    program = Program(
        name=program_name(nodes),
        layers=tuple(layers),
        encoding=Encoding(activation_bits=4, digits=ladder.encoding.digits, signed=signed),
        scales=np.full(len(ladder.integers), 1 / LEVELS) if stage.rectified else ladder.scales,
        ranges=x.largest,
    )
    return ChainJob.of(
        program,
        nodes,
        np.zeros(program.outputs) if stage.rectified else stage.bias - ladder.scales * ladder.correction,
        positions=positions,
        error_bound=signal.bound,
        error=error,
        beyond=x.beyond[0],
    )


def _stages(graph: OpGraph, nodes: Sequence[str], width: int) -> list[_Stage]:
    stages: list[_Stage] = []
    for name in nodes:
        op = graph[name].op
        if isinstance(op, FullyConnectedOp):
            weights: Weights = op.weights if isinstance(op.weights, Quantized) else op.matrix.astype(np.float64)
            bias = np.zeros(weights.shape[0]) if op.bias is None else op.bias.astype(np.float64)
            stages.append(_Stage(program_name([name]), weights, bias, rectified=False))
        elif stages:
            stages.append(stages.pop()._replace(rectified=True))
        else:
            stages.append(_Stage(program_name([name]), np.eye(width), np.zeros(width), rectified=True))
    return stages


def _layer(stage: _Stage, ladder: Ladder, step: Doubles | None) -> FullyConnected:
    """Return a chip layer; raises where it could saturate or its thresholds have no room."""
    if step is None:
        layer = FullyConnected(name=stage.name, weights=ladder.chip_weights())
    else:
        threshold = np.rint(ladder.correction - stage.bias / ladder.scales + step / 2)
        if np.abs(threshold).max() >= 1 << (POTENTIAL_BITS - 1):
            raise ProgramError(f"layer `{stage.name}`: its bias needs thresholds beyond {POTENTIAL_BITS} bits")
        layer = rectified_layer(stage.name, ladder.chip_weights(), step, threshold)
    if not overflow_certificate(layer).safe:
        raise ProgramError(f"layer `{stage.name}` could saturate, and inside a chain it cannot be split")
    return layer


def rectified_layer(
    name: str, weights: NDArray[np.int8], step: Doubles, threshold: Doubles | NDArray[np.int32]
) -> FullyConnected:
    """Return a chip layer with its bounded ReLU; `weights` are (inputs, units), thresholds whole numbers."""
    return FullyConnected(
        name=name,
        weights=weights,
        activation=Activation.BOUNDED_RELU,
        act_step=step.astype(np.float32),
        threshold=threshold.astype(np.int32),
    )


def _step(stage: _Stage, ladder: Ladder) -> Doubles:
    """Return the steps of a rectifier, floored as the chip does."""
    wanted = 1 / (LEVELS * ladder.scales)
    step = np.floor(wanted * FINEST) / FINEST
    if np.any(step < 1 / FINEST) or np.any(step > LARGEST_STEP):
        raise ProgramError(
            f"layer `{stage.name}`: steps of {wanted.min():.3g} to {wanted.max():.3g} potentials are wanted, and the "
            f"chip has 1/{FINEST} to {LARGEST_STEP}; scale the weights"
        )
    return np.asarray(step)


def _after(
    stage: _Stage, ladder: Ladder, step: Doubles | None, before: _Signal, *, fresh: bool
) -> tuple[_Signal, float]:
    """Return what the next layer reads, and the relative error of what this one gives.

    `fresh`: the inputs are rounded here; later layers read integers as they are. Flooring a step makes the ramp
    steeper by a factor 1 + k, which multiplies the errors before it and adds at most k.
    """
    real = (stage.weights if isinstance(stage.weights, np.ndarray) else stage.weights.dequantize()).astype(np.float64)
    size = before.x.largest
    product = ladder.scales[:, np.newaxis] * ladder.integers
    weight = real * size - product * input_levels(ladder.encoding)
    share = (before.x.rms / size) ** 2
    bound = np.abs(weight).sum(axis=1) + np.abs(real) @ before.bound
    noise = weight**2 @ share + real**2 @ before.noise
    if fresh:
        bound = bound + np.abs(product).sum(axis=1) / 2
        noise = noise + np.sum(product**2, axis=1) / 12
    power = (real * size) ** 2 @ share + stage.bias**2
    if step is None:
        return _Signal(before.x, bound, noise), _relative(noise, power)
    k = 1 / (LEVELS * ladder.scales * step) - 1
    bound = (1 + k) * (bound + ladder.scales / 2) + 0.5 / LEVELS + k
    noise = (1 + k) ** 2 * (noise + ladder.scales**2 / 12) + 1 / (12 * LEVELS**2) + (k * EVENLY) ** 2
    rms = np.minimum(np.sqrt(power), EVENLY)
    x = ValueRange(sizes=np.ones((2, len(real))), rms=rms, nonnegative=True, source="bounded_relu is at most 1")
    return _Signal(x, bound, noise), _relative(noise, rms**2)


def _relative(noise: Doubles, power: Doubles) -> float:
    return float(np.sqrt(noise.sum() / power.sum())) if power.any() else 0.0


LONGEST_NAME = 60
"""Of a node, in the name of its program: there must be room for what is added to it."""


def build_linear(
    spans: Mapping[str, slice],
    matrix: Weights,
    x: ValueRange,
    option: Option,
    *,
    rows: Sequence[slice] = (),
    positions: int = 1,
) -> LinearJob:
    """Return a job for a matrix (outputs, inputs) of some nodes, whole or in blocks of rows."""
    blocks = rows or (slice(0, matrix.shape[0]),)
    name = program_name(spans)
    names = [name] if len(blocks) == 1 else [f"{name}[{span.start}:{span.stop}]" for span in blocks]
    x = x.at(option.encoding.activation_bits)
    x = x.of_one_size() if isinstance(matrix, Quantized) else x
    compiled = [
        compile_linear(part, _take(matrix, span), encoding=option.encoding, ranges=x.largest)
        for part, span in zip(names, blocks, strict=True)
    ]
    return LinearJob.of(compiled, spans, error=option.error, positions=positions, beyond=x.beyond[0])


def one_after_another(sizes: Iterable[int]) -> tuple[slice, ...]:
    """Return the places of parts of some sizes that follow each other."""
    ends = [0, *accumulate(sizes)]
    return tuple(slice(a, b) for a, b in pairwise(ends))


def loading_order(jobs: Sequence[DeviceJob]) -> tuple[DeviceJob, ...]:
    """Return jobs with the largest layers first: they have the fewest processors to choose from."""
    return tuple(sorted(jobs, key=lambda job: -max(w.inputs * w.units for p in job.programs for w in p.layers)))


def program_name(nodes: Iterable[str]) -> str:
    """Return a name for the program of some nodes that the chip's records can hold: short, printable, its own."""
    first, *others = nodes
    plain = "".join(c if c.isprintable() else "_" for c in first)
    if plain != first or len(plain) > LONGEST_NAME:
        plain = f"{plain[:LONGEST_NAME]}~{crc32(first.encode()):08x}"
    return f"{plain}+{len(others)}" if others else plain


def _take(matrix: Weights, span: slice) -> NDArray[Any] | Quantized:
    """Return some rows of a matrix."""
    if not isinstance(matrix, Quantized):
        return matrix[span]
    scales = np.broadcast_to(matrix.scales, matrix.shape[:1])[span].copy()
    return replace(matrix, values=matrix.values[span], scales=scales, error=matrix.error[span])
