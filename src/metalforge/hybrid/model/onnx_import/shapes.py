"""How large every value of a model is, told before anything of it runs: a few bytes of a file can ask for any extent.

Shapes come from the library's own inference, a node at a time, for inputs of known extents. Small numbers that depend
on extents alone (the arithmetic before a Reshape) are computed on the way, since the shapes after them need them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from metalforge.core import Array, SpecError, allowance
from metalforge.hybrid.model.graph import of_node

from .operators import attributes_of, kind_name, onnx, operations, reference_evaluator, titled
from .reading import KINDS, RECURRENT

LARGEST = 2**27
"""Numbers that one array may have: 1 GB of float64."""
IR_VERSION = 10
"""Of the file format; the newest that every supported runtime reads."""
SMALL = 1024
"""Numbers up to which an array may be part of shape arithmetic."""
INTENSITY = 64
"""Operations that may be done for each byte that may be made: a second or two for a small file."""
POOLS = frozenset({"AveragePool", "MaxPool"})
SLOW = frozenset({"Conv", *POOLS, *RECURRENT})
"""What the standard's reference computes number by number."""
SLOWEST = 1 << 20
"""Operations of these that are done while a model is read."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A value's type (its ONNX code) and extents; its numbers where they are few and do not depend on the inputs'."""

    kind: int
    shape: tuple[int, ...]
    array: Array | None = None

    @classmethod
    def of(cls, array: Array) -> "Sized":
        """Return what is known of a constant."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return cls(kind, array.shape, array if array.size <= SMALL else None)


class ImportBudget:
    """What may be made and done before a model is read, by how many bytes it has; `spend` is asked before it is."""

    def __init__(self, size: int) -> None:
        self._bytes = self._all = allowance(size)
        self._work = float(INTENSITY * self._bytes)

    def hold(self, values: Iterable[Sized]) -> None:
        """Take values off what is left."""
        dtype_of = onnx.helper.tensor_dtype_to_np_dtype
        self._bytes -= sum(prod(value.shape) * dtype_of(value.kind).itemsize for value in values)
        if self._bytes < 0:
            raise SpecError(f"is where the values of this model come to more than {self._all} bytes")

    def spend(self, node: Any, read: Mapping[str, Sized], found: Mapping[str, Sized], *, slowly: bool = False) -> None:
        """Take a node's results off what is left; raises `SpecError` where that is too little.

        `slowly`: it is the standard's reference that computes them.
        """
        self.hold(found.values())
        attributes, numbers = attributes_of(node), prod(next(iter(found.values())).shape)
        inputs = [read[name].shape if name else () for name in node.input]
        work = operations(node.op_type, attributes, inputs, numbers)
        if node.op_type in POOLS:
            work = float(numbers * min(prod(attributes["kernel_shape"]), prod(inputs[0][2:])))
        self._work -= work
        if self._work < 0 or (slowly and node.op_type in SLOW and work > SLOWEST):
            raise SpecError(f"is where this model takes more than {INTENSITY * self._all:.2g} operations to read")


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that is not too large; raises `SpecError` before anything of it is made."""
    if any(n < 0 for n in shape) or prod(shape) > LARGEST:
        raise SpecError(f"an array of {shape} has more than {LARGEST} numbers")
    return shape


def walk(
    nodes: Iterable[Any], opsets: Sequence[Any], known: Mapping[str, Sized], budget: ImportBudget | None = None
) -> dict[str, Sized]:
    """Return every value with its type and extents, for inputs and constants that are known.

    Raises `SpecError` with the node whose result would be too large, or of a size that only its numbers tell; a budget
    is for all of them together.
    """
    values = dict(known)
    for node in nodes:
        with of_node(titled(node)):
            found = inferred(node, opsets, values)
            if budget is not None:
                budget.spend(node, values, found)
            values.update(_with_numbers(node, opsets, values, found))
    return values


