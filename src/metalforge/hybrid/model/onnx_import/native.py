"""ONNX nodes that are ops of the graph's own: products with constant matrices, activations, concat, add."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Reals
from metalforge.hybrid.model import ops
from metalforge.reservoir import ActivationName, EsnWeights
from metalforge.substrates import Quantized

_MOVED = "Expand Flatten Gather Identity MaxPool Reshape Slice Squeeze Tile Transpose Unsqueeze"
MOVING = frozenset(_MOVED.split())
"""Operators whose results are numbers of their first input."""
PLAIN: Mapping[str, ops.ElementwiseName] = {"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu"}
"""Activations without attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Where dequantised constants come from: scale times integers, with one scale or one per place of `axis`."""

    values: NDArray[np.int64]
    scales: Reals
    axis: int | None

    def transposed(self) -> "Integers":
        """Return those of the transposed matrix."""
        return Integers(values=self.values.T, scales=self.scales, axis=None if self.axis is None else 1 - self.axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A constant."""

    array: NDArray[Any]
    integers: Integers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A value of the graph by its name there: its type (an ONNX code) and its shape, None where the batch is."""

    name: str
    kind: int
    shape: ops.Shape


Value: TypeAlias = Known | Open


def native_op(
    op_type: str,
    attributes: Mapping[str, Any],
    args: Sequence[Value | None],
    result: Open,
    *,
    real: int,
    opset: int,
    wanted: Sequence[bool] = (True,),
) -> ops.Op | None:
    """Return the op of a node whose numbers are all of the graph's type `real`; None when only software has it.

    `wanted` says which of its outputs have a name.
    """
    if op_type == "Identity":
        return ops.Elementwise(function="identity")  # of any type
    opened = [arg for arg in args if isinstance(arg, Open)]
    if any(arg.kind != real for arg in [*opened, result]):
        return None
    match op_type:
        case "Gemm" | "MatMul":
            return _product(attributes, args)
        case "RNN":
            return _recurrence(attributes, args, wanted)
        case "Add" | "Sum" if len(opened) == len(args) and len({arg.shape for arg in opened}) == 1:
            return ops.Add()
        case "Concat" if len(opened) == len(args):
            axis, rank = int(attributes["axis"]), len(result.shape)
            fixed = -rank <= axis < rank and all(arg.shape[axis] is not None for arg in opened)
            return ops.Concat(axis=axis) if fixed else None
        case _:
            function = _activation(op_type, attributes, args, opset)
            return None if function is None else ops.Elementwise(function=function)


def _activation(
    op_type: str, attributes: Mapping[str, Any], args: Sequence[Value | None], opset: int
) -> ops.ElementwiseName | None:
    x = args[0]
    match op_type:
        case "Gelu":
            return "gelu" if attributes.get("approximate", b"none") == b"none" else None
        case "Clip":
            ends = [arg.array.item() if isinstance(arg, Known) and arg.array.size == 1 else None for arg in args[1:3]]
            if opset < 11:
                ends = [attributes.get("min"), attributes.get("max")]
            return "bounded_relu" if ends == [0.0, 1.0] else None
        case "Softmax" if isinstance(x, Open):
            # Before opset 13 it ran over all axes from one on: the last alone is the same thing.
            axis = int(attributes.get("axis", 1 if opset < 13 else -1))
            return "softmax" if axis in (-1, len(x.shape) - 1) else None
        case name:
            return PLAIN.get(name)


def _product(attributes: Mapping[str, Any], args: Sequence[Value | None]) -> ops.FullyConnectedOp | None:
    """Return x W^T + b of a Gemm or MatMul whose right-hand side is a constant matrix; None for any other."""
    x, matrix = args[:2]
    if not isinstance(x, Open) or not x.shape or x.shape[-1] is None:
        return None
    if not isinstance(matrix, Known) or matrix.array.ndim != 2 or attributes.get("transA"):
        return None
    upright = bool(attributes.get("transB", 0))
    alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
    real = matrix.array.dtype.type
    weights = np.ascontiguousarray(matrix.array if upright else matrix.array.T)
    bias, added = None, args[2] if len(args) > 2 else None
    if added is not None:
        row = bias_row(added, len(weights)) if isinstance(added, Known) else None
        if row is None:
            return None
        bias = real(beta) * row
    if matrix.integers is not None:
        exact = _quantized(matrix.integers if upright else matrix.integers.transposed(), alpha)
        if exact is not None:
            return ops.FullyConnectedOp(weights=exact[0], bias=bias, precision=exact[1])
    return ops.FullyConnectedOp(weights=real(alpha) * weights, bias=bias, precision=ops.Precision.ANY)


def _recurrence(
    attributes: Mapping[str, Any], args: Sequence[Value | None], wanted: Sequence[bool]
) -> ops.RecurrentSequence | None:
    """Return an RNN of one direction, constant weights and a known number of steps; None for any other."""
    given: list[Value | None] = [*args, *([None] * (6 - len(args)))]
    x, w, r, bias, _, start = given
    direction = attributes.get("direction", b"forward")
    known = isinstance(w, Known) and isinstance(r, Known) and (bias is None or isinstance(bias, Known))
    if not known or direction not in (b"forward", b"reverse") or not isinstance(x, Open) or x.shape[0] is None:
        return None
    if isinstance(start, Known) and start.array.any():  # a start that is not rest, the same in every call
        return None
    assert isinstance(w, Known)
    assert isinstance(r, Known)
    real = w.array.dtype
    both = np.zeros((2, w.array.shape[1]), real) if not isinstance(bias, Known) else bias.array[0].reshape(2, -1)
    (name,) = attributes.get("activations", (b"Tanh",))
    every: tuple[ops.SequenceOutput, ...] = ("states", "last")
    return ops.RecurrentSequence(
        weights=EsnWeights(
            w_in=np.ascontiguousarray(w.array[0]),
            w_res=np.ascontiguousarray(r.array[0]),
            bias=both.sum(axis=0, dtype=real),
            activation=cast("ActivationName", name.decode().lower()),  # one of `reading.GATES`
        ),
        gives=tuple(output for output, there in zip(every, wanted, strict=False) if there),
        reverse=direction == b"reverse",
    )


def bias_row(value: Known, outputs: int) -> Reals | None:
    """Return a constant as one number per output; None when it is not the same for all rows."""
    shape = value.array.shape
    if any(n != 1 for n in shape[:-1]) or shape[-1:] not in ((), (1,), (outputs,)):
        return None
    return np.ascontiguousarray(np.broadcast_to(value.array.reshape(-1), (outputs,)))


def bounds_of(
    op_type: str, args: Sequence[Value | None], known: Mapping[str, tuple[float, float]], integer: np.dtype[Any]
) -> tuple[float, float] | None:
    """Return the smallest and largest number that a node can give; None where nothing limits it.

    Dequantised integers are limited by their type, `integer`: scale (q - zero), for all q that it holds. Operators
    that move numbers or rectify them keep the limits of their input in `known`.
    """
    x = args[0] if args else None
    if not isinstance(x, Open):
        return None
    match op_type:
        case "DequantizeLinear":
            scale, zero = args[1], args[2] if len(args) > 2 else None
            narrow = integer.kind in "iu" and integer.itemsize <= 2
            if not narrow or not isinstance(scale, Known) or isinstance(zero, Open):
                return None
            shift = np.float64(0) if zero is None else zero.array.astype(np.float64)
            limits = np.iinfo(integer)
            ends = [scale.array * (q - shift).astype(scale.array.dtype) for q in (limits.min, limits.max)]
            return float(np.min(ends)), float(np.max(ends))
        case "Relu" if x.name in known:
            low, high = known[x.name]
            return max(low, 0.0), max(high, 0.0)
        case name:
            return known.get(x.name) if name in MOVING else None


def integers_behind(op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Known]) -> Integers | None:
    """Return the integers behind what an operator makes of constants; None where there are none.

    Those of a dequantised matrix come without the zero point; there are none where scales come by blocks.
    """
    behind = inputs[0].integers if inputs else None
    if op_type == "Identity" or (behind is None and op_type != "DequantizeLinear"):
        return behind
    if op_type == "Transpose" and behind is not None and list(attributes.get("perm", [1, 0])) == [1, 0]:
        return behind.transposed()
    if op_type != "DequantizeLinear" or inputs[0].array.ndim != 2 or attributes.get("block_size", 0):
        return None
    x, scale, *zero = (given.array for given in inputs)
    axis = int(attributes.get("axis", 1)) % 2
    values = x.astype(np.int64)
    if zero:
        column = zero[0].astype(np.int64).reshape(-1)
        values = values - (column[0] if column.size == 1 else column.reshape((-1, 1) if axis == 0 else (1, -1)))
    return Integers(values=values, scales=scale.reshape(-1), axis=None if scale.size == 1 else axis)


def _quantized(integers: Integers, factor: float) -> tuple[Quantized, ops.Precision] | None:
    """Return a weight matrix (outputs, inputs) as integers and what the NPU makes of them; None when it cannot be.

    It can when there is one scale, or one per output. Those of magnitude 7 and less are the chip's own int4; -8 is not.
    """
    low, high = int(integers.values.min()), int(integers.values.max())
    top = max(-low, high)
    if integers.axis == 1 or top > np.iinfo(np.int16).max:
        return None
    narrow = low >= -128 and high <= 127
    if top <= 7:
        limits, precision = (-7, 7), ops.Precision.INT4
    elif narrow:
        limits, precision = (min(low, -127), 127), ops.Precision.INT8
    else:
        limits, precision = (-top, top), ops.Precision.ANY
    values: Any = np.ascontiguousarray(integers.values.astype(np.int8 if narrow else np.int16))
    scales = np.atleast_1d(integers.scales.astype(np.float64) * factor)
    return Quantized(values=values, scales=scales, limits=limits, error=np.zeros(values.shape)), precision
