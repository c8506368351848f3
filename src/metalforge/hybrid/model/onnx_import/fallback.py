"""ONNX nodes that only software runs: the reason, and how much work they are."""

from collections.abc import Mapping, Sequence
from math import prod

from metalforge.hybrid.model.operators import arithmetic, quantized, recurrent, reductions, shaping, windows
from metalforge.hybrid.model.ops import SoftwareOnly

from .model import OnnxNode
from .rewrite import Arguments
from .values import Known, Open

__all__ = ["software_op"]

MOVED = "moves numbers or counts extents, computes nothing"
WINDOWS = "slides a window; only fully connected layers are put on the NPU"
GATES = "its gates multiply two values that change; an NPU product has fixed weights"
ROUNDED = "rounds or multiplies ONNX integers, which is done on the host"
BOTH_CHANGE = "has no constant matrix on its right; an NPU product has fixed weights"
BY_ENTRY = "a function of single entries or a broadcast, which no NPU layer has"
OVER_AXES = "a sum, extreme or normalisation over axes, which no NPU layer has"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(arithmetic.TABLE, BY_ENTRY),
    **dict.fromkeys(["Gemm", "MatMul"], BOTH_CHANGE),
    **dict.fromkeys(shaping.TABLE, MOVED),
    **dict.fromkeys(windows.TABLE, WINDOWS),
    **dict.fromkeys(recurrent.TABLE, GATES),
    **dict.fromkeys(quantized.TABLE, ROUNDED),
    **dict.fromkeys(reductions.TABLE, OVER_AXES),
}
"""Why no NPU runs an operator."""


def software_op(node: OnnxNode, args: Arguments, found: Sequence[Open]) -> SoftwareOnly:
    """Return the op that computes these values on the host."""
    kind = node.op_type
    return SoftwareOnly(
        op_type=kind,
        attributes=node.attributes,
        constants=tuple(arg.array if isinstance(arg, Known) else None for arg in args),
        absent=tuple(i for i, arg in enumerate(args) if arg is None),
        output_shapes=tuple(value.shape for value in found),
        reason=REASONS[kind],
        operations=_operations(node, args, found[0]),
    )


def _operations(node: OnnxNode, args: Arguments, result: Open) -> float:
    """Return two for each multiplication and addition of a product, for one sample; 0 for what has no products."""
    shapes: list[tuple[int, ...]] = [() if arg is None else arg.trials[0].shape for arg in args]
    match node.op_type:
        case "Conv":
            return 2.0 * result.numbers * prod(shapes[1][1:])
        case "Gemm":
            return 2.0 * result.numbers * shapes[0][0 if node.attributes.get("transA") else 1]
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return 2.0 * result.numbers * shapes[0][-1]
        case "RNN" | "GRU" | "LSTM":
            return 2.0 * shapes[0][0] * (prod(shapes[1]) + prod(shapes[2]))
        case _:
            return 0.0
