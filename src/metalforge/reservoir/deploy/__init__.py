"""Trained networks for other runtimes: weights in, an ONNX step or a C header out."""

from .c_header import write_c_header
from .onnx_step import export_onnx_step
from .tables import Quantizer

__all__ = ["Quantizer", "export_onnx_step", "write_c_header"]
