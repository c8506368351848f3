"""Models from ONNX: records of a file in, a graph of ops out. `hybrid.onnx_` reads the file itself."""

from .lower import lower
from .model import KINDS, OPSETS, Extent, OnnxModel, OnnxNode, Tensor

__all__ = ["KINDS", "OPSETS", "Extent", "OnnxModel", "OnnxNode", "Tensor", "lower"]
