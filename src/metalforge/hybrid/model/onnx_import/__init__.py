"""Models from ONNX files (extra `onnx`): what an NPU may run becomes an op, the rest whole parts that the host runs.

`reading` takes a file in and refuses what cannot be trusted, `shapes` tells how large every value is before anything
runs, `lowering` makes the graph, and `host` runs what stays in ONNX.
"""

from .lowering import load_onnx

__all__ = ["load_onnx"]
