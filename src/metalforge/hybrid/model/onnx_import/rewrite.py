"""Nodes in a simpler form that computes the same, and nodes of constants computed at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.operators import compute
from metalforge.hybrid.model.operators.quantized import INTEGERS

from .model import OnnxNode, Tensor
from .values import Integers, Known, Open, Value

__all__ = ["Arguments", "batch_only", "computed", "folded", "simplified"]

Array = NDArray[Any]
Arguments: TypeAlias = list[Value | None]
"""Of a node, by position; None where an optional one is absent."""

SHAPE_INPUTS: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
}
"""Inputs that decide the shape of the result (and the axes of a reduction): no number that comes in may change them."""
STEADY = frozenset(
    {
        *("Add", "Sub", "Mul", "Neg", "ReduceProd", "ReduceSum", "Cast", "Identity", "Where", "Range"),
        *("Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
    }
)
"""What keeps numbers polynomials of the batch, so that two trials speak for all. A comparison may turn at any batch."""
FIRST_STATES: Mapping[str, tuple[int, ...]] = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""Inputs that mean zero when they are absent."""


def simplified(node: OnnxNode, args: Arguments) -> tuple[OnnxNode, Arguments]:
    """Return a node and arguments that give the same; raises `SpecError` when a shape would depend on data."""
    for i in (1,) if node.op_type.startswith("Reduce") else SHAPE_INPUTS.get(node.op_type, ()):
        arg = args[i] if i < len(args) else None
        if isinstance(arg, Open) and not arg.batch_only:
            raise SpecError(f"has a result whose shape depends on the numbers that come in (its input {i})")
    match node.op_type:
        case "Dropout":
            training = args[2] if len(args) > 2 else None
            if training is not None and not (isinstance(training, Known) and not training.array.any()):
                raise SpecError("is in training mode; export the model for inference")
            return _identity(node), args[:1]
        case "CastLike":
            return simplified(replace(node, op_type="Cast", attributes={"to": _kind(args[1])}), args[:1])
        case "Cast" if _kind(args[0]) == node.attributes["to"]:
            return _identity(node), args
        case "QuantizeLinear" if "to" not in node.attributes:
            kind = _kind(args[2]) if len(args) > 2 and args[2] is not None else "uint8"
            return replace(node, attributes={**node.attributes, "to": _integer(kind)}), args
        case "Reshape":
            return node, [args[0], _with_free_extent(args[1])]
        case "Squeeze" if len(args) == 1:
            return node, [args[0], _unit_axes(args[0])]
        case "RNN" | "GRU" | "LSTM":
            first = FIRST_STATES[node.op_type]
            return node, [None if i in first and _always_zero(arg) else arg for i, arg in enumerate(args)]
        case _:
            return node, args


def batch_only(node: OnnxNode, args: Arguments) -> bool:
    """Whether what a node gives depends on the size of the batch alone, and in a way that two trials tell."""
    if node.op_type in ("Shape", "Size"):
        return True
    if any(isinstance(arg, Open) and not arg.batch_only for arg in args):
        return False
    if node.op_type == "Equal":  # extents are never negative: how exporters ask whether one is to be left as it is
        return any(isinstance(arg, Known) and bool(np.all(arg.array < 0)) for arg in args)
    if node.op_type == "Div" and isinstance(args[0], Open) and isinstance(args[1], Known):
        return args[1].array.dtype.kind == "i" and not any(np.any(trial % args[1].array) for trial in args[0].trials)
    return node.op_type in STEADY


def _identity(node: OnnxNode) -> OnnxNode:
    return replace(node, op_type="Identity", attributes={}, outputs=node.outputs[:1])


def _kind(value: Value | None) -> str:
    return "" if value is None else value.kind if isinstance(value, Known) else str(value.dtype)


def _integer(kind: str) -> str:
    if kind not in INTEGERS:
        raise SpecError(f"quantises to {kind}; supported: {', '.join(INTEGERS)}")
    return kind


def _with_free_extent(shape: Value | None) -> Value | None:
    """Return a new shape of which one extent depends on the batch as a constant with -1 there."""
    if not isinstance(shape, Open) or np.any(shape.trials[0] <= 0):
        return shape
    first, second = shape.trials
    moving = first != second
    return Known(array=np.where(moving, -1, first), kind="int64") if np.count_nonzero(moving) == 1 else shape


def _unit_axes(x: Value | None) -> Value | None:
    """Return the axes of extent 1, named so that a batch of 1 is not taken for one of them."""
    if not isinstance(x, Open):
        return None
    return Known(array=np.array([axis for axis, n in enumerate(x.shape) if n == 1], np.int64), kind="int64")


def _always_zero(value: Value | None) -> bool:
    """Whether a first state is the zeros that it would be if it were absent, whatever comes in."""
    return isinstance(value, Open) and value.batch_only and not any(trial.any() for trial in value.trials)


def computed(node: OnnxNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Return the outputs of a node for these inputs."""
    return compute(node.op_type, inputs, node.attributes, len(node.outputs))


def folded(node: OnnxNode, args: Arguments) -> list[Known]:
    """Return the outputs of a node of constants. Integers behind dequantised ones are remembered."""
    constants = [arg for arg in args if isinstance(arg, Known)]
    if node.op_type == "Constant":
        return [_constant(node)]
    if node.op_type == "Identity":
        return constants[:1]
    outputs = computed(node, [arg.array if isinstance(arg, Known) else None for arg in args])
    if node.op_type == "DequantizeLinear":
        return [Known(array=outputs[0], kind=str(outputs[0].dtype), integers=_integers(node, constants))]
    if node.op_type == "Transpose" and constants[0].integers is not None:
        turned = outputs[0].ndim == 2 and node.attributes.get("perm", [1, 0]) == [1, 0]
        integers = constants[0].integers.transposed() if turned else None
        return [Known(array=outputs[0], kind=str(outputs[0].dtype), integers=integers)]
    return [Known(array=output, kind=str(output.dtype)) for output in outputs]


def _constant(node: OnnxNode) -> Known:
    if len(node.attributes) != 1:
        raise SpecError(f"wants one value. Got {', '.join(node.attributes) or 'none'}")
    (name, value), *_ = node.attributes.items()
    if name == "value" and isinstance(value, Tensor):
        return Known(array=value.array, kind=value.kind)
    kind = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}.get(name)
    if kind is None:
        raise SpecError(f"holds a `{name}`, which is not supported")
    return Known(array=np.array(value, kind), kind=kind)


def _integers(node: OnnxNode, constants: Sequence[Known]) -> Integers | None:
    """Return the integers of a dequantised matrix, the zero point taken off; None where scales come by blocks."""
    x, scale, *zero = (constant.array for constant in constants)
    if x.ndim != 2 or node.attributes.get("block_size", 0):
        return None
    axis = int(node.attributes.get("axis", 1)) % 2
    values = x.astype(np.int64)
    if zero:
        column = zero[0].astype(np.int64).reshape(-1)
        values = values - (column[0] if column.size == 1 else column.reshape((-1, 1) if axis == 0 else (1, -1)))
    return Integers(values=values, scales=scale.reshape(-1), axis=None if scale.size == 1 else axis)
