"""An ONNX model as plain records, and its operators in their newest form.

`hybrid.onnx_` reads files into these, `lower` makes a graph of them; only the former knows the library for files.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.ops import Shape

__all__ = ["KINDS", "OPSETS", "Extent", "OnnxModel", "OnnxNode", "Tensor", "input_shapes", "modern"]

OPSETS = range(11, 26)
"""Versions of the standard operators that are understood: 11 to 25."""
KINDS: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    11: "float64",
    12: "uint32",
    13: "uint64",
    21: "uint4",
    22: "int4",
}
"""Types of numbers that are understood, by their code in a file."""
Extent: TypeAlias = int | str
"""Of an axis: a number, or the name of an open extent ("" where it has none)."""


class Tensor(NamedTuple):
    """Numbers from a file and their type there; 4-bit integers are held one a byte."""

    array: NDArray[Any]
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxNode:
    """An operator with its attributes; an input is a name, "" where it is absent, or a constant."""

    name: str
    op_type: str
    inputs: tuple[str | Tensor, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    domain: str = ""

    def __str__(self) -> str:
        """The node in an error message."""
        return f"node `{self.name}` ({self.op_type})"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """What a file says: inputs with extents and types, constants, nodes in order, outputs."""

    name: str
    opset: int
    inputs: Mapping[str, tuple[tuple[Extent, ...], str]]
    constants: Mapping[str, Tensor]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]


def input_shapes(model: OnnxModel) -> dict[str, Shape]:
    """Return the shapes of the inputs, None for the batch; raises `SpecError` when anything else is open.

    The batch is what is open at the front of the inputs. Where nothing is, it is the one name that is open elsewhere,
    as in (time, batch, inputs) of a recurrent network.
    """
    front = {extents[0] for extents, _ in model.inputs.values() if extents and isinstance(extents[0], str)}
    named = Counter(e for extents, _ in model.inputs.values() for e in set(extents) if isinstance(e, str))
    batch = front or (set(named) if len(named) == 1 else set())
    found: dict[str, Shape] = {}
    for name, (extents, _) in model.inputs.items():
        opened = [axis for axis, e in enumerate(extents) if isinstance(e, str)]
        if len(opened) > 1 or any(extents[axis] not in batch for axis in opened):
            which = ", ".join(f"axis {axis} (`{extents[axis] or '?'}`)" for axis in opened)
            raise SpecError(
                f"input `{name}` has open extents at {which}; only the batch, one axis of each input, may be open"
                "\nhint: export the model with fixed extents for the others"
            )
        found[name] = tuple(None if isinstance(e, str) else e for e in extents)
    return found


def modern(node: OnnxNode, opset: int) -> OnnxNode:
    """Return the node as the newest opset writes it: axes and sizes as inputs, types by name."""
    attributes, inputs = dict(node.attributes), list(node.inputs)
    match node.op_type:
        case "Squeeze" | "Unsqueeze":
            _as_input(attributes, inputs, "axes", 1)
        case "Split":
            _as_input(attributes, inputs, "split", 1)
            attributes["num_outputs"] = len(node.outputs)
        case "Softmax" | "LogSoftmax" if opset < 13:
            attributes = {"axis": 1, "flatten": 1, **attributes}
        case "Cast":
            attributes = {"to": _castable(node, attributes.get("to", 0))}
        case "QuantizeLinear":
            _quantize(node, attributes)
        case "DequantizeLinear":
            attributes.pop("output_dtype", None)  # the type of the scale, which is the result's anyway
        case "ConstantOfShape" if "value" in attributes:
            attributes["value"] = attributes["value"].array
        case name if name.startswith("Reduce"):
            _as_input(attributes, inputs, "axes", 1)
        case _:
            pass
    return replace(node, attributes=attributes, inputs=tuple(inputs))


def _as_input(attributes: dict[str, Any], inputs: list[str | Tensor], name: str, place: int) -> None:
    """Turn an attribute of integers, as older opsets have it, into the input that newer ones have."""
    if name in attributes:
        inputs[place:] = [Tensor(np.array(attributes.pop(name), np.int64), "int64")]


def _castable(node: OnnxNode, code: int) -> str:
    kind = KINDS.get(code, "")
    if not kind or kind.endswith("int4"):
        raise SpecError(f"{node} casts to type {code} ({kind or 'unknown'}), which is not supported")
    return kind


def _quantize(node: OnnxNode, attributes: dict[str, Any]) -> None:
    """Name the type of the result where the attribute does, and drop what concerns 8-bit floats only."""
    attributes.pop("saturate", None)
    if attributes.pop("precision", 0) not in (0, 1):
        raise SpecError(f"{node} divides in another type than float32, which is not supported")
    code = attributes.pop("output_dtype", 0)
    if code and code not in KINDS:
        raise SpecError(f"{node} quantises to type {code}, which is not supported")
    if code:
        attributes["to"] = KINDS[code]
