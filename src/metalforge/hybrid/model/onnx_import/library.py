"""The two packages of the extra `onnx`, imported when they are first needed."""

from typing import Any

from metalforge.core.errors import PluginError

__all__ = ["onnx_library", "onnx_runtime"]

HINT = "hint: pip install 'metalforge[onnx]'"


def onnx_library() -> Any:
    """Return the package `onnx`, which reads files and tells shapes."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.helper
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.reference
        import onnx.shape_inference
    except ImportError as error:
        raise PluginError(f"reading ONNX files wants the package `onnx` ({error})\n{HINT}") from error
    return onnx


def onnx_runtime() -> Any:
    """Return the package `onnxruntime`, which runs what no NPU does."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PluginError(
            f"parts of this model run on the host, by the package `onnxruntime` ({error})\n{HINT}"
        ) from error
    return onnxruntime
