"""Whatever stands for a model, as the graph that a router places: a graph, a network, an estimator, or a file."""

import os
from pathlib import Path
from typing import Any, TypeAlias

from metalforge.core.errors import SpecError
from metalforge.core.files import opened
from metalforge.reservoir.files import as_weights

from .graph import OpGraph, graph_from_esn

Model: TypeAlias = OpGraph | Any
"""An `OpGraph`, an `EsnWeights`, a fitted estimator, or a path."""
WEIGHTS, ONNX = (".safetensors", ".json"), (".onnx",)


def as_graph(model: Model) -> OpGraph:
    """Return the graph of a model; that of a file has the file's name."""
    if isinstance(model, OpGraph):
        return model
    if not isinstance(model, str | os.PathLike):
        return graph_from_esn(as_weights(model))
    path = Path(model)
    if path.suffix in WEIGHTS:
        return graph_from_esn(as_weights(path), name=path.stem)
    if path.suffix not in ONNX:
        with opened(path):
            raise SpecError(f"a model is a file of kind {', '.join(ONNX + WEIGHTS)}. Got `{path.suffix}`")
    from .onnx_import import load_onnx  # an extra

    return load_onnx(path)
