"""An ONNX file, read and checked. A file is somebody else's: whatever would have to be guessed is refused.

It is read with a limit on its size, checked by the library's own rules, and cut down to what its wanted outputs need.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from metalforge.core import Array, SpecError, escaped, naming, opened
from metalforge.hybrid.model.ops import Shape

from .operators import ML_OPERATORS, REASONS, attributes_of, kind_name, onnx, titled
from .rewriting import HALVES, Rewriting, widened

LARGEST_FILE = 256 * 2**20
"""Bytes: a hundred times what an NPU of this kind holds, and far below what would fill a host."""
LARGEST_GRAPH = 1024
"""Nodes, with all functions written out: many times what a network for such a chip has."""
STANDARD = ("", "ai.onnx")
"""The two names of the standard domain."""
OPSETS = range(9, 26)
"""Versions of the standard operators that are understood: 9 to 25."""
KINDS: Mapping[str, str] = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "BOOL": "bool",
    **{f"{sign}int{bits}".upper(): f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}
"""Types of numbers that are understood: the standard's names and NumPy's."""
REALS = ("FLOAT", "DOUBLE")
RECURRENT = ("RNN", "GRU", "LSTM")
GATES = ("tanh", "sigmoid", "relu")
"""Activations of gates that are understood."""
BATCHES = (2, 3)
"""Sizes of the batches that shapes are inferred for. Not 1, which broadcasts and squeezes like no other."""
OTHERS = ((5, 7), (11, 13), (17, 19))
"""Sizes of other extents that are open, each pair for one: no product of some is a product of others."""
Extent: TypeAlias = int | str
"""Of an axis: a number, or the name of an open extent ("" where it has none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """What a file says: inputs with their shapes and the type of all of them, constants, nodes in order, outputs."""

    name: str
    inputs: Mapping[str, Shape]
    trials: tuple[Mapping[str, tuple[int, ...]], ...]
    """Two sets of extents for the inputs: what is open differs."""
    dtype: str
    constants: Mapping[str, Array]
    nodes: tuple[Any, ...]
    outputs: tuple[str, ...]
    opsets: tuple[Any, ...]
    """Versions of the operators, by domain."""
    size: int
    """Bytes of the file."""


def read_onnx(source: str | PathLike[str] | bytes | Any, name: str | None, outputs: Sequence[str] | None) -> OnnxModel:
    """Return the checked content of a path, the bytes of a file, or an `onnx.ModelProto`."""
    if isinstance(source, str | PathLike):
        with opened(source) as (stream, size):
            _check_size(size)
            data = stream.read()
        with naming(source):
            return read_onnx(data, name or Path(fspath(source)).stem, outputs)
    if not isinstance(source, bytes | onnx.ModelProto):
        raise SpecError(f"a model must be a path, bytes or an onnx.ModelProto. Got {type(source).__name__}")
    try:
        data = source if isinstance(source, bytes) else source.SerializeToString()
        return _content(_parsed(data), name, outputs)
    except UnicodeDecodeError as error:
        raise SpecError(f"not an ONNX model: a name in it is no text ({error})") from error


def read_part(data: bytes) -> Any:
    """Return a part of a model that the host runs, whoever wrote it, with no more in it than the importer makes."""
    model = _parsed(data)
    opset, graph = _opset(model), model.graph
    if model.functions or not graph.node:
        raise SpecError("a part of a model has nodes and no functions")
    _check_count(model)
    _check_tensors(graph, graph.initializer, graph.node)
    for node in graph.node:
        _check_supported(node, opset, model)
    return model


def _check_size(size: int) -> None:
    if size > LARGEST_FILE:
        raise SpecError(f"a model may have {LARGEST_FILE // 2**20} MiB. Got {size / 2**20:.0f} MiB")


def _parsed(data: bytes) -> Any:
    _check_size(len(data))
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's implementations raise types of their own
        raise SpecError(f"not an ONNX file, or only a part of one: {error}") from error


def _content(model: Any, name: str | None, outputs: Sequence[str] | None) -> OnnxModel:
    """Return the content of a parsed model."""
    _check_size(model.ByteSize())
    _spell(model)
    outputs = None if outputs is None else [escaped(output) for output in outputs]
    if not model.graph.node or not model.opset_import:
        raise SpecError("not an ONNX model, or an empty one: it has no nodes or names no opset")
    opset, size = _opset(model), model.ByteSize()
    _check_count(model)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # of the checker, of the schemas, of inference: they have no common base
            raise SpecError(f"has functions that cannot be written out: {error}") from error
    nodes = _wanted(model.graph, outputs)
    named = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _input(value) for value in model.graph.input if value.name not in named}
    wanted = tuple(outputs or (value.name for value in model.graph.output))
    read = {value for node in nodes for value in node.input}.union(wanted)
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in read]
    _check_tensors(model.graph, tensors, nodes)
    rewriting = Rewriting(opset, read)
    nodes = list(rewriting.nodes(nodes))
    for node in nodes:
        _check_supported(node, opset, model)
        if node.op_type in RECURRENT:
            _check_gates(node)
    _check_rules(model)
    kinds = {value: kind for value, (_, kind) in inputs.items()}
    reals = {kind for kind in kinds.values() if kind in REALS} or {"FLOAT"}
    if len(reals) > 1:
        came = ", ".join(f"`{name}` of {KINDS[kind]}" for name, kind in kinds.items())
        raise SpecError(f"all inputs must be float32, or all float64, or integers. Got {came}")
    shapes, trials = _shapes({value: extents for value, (extents, _) in inputs.items()})
    integers = {value: onnx.TensorProto.DataType.Value(kind) for value, kind in kinds.items() if kind not in REALS}
    return OnnxModel(
        name=name or model.graph.name,
        inputs=shapes,
        trials=trials,
        dtype=KINDS[reals.pop()],
        constants={tensor.name: numbers_of(tensor, tensor.name) for tensor in tensors} | rewriting.constants,
        nodes=tuple(rewriting.cast(integers, nodes)),
        outputs=wanted,
        opsets=tuple(model.opset_import),
        size=size,
    )


