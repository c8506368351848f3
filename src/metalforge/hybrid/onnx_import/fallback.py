"""ONNX nodes that only software runs: the reason, and how much work they are."""

from collections.abc import Mapping, Sequence
from math import prod

from metalforge.hybrid.ops import SoftwareOnly

from .model import OnnxNode
from .rewrite import Arguments
from .values import Known, Open

__all__ = ["software_op"]

MOVED = "it only moves numbers or counts extents: nothing to compute for an NPU"
WINDOWS = "windows that slide: only fully connected layers are put on the NPU"
GATES = (
    "gates multiply values that both change, and the state has to stay on the host: an NPU product has fixed weights"
)
ROUNDED = "rounding and integers of ONNX stay on the host; a fully connected layer after it may go to the NPU"
BOTH_CHANGE = "a product without a constant matrix on its right: an NPU product has fixed weights"
BY_ENTRY = "a function of single entries or a broadcast: no NPU layer has it"
OVER_AXES = "a sum, an extreme or a normalisation over axes: no NPU layer has it"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        [
            *(
                "ArrayFeatureExtractor",
                "Cast",
                "Concat",
                "ConstantOfShape",
                "Expand",
                "Flatten",
                "Gather",
                "Pad",
                "Range",
            ),
            *("Reshape", "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        ],
        MOVED,
    ),
    **dict.fromkeys(["Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"], WINDOWS),
    **dict.fromkeys(["RNN", "GRU", "LSTM"], GATES),
    **dict.fromkeys(
        ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul"], ROUNDED
    ),
    **dict.fromkeys(["Gemm", "MatMul"], BOTH_CHANGE),
    **dict.fromkeys(
        ["ArgMax", "ArgMin", "BatchNormalization", "LayerNormalization", "LogSoftmax", "Softmax"], OVER_AXES
    ),
}
"""Why no NPU runs an operator; the others are functions of single entries."""


def software_op(node: OnnxNode, args: Arguments, found: Sequence[Open]) -> SoftwareOnly:
    """Return the op that computes these values on the host."""
    kind = node.op_type
    return SoftwareOnly(
        op_type=kind,
        attributes=node.attributes,
        constants=tuple(arg.array if isinstance(arg, Known) else None for arg in args),
        absent=tuple(i for i, arg in enumerate(args) if arg is None),
        output_shapes=tuple(value.shape for value in found),
        reason=REASONS.get(kind, OVER_AXES if kind.startswith("Reduce") else BY_ENTRY),
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
