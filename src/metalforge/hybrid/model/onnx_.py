"""Graphs from ONNX files. The one module that imports `onnx`, and only when it is called (extra `onnx`).

A file is somebody else's: it is read with a limit on its size, checked by the library's own checker, and refused with
the reason when it holds anything that would have to be guessed.
"""

from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from metalforge.core.errors import PluginError, SpecError
from metalforge.core.files import naming, opened

from .graph import OpGraph
from .onnx_import import KINDS, OPSETS, Extent, OnnxModel, OnnxNode, Tensor, lower
from .operators import ML_OPERATORS, OPERATORS

__all__ = ["LARGEST_FILE", "load_onnx"]

LARGEST_FILE = 256 * 2**20
"""Bytes: a hundred times what an NPU of this kind holds, and far below what would fill a host."""
STANDARD = ("", "ai.onnx")
"""The two names of the standard domain."""
BETWEEN = frozenset({"CastLike", "Constant", "Dropout"})
"""Operators that the lowering turns into others."""
EXTERNAL = 1
"""TensorProto.DataLocation: the numbers are in another file."""


def load_onnx(
    source: str | PathLike[str] | bytes | Any, *, name: str | None = None, outputs: Sequence[str] | None = None
) -> OpGraph:
    """Return the graph of an ONNX model: a path, the bytes of a file, or an `onnx.ModelProto`.

    `name` is the file's or the model's own by default. `outputs` names those that are wanted (all by default); what
    only the others need is left out. Extents of 1 at the front stay 1 as the file says; an open one is the batch.
    Raises `SpecError` for what cannot be taken, and `PluginError` where `onnx` is not installed.
    """
    onnx = _library()
    if isinstance(source, onnx.ModelProto):
        return _graph(onnx, source, name, outputs)
    if isinstance(source, bytes):
        return _graph(onnx, _parsed(onnx, source), name, outputs)
    if not isinstance(source, str | PathLike):
        raise SpecError(f"a model must be a path, bytes or an onnx.ModelProto. Got {type(source).__name__}")
    with opened(source) as (stream, size):
        _check_size(size)
        data = stream.read()
    with naming(source):
        return _graph(onnx, _parsed(onnx, data), name, outputs, Path(fspath(source)).stem)


def _library() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.inliner
        import onnx.numpy_helper
    except ImportError as error:
        raise PluginError(
            f"reading ONNX files wants the package `onnx` ({error})\nhint: pip install 'metalforge[onnx]'"
        ) from error
    return onnx


def _check_size(size: int) -> None:
    if size > LARGEST_FILE:
        raise SpecError(f"a model may have {LARGEST_FILE // 2**20} MiB. Got {size / 2**20:.0f} MiB")


def _parsed(onnx: Any, data: bytes) -> Any:
    _check_size(len(data))
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's implementations raise types of their own
        raise SpecError(f"not an ONNX file, or only a part of one: {error}") from error


def _graph(onnx: Any, model: Any, name: str | None, outputs: Sequence[str] | None, stem: str = "") -> OpGraph:
    """Return the graph of a parsed model."""
    _check_size(model.ByteSize())
    if not model.graph.node or not model.opset_import:
        raise SpecError("not an ONNX model, or an empty one: it has no nodes or names no opset")
    opset = _opset(model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    nodes = _wanted(model.graph, outputs)
    for node in nodes:
        _check_supported(node, opset, model)
    named = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _input(onnx, value) for value in model.graph.input if value.name not in named}
    read = {name for node in nodes for name in node.input}.union(outputs or (v.name for v in model.graph.output))
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in read]
    _check_tensors(onnx, model.graph, tensors, nodes)
    _check_rules(onnx, model)
    record = OnnxModel(
        name=name or stem or model.graph.name,
        opset=opset,
        inputs=inputs,
        constants={tensor.name: _tensor(onnx, tensor, tensor.name) for tensor in tensors},
        nodes=tuple(_node(onnx, node, i) for i, node in enumerate(nodes)),
        outputs=tuple(outputs or (value.name for value in model.graph.output)),
    )
    return lower(record)


def _opset(model: Any) -> int:
    """Return the version of the standard operators."""
    versions = {entry.domain: int(entry.version) for entry in model.opset_import}
    opset = next((versions[domain] for domain in STANDARD if domain in versions), None)
    if opset is None:
        raise SpecError("names no opset of the standard domain")
    if opset not in OPSETS:
        raise SpecError(
            f"opsets {OPSETS.start} to {OPSETS.stop - 1} are supported. Got {opset}"
            f"\nhint: onnx.version_converter.convert_version(model, {min(max(opset, OPSETS.start), OPSETS.stop - 1)})"
        )
    return opset


def _wanted(graph: Any, outputs: Sequence[str] | None) -> list[Any]:
    """Return the nodes that the wanted outputs depend on, in the order of the file."""
    known = [value.name for value in graph.output]
    for output in outputs or ():
        if output not in known:
            raise SpecError(f"no output `{output}`; there are {', '.join(known)}")
    needed = set(outputs or known)
    found = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            found.append(node)
    return found[::-1]


