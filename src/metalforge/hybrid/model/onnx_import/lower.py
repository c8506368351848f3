"""ONNX records to a graph of ops: what the NPU may run becomes an op of its own, everything else runs in software.

Nodes are taken in the order of the file. Those of constants are computed at once; the others are tried on zeros, which
gives their shapes. Shape arithmetic that comes to the same for every batch is a constant too.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import Dtype, Node, OpGraph
from metalforge.hybrid.model.ops import FullyConnected, Op

from .fallback import software_op
from .model import OnnxModel, OnnxNode, Tensor, input_shapes, modern
from .native import bias_row, native_op
from .rewrite import Arguments, batch_only, computed, folded, simplified
from .values import Known, Open, Value, zeros

__all__ = ["lower"]


def lower(model: OnnxModel) -> OpGraph:
    """Return the graph of a model; raises `SpecError` with the node that cannot be taken."""
    # Constants of any size may come out of a file; what matters is whether the ops take them, and they say so.
    with np.errstate(all="ignore"):
        return _Lowering(model).graph()


class _Lowering:
    """One model on its way: values by name, and the nodes made so far."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.shapes = input_shapes(model)
        self.dtype = _common_type(model)
        self.values: dict[str, Value] = {name: zeros(name, shape, self.dtype) for name, shape in self.shapes.items()}
        self.values |= {name: Known(array=t.array, kind=t.kind) for name, t in model.constants.items()}
        self.uses = Counter(name for node in model.nodes for name in node.inputs if isinstance(name, str))
        self.uses.update(model.outputs)
        self.names: set[str] = set()
        self.nodes: dict[str, Node] = {}  # by their first output

    def graph(self) -> OpGraph:
        """Return the graph, once every node is taken."""
        for node in self.model.nodes:
            try:
                self._take(modern(node, self.model.opset))
            except SpecError as error:
                raise SpecError(str(error) if str(node) in str(error) else f"{node} {error}") from error
        for name in self.model.outputs:
            if isinstance(self.values.get(name), Known):
                raise SpecError(f"output `{name}` is a constant: it does not depend on the inputs")
        return OpGraph(
            name=self.model.name,
            inputs=self.shapes,
            nodes=self._needed(),
            outputs=self.model.outputs,
            dtype=self.dtype,
        )

    def _take(self, node: OnnxNode) -> None:
        """Lower one node."""
        args = [self._value(name) for name in node.inputs]
        node, args = simplified(node, args)
        outputs = tuple(name or f"{node.name}.output{i}" for i, name in enumerate(node.outputs))
        if all(not isinstance(arg, Open) for arg in args):
            self.values.update(zip(outputs, folded(node, args), strict=True))
            return
        trials = [computed(node, [None if arg is None else arg.trials[i] for arg in args]) for i in (0, 1)]
        settled = batch_only(node, args)
        found = [
            Open(name=name, trials=(first, second), batch_only=settled)
            for name, first, second in zip(outputs, *trials, strict=True)
        ]
        for value in found:
            if value.trials[0].ndim != value.trials[1].ndim:
                raise SpecError(f"gives `{value.name}` of another rank for another batch")
        if settled and all(np.array_equal(*value.trials) for value in found):
            self.values |= {value.name: Known(array=value.trials[0], kind=str(value.dtype)) for value in found}
            return
        self._emit(node, args, found)

    def _emit(self, node: OnnxNode, args: Arguments, found: list[Open]) -> None:
        """Add the node that computes these values, or say that they have another name already."""
        source, result = args[0], found[0]
        if node.op_type == "Identity" and isinstance(source, Open) and result.name not in self.model.outputs:
            self.values[result.name] = source
            self.uses[source.name] += self.uses[result.name] - 1
            return
        self.values |= {value.name: value for value in found}
        if node.op_type == "Add" and self._biased(args, result):
            return
        op = native_op(node, args, result, self.dtype) or software_op(node, args, found)
        self._add(node.name, op, args, tuple(value.name for value in found))

    def _add(self, name: str, op: Op, args: Arguments, outputs: tuple[str, ...]) -> None:
        unique, count = name, 1
        while unique in self.names:
            count += 1
            unique = f"{name}.{count}"
        self.names.add(unique)
        inputs = tuple(arg.name for arg in args if isinstance(arg, Open))
        self.nodes[outputs[0]] = Node(name=unique, op=op, inputs=inputs, outputs=outputs)

    def _biased(self, args: Arguments, result: Open) -> bool:
        """Put a constant that is added to a product into the product's op, and say whether it could be."""
        product, bias = args if isinstance(args[0], Open) else args[::-1]
        if not isinstance(product, Open) or not isinstance(bias, Known) or product.name not in self.nodes:
            return False
        before = self.nodes[product.name]
        if not isinstance(before.op, FullyConnected) or before.op.bias is not None or self.uses[product.name] > 1:
            return False
        row = bias_row(bias, before.op.matrix.shape[0])
        if row is None or result.shape != product.shape:
            return False
        del self.nodes[product.name]
        self.nodes[result.name] = replace(before, op=replace(before.op, bias=row), outputs=(result.name,))
        return True

    def _value(self, name: str | Tensor) -> Value | None:
        """Return a value by name, or a constant that stands in its place; None when it is absent."""
        if isinstance(name, Tensor):
            return Known(array=name.array, kind=name.kind)
        if name and name not in self.values:
            raise SpecError(f"reads `{name}`, which nothing before it makes")
        return self.values[name] if name else None

    def _needed(self) -> tuple[Node, ...]:
        """Return the nodes that the outputs depend on."""
        producers = {value: node for node in self.nodes.values() for value in node.outputs}
        waiting, needed = list(self.model.outputs), set()
        while waiting:
            node = producers.get(waiting.pop())
            if node is not None and node.name not in needed:
                needed.add(node.name)
                waiting += node.inputs
        return tuple(node for node in self.nodes.values() if node.name in needed)


def _common_type(model: OnnxModel) -> Dtype:
    """Return the type of all inputs; it is the graph's."""
    kinds = {kind for _, kind in model.inputs.values()}
    if kinds == {"float32"}:
        return "float32"
    if kinds == {"float64"}:
        return "float64"
    came = ", ".join(f"`{name}` of {kind}" for name, (_, kind) in model.inputs.items())
    raise SpecError(f"all inputs must be float32, or all float64. Got {came or 'none'}")
