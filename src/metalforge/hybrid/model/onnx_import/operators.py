"""The ONNX operators that models may have: why no NPU runs each, and how much work it is.

The packages `onnx` and `onnxruntime` are imported when they are first needed.
"""

import tomllib
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from metalforge.core import PluginError

REASONS: Mapping[str, str] = {
    name: group["reason"]
    for group in tomllib.loads(Path(__file__).with_name("operators.toml").read_text(encoding="utf-8"))["group"]
    for name in group["operators"]
}
"""Every operator that is understood."""
ML_OPERATORS = frozenset({"ArrayFeatureExtractor", "Scaler"})
"""Those of the domain ai.onnx.ml; all others belong to the standard domain."""


def operations(op_type: str, attributes: Mapping[str, Any], inputs: Sequence[tuple[int, ...]], numbers: int) -> float:
    """Return two for each multiplication and addition of a product; 0 for what has no products.

    `numbers` is how many the first result has for one sample.
    """
    match op_type:
        case "Conv":
            return 2.0 * numbers * prod(inputs[1][1:])
        case "Gemm":
            return 2.0 * numbers * inputs[0][0 if attributes.get("transA") else 1]
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return 2.0 * numbers * inputs[0][-1]
        case "RNN" | "GRU" | "LSTM":
            return 2.0 * inputs[0][0] * (prod(inputs[1]) + prod(inputs[2]))
        case _:
            return 0.0


HINT = "hint: pip install 'metalforge[onnx]'"


class _Onnx:
    def __getattr__(self, name: str) -> Any:
        try:
            import onnx
            import onnx.inliner
            import onnx.reference.op_run
        except ImportError as error:
            raise PluginError(f"reading ONNX files wants the package `onnx` ({error})\n{HINT}") from error
        return getattr(onnx, name)


onnx: Any = _Onnx()
"""The package `onnx`, which reads files and tells shapes; imported with the first of its names that is asked for."""


def titled(node: Any) -> str:
    """Return a node as error messages name it."""
    return f"node `{node.name}` ({node.op_type})"


def kind_name(code: int) -> str:
    """Return the name of a type of numbers."""
    known = onnx.TensorProto.DataType
    return str(known.Name(code)) if code in known.values() else str(code)


def attributes_of(node: Any) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


DEQUANTIZED_SINCE = 19
"""The first opset whose DequantizeLinear the standard's reference implementation has."""


def reference_evaluator(model: Any) -> Any:
    """Return the standard's reference implementation of a model, with DequantizeLinear for all opsets that have it."""
    opset = max(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))

    class DequantizeLinear(onnx.reference.op_run.OpRun):  # type: ignore[misc]  # found by this name
        op_domain = ""

        def _run(self, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, **_: Any) -> tuple[Any]:
            shape = [1] * x.ndim
            if scale.size > 1:
                shape[axis] = scale.size
            values = x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64).reshape(shape))
            return (values.astype(scale.dtype) * scale.reshape(shape),)

    missing = [DequantizeLinear] if opset < DEQUANTIZED_SINCE else None
    return onnx.reference.ReferenceEvaluator(model, new_ops=missing)


def onnx_runtime() -> Any:
    """Return the package `onnxruntime`, which runs what no NPU does."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PluginError(
            f"parts of this model run on the host, by the package `onnxruntime` ({error})\n{HINT}"
        ) from error
    return onnxruntime