def inferred(node: Any, opsets: Sequence[Any], values: Mapping[str, Sized]) -> dict[str, Sized]:
    """Return the types and extents of a node's results."""
    read = {name: values[name] for name in node.input if name}
    attributes = attributes_of(node)
    if node.domain == "ai.onnx.ml":  # of which the library does not tell
        x, *others = (values[name] for name in node.input)
        if node.op_type == "Scaler":
            return {node.output[0]: Sized(onnx.TensorProto.FLOAT, x.shape)}
        return {node.output[0]: Sized(x.kind, sized((*(x.shape[:-1] or (1,)), prod(others[0].shape))))}
    if node.op_type == "Split":  # forms that the library's inference does not survive
        parts = attributes.get("num_outputs", len(node.output))
        sizes = [len(attributes["split"])] if "split" in attributes else [read[n].shape[0] for n in node.input[1:2]]
        if {parts, *sizes} != {len(node.output)}:
            raise SpecError(f"has {len(node.output)} results, and asks for {parts} of sizes {sizes or 'alike'}")
    version = next(entry.version for entry in opsets if (entry.domain or "ai.onnx") == (node.domain or "ai.onnx"))
    try:
        types = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.op_type, version, node.domain.removesuffix("ai.onnx")),
            node,
            {name: onnx.helper.make_tensor_type_proto(value.kind, value.shape) for name, value in read.items()},
            {
                name: onnx.numpy_helper.from_array(value.array, name)
                for name, value in read.items()
                if value.array is not None
            },
            opset_imports=list(opsets),
        )
    except Exception as error:  # of inference, of schemas, of the checker: they have no common base
        came = ", ".join(f"{kind_name(v.kind)} {v.shape}" for v in read.values())
        raise SpecError(f"cannot take its inputs ({error}). Got {came or 'none'}") from error
    found = {}
    for name in filter(None, node.output):
        tensor = types[name].tensor_type if name in types else None
        if tensor is None or not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
            raise SpecError(f"has a result, `{name}`, whose shape depends on the numbers that come in")
        if (kind := kind_name(tensor.elem_type)) not in KINDS:
            raise SpecError(f"gives `{name}` of type {kind}, which is not supported")
        shape = tuple(int(d.dim_value) for d in tensor.shape.dim)
        found[name] = Sized(tensor.elem_type, sized(_windows(node, read, shape)))
    if node.op_type == "Div" and "INT" in kind_name(found[node.output[0]].kind):
        divisor = values[node.input[1]].array
        if divisor is None or not divisor.all():  # a trap that ends the process on some processors
            raise SpecError("divides integers by numbers that may be zero")
    return found


def model_of(
    nodes: Sequence[Any],
    opsets: Sequence[Any],
    inputs: Mapping[str, tuple[int, tuple[int | None, ...]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, Array],
) -> Any:
    """Return some nodes as a model; inputs come with their type and shape, outputs with their type (0: unknown)."""
    helper = onnx.helper
    graph = helper.make_graph(
        list(nodes),
        "host",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=list(opsets), ir_version=IR_VERSION)


def computed(node: Any, opsets: Sequence[Any], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the results of one node by the standard's reference implementation."""
    kind_of = onnx.helper.np_dtype_to_tensor_dtype
    outputs = [name for name in node.output if name]
    read = {name: (kind_of(array.dtype), array.shape) for name, array in inputs.items()}
    try:
        with np.errstate(all="ignore"):
            model = model_of([node], opsets, read, dict.fromkeys(outputs, 0), {})
            found = reference_evaluator(model).run(outputs, dict(inputs))
    except Exception as error:  # NumPy's and its own, of every type
        came = ", ".join(f"{a.dtype} {a.shape}" for a in inputs.values())
        raise SpecError(f"cannot take its inputs ({error}). Got {came or 'none'}") from error
    arrays = dict(zip(outputs, map(np.asarray, found), strict=True))
    for name, array in arrays.items():
        if array.dtype.kind not in "fiubV":  # V: the library's 4-bit integers
            raise SpecError(f"gives `{name}` of type {array.dtype}, which is not supported")
    return arrays


def _with_numbers(
    node: Any, opsets: Sequence[Any], values: Mapping[str, Sized], found: dict[str, Sized]
) -> dict[str, Sized]:
    """Return the results with their numbers, where those follow from extents and constants and are few."""
    read = {name: values[name] for name in node.input if name}
    if any(prod(value.shape) > SMALL for value in found.values()):
        return found
    if node.op_type in ("Shape", "Size"):
        inputs = {name: np.broadcast_to(np.float32(0), value.shape) for name, value in read.items()}
    else:
        inputs = {name: value.array for name, value in read.items() if value.array is not None}
        if len(inputs) < len(read):
            return found
    arrays = computed(node, opsets, inputs)
    return {name: Sized(value.kind, value.shape, arrays[name]) for name, value in found.items()}


def _windows(node: Any, read: Mapping[str, Sized], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of pooled cells without a last window that would start in the padding behind the input.

    That is how runtimes and the standard's reference count them; the library's inference has one more there.
    """
    if node.op_type in ("Conv", "MaxPool", "AveragePool") and any(n < 1 for n in shape):
        raise SpecError(f"has a window larger than what it slides over, {read[node.input[0]].shape}")
    attributes = attributes_of(node)
    if node.op_type not in ("MaxPool", "AveragePool") or not attributes.get("ceil_mode"):
        return shape
    cells, axes = read[node.input[0]].shape[2:], len(shape) - 2
    strides, pads = attributes.get("strides") or [1] * axes, attributes.get("pads") or [0] * axes
    return (
        *shape[:2],
        *(
            count - ((count - 1) * stride >= extent + before)
            for count, stride, extent, before in zip(shape[2:], strides, cells, pads, strict=False)
        ),
    )
