"""Whatever stands for a model, as the graph that a router places: a graph, a network, an estimator, or a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from metalforge.core import SpecError, opened
from metalforge.reservoir import as_weights

from .graph import OpGraph, graph_from_esn

Model: TypeAlias = OpGraph | Any
"""An `OpGraph`, an `EsnWeights`, a fitted estimator, or a path."""
WEIGHTS, ONNX = (".safetensors", ".json"), (".onnx",)
FORMATS = (
    ".onnx (PyTorch, Keras, scikit-learn and others write it), .safetensors (a network of metalforge), .json (a "
    "network of hotSpring)"
)
"""What a model may be read from, in words."""
EXPORTS = {
    ".pt .pth .pt2 .ckpt": "torch.onnx.export(model, inputs, 'model.onnx')",
    ".h5 .keras .hdf5 .pb .tflite": "python -m tf2onnx.convert, or model.export('model.onnx', format='onnx')",
    ".pkl .pickle .joblib": "skl2onnx.to_onnx(estimator, X[:1], options={'zipmap': False}); of reservoirpy "
    "metalforge.reservoir.save_weights(from_reservoirpy(model), 'model.safetensors')",
}
"""Files of other tools, by their endings, and what makes one of these kinds of them."""


def as_graph(model: Model) -> OpGraph:
    """Return the graph of a model; that of a file has the file's name."""
    if isinstance(model, OpGraph):
        return model
    if not isinstance(model, str | os.PathLike):
        return graph_from_esn(as_weights(model))
    path = Path(model)
    if path.suffix in WEIGHTS:
        return graph_from_esn(as_weights(path), name=path.stem)
    expect_model(path)
    from .onnx_import import load_onnx  # an extra

    return load_onnx(path)


def expect_model(path: Path, others: Mapping[str, str] | None = None) -> None:
    """Raise for a file that is of no kind that models are read from, with what there is and what to do about it.

    `others` are kinds that are taken as well: endings, and what they are.
    """
    if path.suffix in (*ONNX, *WEIGHTS, *(others or {})):
        return
    hint = next((f"\nhint: {how}" for endings, how in EXPORTS.items() if path.suffix.lower() in endings.split()), "")
    known = "".join(f", {ending} ({what})" for ending, what in (others or {}).items())
    with opened(path):
        raise SpecError(f"a model is a file of kind {FORMATS}{known}. Got `{path.suffix or path.name}`{hint}")