def _spell(message: Any) -> None:
    """Spell everything in a model that could not be printed, names of values everywhere alike."""
    for field, value in message.ListFields():
        many = value if field.is_repeated else (value,)
        if field.type == field.TYPE_MESSAGE:
            for one in many:
                _spell(one)
        elif field.type == field.TYPE_STRING:
            if any(isinstance(text, bytes) for text in many):  # how the library gives what is no UTF-8
                raise SpecError("not an ONNX model: a name in it is no text")
            if field.is_repeated:
                value[:] = [escaped(text) for text in value]
            elif not value.isprintable():
                setattr(message, field.name, escaped(value))


def _check_count(model: Any) -> None:
    """Raise when there are too many nodes, those of functions counted wherever they are called, or no end to them."""
    bodies = {(f.domain, f.name, f.overload): [_called(node) for node in _nested(f.node)] for f in model.functions}
    counts: dict[tuple[str, str, str], int] = {}
    try:
        for one in TopologicalSorter(
            {one: [c for c in body if c in bodies] for one, body in bodies.items()}
        ).static_order():
            counts[one] = sum(counts.get(called, 1) for called in bodies[one])
    except CycleError as error:
        raise SpecError(f"function `{error.args[1][0][1]}` calls itself") from error
    total = sum(counts.get(_called(node), 1) for node in _nested(model.graph.node))
    if total > LARGEST_GRAPH:
        raise SpecError(f"a model may have {LARGEST_GRAPH} nodes, its functions written out. Got {total:.3g}")


def _called(node: Any) -> tuple[str, str, str]:
    """Return what names the function that a node calls, if it is one."""
    return node.domain, node.op_type, node.overload


def _nested(nodes: Iterable[Any]) -> Iterator[Any]:
    """Give nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nested(graph.node)


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
    """Return the nodes that the wanted outputs depend on, in the order of the file, each with a name."""
    known = [value.name for value in graph.output]
    for output in outputs or ():
        if output not in known:
            raise SpecError(f"no output `{output}`; there are {', '.join(known)}")
    needed = set(outputs or known)
    found = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            found.append(copy)
    for i, node in enumerate(reversed(found)):
        node.name = node.name or f"{node.op_type}_{i}"
    return found[::-1]


def _check_supported(node: Any, opset: int, model: Any) -> None:
    """Raise for an operator that is not known, with everything that identifies it."""
    standard = node.domain in STANDARD
    if (standard and node.op_type in REASONS.keys() - ML_OPERATORS) or (
        node.domain == "ai.onnx.ml" and node.op_type in ML_OPERATORS
    ):
        return
    version = opset if standard else next((e.version for e in model.opset_import if e.domain == node.domain), "unknown")
    hint = ""
    if node.op_type == "ZipMap":
        hint = "\nhint: convert with options={'zipmap': False}, which gives the probabilities as an array"
    raise SpecError(
        f"operator `{node.op_type}` of node `{node.name}` (domain `{node.domain or 'ai.onnx'}`, opset {version}) "
        f"is not supported{hint}"
    )


def _check_gates(node: Any) -> None:
    """Raise for forms of recurrent operators that runtimes and the standard's reference do not agree on."""
    attributes = attributes_of(node)
    for name in ("clip", "layout", "activation_alpha", "activation_beta", "input_forget"):
        if attributes.get(name):
            raise SpecError(f"{titled(node)}: attribute `{name}` is not supported")
    if strange := [
        a
        for raw in attributes.get("activations", ())
        if (a := escaped(raw.decode(errors="replace").lower())) not in GATES
    ]:
        raise SpecError(
            f"{titled(node)}: activation `{strange[0]}` of a gate is not supported; supported: {', '.join(GATES)}"
        )
    if len(node.input) > 4 and node.input[4]:
        raise SpecError(f"{titled(node)}: sequences of several lengths (`sequence_lens`) are not supported")


