"""ONNX nodes that are ops of the graph's own: products with constant matrices, activations, concat, add."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.model.ops import Add, Concat, Elementwise, ElementwiseName, FullyConnected, Op, Precision

from .model import OnnxNode
from .rewrite import Arguments
from .values import Known, Open, quantized

__all__ = ["bias_row", "native_op"]

PLAIN: Mapping[str, ElementwiseName] = {"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu"}
"""Activations without attributes."""


def native_op(node: OnnxNode, args: Arguments, result: Open, dtype: str) -> Op | None:
    """Return the op of a node whose numbers are all of the graph's type; None when only software has it."""
    if node.op_type == "Identity":
        return Elementwise(function="identity")  # of any type
    opened = [arg for arg in args if isinstance(arg, Open)]
    if any(arg.dtype != dtype for arg in [*opened, result]):
        return None
    match node.op_type:
        case "Gemm" | "MatMul":
            return _product(node, args)
        case "Add" | "Sum" if len(opened) == len(args) and len({arg.shape for arg in opened}) == 1:
            return Add()
        case "Concat" if len(opened) == len(args):
            axis = int(node.attributes["axis"])
            return None if any(arg.shape[axis] is None for arg in opened) else Concat(axis=axis)
        case _:
            function = _activation(node, args)
            return None if function is None else Elementwise(function=function)


def _activation(node: OnnxNode, args: Arguments) -> ElementwiseName | None:
    x = args[0]
    match node.op_type:
        case "Gelu":
            return "gelu" if node.attributes.get("approximate", "none") == "none" else None
        case "Clip":
            ends = [arg.array.item() if isinstance(arg, Known) and arg.array.size == 1 else None for arg in args[1:3]]
            return "bounded_relu" if ends == [0.0, 1.0] else None
        case "Softmax" if isinstance(x, Open):
            axis = int(node.attributes.get("axis", -1))
            return "softmax" if axis in (-1, len(x.shape) - 1) else None
        case name:
            return PLAIN.get(name)


def _product(node: OnnxNode, args: Arguments) -> FullyConnected | None:
    """Return x W^T + b of a Gemm or MatMul whose right-hand side is a constant matrix; None for any other."""
    x, matrix = args[:2]
    if (
        not isinstance(x, Open)
        or not isinstance(matrix, Known)
        or matrix.array.ndim != 2
        or node.attributes.get("transA")
    ):
        return None
    if not x.shape or x.shape[-1] is None:
        return None
    turned = bool(node.attributes.get("transB", 0))
    alpha, beta = float(node.attributes.get("alpha", 1.0)), float(node.attributes.get("beta", 1.0))
    real = matrix.array.dtype.type
    weights = np.ascontiguousarray(matrix.array if turned else matrix.array.T)
    bias, added = None, args[2] if len(args) > 2 else None
    if added is not None:
        row = bias_row(added, len(weights)) if isinstance(added, Known) else None
        if row is None:
            return None
        bias = real(beta) * row
    if (exact := quantized(matrix.integers, transposed=not turned, factor=alpha)) is not None:
        return FullyConnected(weights=exact[0], bias=bias, precision=exact[1])
    return FullyConnected(weights=real(alpha) * weights, bias=bias, precision=Precision.ANY)


def bias_row(value: Known, outputs: int) -> NDArray[np.floating[Any]] | None:
    """Return a constant as one number an output; None when it is not the same for all rows."""
    shape = value.array.shape
    if any(n != 1 for n in shape[:-1]) or shape[-1:] not in ((), (1,), (outputs,)):
        return None
    return np.ascontiguousarray(np.broadcast_to(value.array.reshape(-1), (outputs,)))