def _check_supported(node: Any, opset: int, model: Any) -> None:
    """Raise for an operator that is not known, with everything that identifies it."""
    standard = node.domain in STANDARD
    if node.op_type in ("If", "Loop", "Scan") and standard:
        raise SpecError(f"node `{node.name}` ({node.op_type}) has graphs inside; control flow is not supported")
    if standard and node.op_type in (OPERATORS.keys() | BETWEEN) - ML_OPERATORS:
        return
    if node.domain == "ai.onnx.ml" and node.op_type in ML_OPERATORS:
        return
    version = opset if standard else next((e.version for e in model.opset_import if e.domain == node.domain), "unknown")
    hint = ""
    if node.op_type == "ZipMap":
        hint = "\nhint: convert with options={'zipmap': False}, which gives the probabilities as an array"
    raise SpecError(
        f"operator `{node.op_type}` of node `{node.name}` (domain `{node.domain or 'ai.onnx'}`, opset {version}) "
        f"is not supported{hint}"
    )


def _check_tensors(onnx: Any, graph: Any, initializers: Iterable[Any], nodes: Iterable[Any]) -> None:
    """Raise for numbers that are in another file, or kept in a way that is not read here."""
    if graph.sparse_initializer:
        raise SpecError("sparse initialisers are not supported")
    attributes = (attribute for node in nodes for attribute in node.attribute)
    for tensor in (*initializers, *(a.t for a in attributes if a.type == onnx.AttributeProto.TENSOR)):
        if tensor.data_location == EXTERNAL or tensor.external_data:
            raise SpecError(
                f"the numbers of `{tensor.name}` are in another file; only models in one file are read"
                "\nhint: onnx.save(onnx.load(path), new_path, save_as_external_data=False)"
            )


def _check_rules(onnx: Any, model: Any) -> None:
    """Raise for what the library's own checker refuses, but for outputs whose shape the file leaves open."""
    checked = model
    if not all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
        checked = onnx.ModelProto()
        checked.CopyFrom(model)
        for value in checked.graph.output:
            # Shapes come from running the model; any declaration will do here.
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(checked)
    except onnx.checker.ValidationError as error:
        raise SpecError(f"breaks a rule of ONNX: {error}") from error
    except ValueError as error:  # text that is not UTF-8, which the checker's own message quotes, among others
        raise SpecError(f"cannot be checked: {error}") from error


def _input(onnx: Any, value: Any) -> tuple[tuple[Extent, ...], str]:
    """Return the extents and the type of an input."""
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        raise SpecError(f"input `{value.name}` must be a tensor with a shape")
    if tensor.elem_type not in KINDS:
        raise SpecError(f"input `{value.name}` is of type {_type(onnx, tensor.elem_type)}, which is not supported")
    # An extent of 0 or -1 is how some exporters write an open one.
    extents = [int(d.dim_value) if d.dim_value > 0 else str(d.dim_param) for d in tensor.shape.dim]
    return tuple(extents), KINDS[tensor.elem_type]


def _tensor(onnx: Any, tensor: Any, name: str) -> Tensor:
    """Return the numbers of a tensor; raises for NaN, unknown types and sizes that do not fit."""
    kind = KINDS.get(tensor.data_type)
    if kind is None:
        raise SpecError(
            f"constant `{name}` is of type {_type(onnx, tensor.data_type)}; supported: {', '.join(KINDS.values())}"
            "\nhint: export the model in float32; text, such as names of classes, stays out with `outputs=[...]`"
        )
    try:
        array = _nibbles(tensor, kind) if kind.endswith("int4") else np.array(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(f"constant `{name}` does not hold what its shape says: {error}") from error
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise SpecError(f"constant `{name}` holds NaN")
    return Tensor(array, kind)


def _type(onnx: Any, code: int) -> str:
    """Return the name of a type of numbers."""
    known = onnx.TensorProto.DataType
    return str(known.Name(code)) if code in known.values() else str(code)


def _nibbles(tensor: Any, kind: str) -> Any:
    """Return 4-bit integers one a byte. The file holds two a byte, the first in the low half."""
    packed = np.frombuffer(tensor.raw_data, np.uint8) if tensor.raw_data else np.array(tensor.int32_data, np.uint8)
    flat = np.stack([packed & 15, packed >> 4], axis=1).ravel()
    count = int(np.prod(tensor.dims, dtype=np.int64))
    if len(packed) != (count + 1) // 2:
        raise ValueError(f"{count} numbers in {len(packed)} bytes")
    shaped = flat[:count].reshape(tuple(tensor.dims))
    return shaped if kind == "uint4" else ((shaped ^ 8).astype(np.int8) - 8).astype(np.int8)


def _node(onnx: Any, node: Any, index: int) -> OnnxNode:
    outputs = list(node.output)
    while len(outputs) > 1 and not outputs[-1]:
        outputs.pop()
    return OnnxNode(
        name=node.name or f"{node.op_type}_{index}",
        op_type=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(outputs),
        attributes={a.name: _attribute(onnx, a, node) for a in node.attribute},
        domain=node.domain,
    )


def _attribute(onnx: Any, attribute: Any, node: Any) -> Any:
    """Return the value of an attribute: numbers, text, lists of them, or a tensor."""
    kinds = onnx.AttributeProto
    if attribute.type == kinds.TENSOR:
        return _tensor(onnx, attribute.t, f"{node.name}.{attribute.name}")
    if attribute.type not in (kinds.INT, kinds.INTS, kinds.FLOAT, kinds.FLOATS, kinds.STRING, kinds.STRINGS):
        raise SpecError(f"attribute `{attribute.name}` of node `{node.name}` ({node.op_type}) is not supported")
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == kinds.STRING:
        return value.decode(errors="replace")
    return (
        [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]
        if hasattr(value, "__len__")
        else value
    )
