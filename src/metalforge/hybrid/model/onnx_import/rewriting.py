"""Forms of ONNX that are written as others when a file is read, so that nothing after it has to know them.

Half precision becomes float32, an input of integers a real one that is cast, and the linear models of ai.onnx.ml become
products and activations of the standard, which an NPU may run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from metalforge.core import Array, SpecError

from .operators import attributes_of, onnx, titled

HALVES = ("FLOAT16", "BFLOAT16")
"""Types of numbers that are computed in float32 here."""
TRANSFORMS = {b"NONE": "Identity", b"SOFTMAX": "Softmax", b"LOGISTIC": "Sigmoid"}
"""What a linear model may do with its scores, and the operator that does it."""


class Rewriting:
    """The nodes of a model on their way, with the constants that they come to need."""

    def __init__(self, opset: int, wanted: Iterable[str]) -> None:
        self.constants: dict[str, Array] = {}
        self._opset = opset
        self._wanted = set(wanted)

    def nodes(self, nodes: Iterable[Any]) -> Iterator[Any]:
        """Give the nodes that stand for these."""
        for node in nodes:
            written = _LEARNED.get(node.op_type) if node.domain == "ai.onnx.ml" else None
            self._widen(node)
            if written is None:
                yield node
                continue
            try:
                parts = list(written(self, node, attributes_of(node)))
            except (IndexError, TypeError, ValueError) as error:  # no inputs, or attributes of other types
                raise SpecError(f"{titled(node)} breaks a rule of ONNX: {error}") from error
            for i, made in enumerate(parts):
                made.name = f"{node.name}.{i}" if i else node.name
                yield made

    def cast(self, inputs: Mapping[str, int], nodes: Iterable[Any]) -> Iterator[Any]:
        """Give nodes that read inputs of integers, by their type, which come in as reals."""
        integers = {name: f"{name} as integers" for name in inputs}
        for name, kind in inputs.items():
            yield self._node("Cast", [name], integers[name], name=integers[name], to=kind)
        for node in nodes:
            node.input[:] = [integers.get(name, name) for name in node.input]
            yield node

    def _node(self, op_type: str, inputs: list[str], output: str, name: str = "", **attributes: Any) -> Any:
        return onnx.helper.make_node(op_type, inputs, [output], name=name, **attributes)

    def _constant(self, name: str, values: Any) -> str:
        self.constants[name] = np.asarray(values)
        return name

    def _widen(self, node: Any) -> None:
        """Have a node give float32 where it would give half of that."""
        kinds = onnx.TensorProto
        halves = {kinds.DataType.Value(name) for name in HALVES}
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i in halves:
                attribute.i = kinds.FLOAT
            elif attribute.type == attribute.TENSOR and attribute.t.data_type in halves:
                whole = widened(attribute.t)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(whole, attribute.t.name))

    # Linear models.

    def _scores(self, node: Any, attributes: Mapping[str, Any], rows: int) -> Iterator[Any]:
        """Give the product of a linear model with as many outputs; its result is called `<output>.scores`."""
        flat = np.asarray(attributes.get("coefficients", ()), np.float32)
        intercepts = np.asarray(attributes.get("intercepts", np.zeros(rows)), np.float32)
        if rows < 1 or not flat.size or flat.size % rows or intercepts.size != rows:
            raise SpecError(
                f"node `{node.name}` ({node.op_type}) has {flat.size} coefficients and {intercepts.size} intercepts "
                f"for {rows} outputs, which is not supported"
            )
        name = node.output[-1]
        weights = self._constant(f"{name}.coefficients", flat.reshape(rows, -1))
        bias = self._constant(f"{name}.intercepts", intercepts)
        yield self._node("Cast", [node.input[0]], f"{name}.inputs", to=onnx.TensorProto.FLOAT)
        yield self._node("Gemm", [f"{name}.inputs", weights, bias], f"{name}.scores", transB=1)

    def _transform(self, node: Any, attributes: Mapping[str, Any]) -> Any:
        kind = attributes.get("post_transform", b"NONE")
        if kind not in TRANSFORMS:
            known = ", ".join(name.decode() for name in TRANSFORMS)
            raise SpecError(f"node `{node.name}` ({node.op_type}): `post_transform` must be of {known}. Got {kind!r}")
        name, operator = node.output[-1], TRANSFORMS[kind]
        axis: dict[str, Any] = {"axis": 1} if operator == "Softmax" else {}
        return self._node(operator, [f"{name}.scores"], name, **axis)

    def _regressor(self, node: Any, attributes: Mapping[str, Any]) -> Iterator[Any]:
        yield from self._scores(node, attributes, int(attributes.get("targets", 1)))
        yield self._transform(node, attributes)

    def _classifier(self, node: Any, attributes: Mapping[str, Any]) -> Iterator[Any]:
        numbers, names = (attributes.get(f"classlabels_{kind}", ()) for kind in ("ints", "strings"))
        yield from self._scores(node, attributes, len(numbers) or len(names))
        yield self._transform(node, attributes)
        label = node.output[0]
        if label not in self._wanted:
            return
        if names:
            raise SpecError(
                f"node `{node.name}` ({node.op_type}) gives `{label}`, names of classes, which are of type STRING"
                "\nhint: text stays out with `outputs=[...]`"
            )
        classes = self._constant(f"{label}.classes", np.array(numbers, np.int64))
        yield self._node("ArgMax", [f"{node.output[-1]}.scores"], f"{label}.index", axis=1, keepdims=0)
        yield self._node("Gather", [classes, f"{label}.index"], label, axis=0)

    def _normalizer(self, node: Any, attributes: Mapping[str, Any]) -> Iterator[Any]:
        norm = attributes.get("norm", b"MAX")
        if norm not in (b"L1", b"L2"):
            raise SpecError(f"node `{node.name}` (Normalizer): `norm` must be L1 or L2. Got {norm!r}")
        x, y = node.input[0], node.output[0]
        real, size, divisor = f"{y}.inputs", f"{y}.size", f"{y}.divisor"
        yield self._node("Cast", [x], real, to=onnx.TensorProto.FLOAT)
        axes: dict[str, Any] = {"axes": [1]} if self._opset < 18 else {}
        more = [self._constant(f"{y}.axes", np.array([1], np.int64))] if self._opset >= 18 else []
        yield self._node(f"Reduce{norm.decode()}", [real, *more], size, keepdims=1, **axes)
        least = np.finfo(np.float32).tiny  # what rows of zeros are divided by, and stay zeros
        yield self._node("Max", [size, self._constant(f"{y}.least", least)], divisor)
        yield self._node("Div", [real, divisor], y)


_LEARNED: Mapping[str, Callable[[Rewriting, Any, Mapping[str, Any]], Iterator[Any]]] = {
    "LinearClassifier": Rewriting._classifier,
    "LinearRegressor": Rewriting._regressor,
    "Normalizer": Rewriting._normalizer,
}


def widened(tensor: Any) -> Array:
    """Return the numbers of a tensor of half precision in float32; raises `SpecError` where it does not hold them."""
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor)).astype(np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(f"constant `{tensor.name}` does not hold what its shape says: {error}") from error