def _check_tensors(graph: Any, initializers: Iterable[Any], nodes: Iterable[Any]) -> None:
    """Raise for numbers that are in another file, or kept in a way that is not read here."""
    if graph.sparse_initializer:
        raise SpecError("sparse initialisers are not supported")
    kinds = onnx.AttributeProto
    plain = (kinds.INT, kinds.INTS, kinds.FLOAT, kinds.FLOATS, kinds.STRING, kinds.STRINGS)
    inside = []
    for node in nodes:
        if node.op_type in ("If", "Loop", "Scan") and node.domain in STANDARD:
            raise SpecError(f"{titled(node)} has graphs inside; control flow is not supported")
        for attribute in node.attribute:
            if attribute.type == kinds.TENSOR:
                inside.append((f"{node.name}.{attribute.name}", attribute.t))
            elif attribute.type not in plain:
                raise SpecError(f"attribute `{attribute.name}` of {titled(node)} is not supported")
    for tensor in (*initializers, *(tensor for _, tensor in inside)):
        if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
            raise SpecError(
                f"the numbers of `{tensor.name}` are in another file; only models in one file are read"
                "\nhint: onnx.save(onnx.load(path), new_path, save_as_external_data=False)"
            )
    for name, tensor in inside:
        numbers_of(tensor, name)


def _check_rules(model: Any) -> None:
    """Raise for what the library's own checker refuses, but for outputs whose shape the file leaves open."""
    for value in model.graph.output:
        if not value.type.tensor_type.HasField("shape"):  # it is inferred here; any declaration will do
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise SpecError(f"breaks a rule of ONNX: {error}") from error
    except ValueError as error:  # text that is not UTF-8, which the checker's own message quotes, among others
        raise SpecError(f"cannot be checked: {error}") from error


def _input(value: Any) -> tuple[tuple[Extent, ...], str]:
    """Return the extents and the type of an input."""
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        raise SpecError(f"input `{value.name}` must be a tensor with a shape")
    kind = kind_name(tensor.elem_type)
    kind = "FLOAT" if kind in HALVES else kind
    if kind not in KINDS:
        raise SpecError(f"input `{value.name}` is of type {kind}, which is not supported")
    # An extent of 0 or -1 is how some exporters write an open one.
    return tuple(int(d.dim_value) if d.dim_value > 0 else str(d.dim_param) for d in tensor.shape.dim), kind


def _shapes(
    inputs: Mapping[str, tuple[Extent, ...]],
) -> tuple[dict[str, Shape], tuple[dict[str, tuple[int, ...]], ...]]:
    """Return the shapes of the inputs, None for what is open, and twice the extents that they are tried with.

    The batch is what is open at the front of the inputs. Where nothing is, it is the one name that is open elsewhere,
    as in (time, batch, inputs) of a recurrent network. Anything else that is open has a size of its own.
    """
    opened = {
        (name, axis): e or (f"{name}[{axis}]" if axis else "")
        for name, extents in inputs.items()
        for axis, e in enumerate(extents)
        if isinstance(e, str)
    }
    front = {e for (_, axis), e in opened.items() if axis == 0}
    batch = front or (set(opened.values()) if len(set(opened.values())) == 1 else set())
    others = list(dict.fromkeys(e for e in opened.values() if e not in batch))
    if len(others) > len(OTHERS):
        raise SpecError(
            f"the batch and {len(OTHERS)} more extents may be open. Got {', '.join(f'`{e}`' for e in others)}"
            "\nhint: export the model with fixed extents"
        )
    sizes = dict.fromkeys(batch, BATCHES) | dict(zip(others, OTHERS, strict=False))
    shapes = {name: tuple(None if isinstance(e, str) else e for e in extents) for name, extents in inputs.items()}

    def tried(which: int, name: str, axis: int, extent: int | None) -> int:
        return sizes[opened[name, axis]][which] if extent is None else extent

    return shapes, tuple(
        {name: tuple(tried(which, name, axis, n) for axis, n in enumerate(shape)) for name, shape in shapes.items()}
        for which in range(2)
    )


def numbers_of(tensor: Any, name: str) -> Array:
    """Return the numbers of a tensor; raises for NaN, unknown types and sizes that do not fit."""
    kind = kind_name(tensor.data_type)
    if kind not in (*KINDS, *HALVES):
        raise SpecError(
            f"constant `{name}` is of type {kind}; supported: float16, {', '.join(KINDS.values())}"
            "\nhint: export the model in float32; text, such as names of classes, stays out with `outputs=[...]`"
        )
    try:
        array = widened(tensor) if kind in HALVES else np.array(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(f"constant `{name}` does not hold what its shape says: {error}") from error
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise SpecError(f"constant `{name}` holds NaN")
    return array
