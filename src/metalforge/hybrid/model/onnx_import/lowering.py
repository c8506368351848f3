"""ONNX models to graphs of ops: what the NPU may run becomes an op of its own, all between them parts for the host.

Nodes of constants are computed at once. Every value's shape is inferred for two batches, which tells the extents that
grow with the batch. Nodes that are no ops of the graph's own are joined into parts that can run whole, and
activations, sums and concatenations that only such parts feed go along with them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from metalforge.core import SpecError
from metalforge.hybrid.model.graph import Node, OpGraph, find_regions, of_node
from metalforge.hybrid.model.ops import Concat, FullyConnectedOp, Op, RecurrentStep, SoftwareOnly
from metalforge.substrates import Quantized

from .host import HostPart
from .native import Known, Open, Value, bias_row, bounds_of, integers_behind, native_op
from .operators import REASONS, attributes_of, onnx, operations, titled
from .reading import RECURRENT, OnnxModel, read_onnx
from .shapes import ImportBudget, Sized, computed, inferred, model_of, sized, walk

STATES = (5, 6)
"""Places of first states among the inputs of a recurrent operator."""
ALIKE = frozenset({"Identity", "Dropout", "Cast", "CastLike"})
"""Operators whose result may be their first input under another name."""


def load_onnx(
    source: str | PathLike[str] | bytes | Any, *, name: str | None = None, outputs: Sequence[str] | None = None
) -> OpGraph:
    """Return the graph of an ONNX model: a path, the bytes of a file, or an `onnx.ModelProto`.

    `name` is the file's or the model's own by default. `outputs` names those that are wanted (all by default); what
    only the others need is left out. Extents of 1 at the front stay 1 as the file says; an open one is the batch.
    Raises `SpecError` for what cannot be taken, and `PluginError` where the extra `onnx` is not installed.
    """
    model = read_onnx(source, name, outputs)
    # Constants of any size may come out of a file; what matters is whether the ops take them, and they say so.
    with np.errstate(all="ignore"):
        return _Lowering(model).graph()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A node on its way: the values it reads and gives, and the op it is unless the host runs it in ONNX."""

    name: str
    node: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: Op | None


class _Lowering:
    """One model on its way: values by name, and the pieces made so far."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.opset = max(int(e.version) for e in model.opsets if e.domain in ("", "ai.onnx"))
        self.values: dict[str, Value] = {name: Known(array=array) for name, array in model.constants.items()}
        self.sizes: tuple[dict[str, Sized], ...] = ()
        self.uses = Counter(name for node in model.nodes for name in node.input)
        self.uses.update(model.outputs)
        self.pieces: dict[str, _Piece] = {}  # by their first output
        self.bounds: dict[str, tuple[float, float]] = {}  # of values, where operators limit them
        self.names: set[str] = set()  # of pieces
        self.budget = ImportBudget(model.size)

    def graph(self) -> OpGraph:
        """Return the graph, once every node is taken."""
        left = [node for node in self.model.nodes if not self._fold(node)]
        if any(None in shape for shape in self.model.inputs.values()):
            left = [made for node in left for made in self._with_states(node)]
        self.sizes = tuple(self._walked(left, which) for which in range(2))
        for name in self.model.inputs:
            self.values[name] = self._open(name)
        for node in left:
            with of_node(titled(node)):
                self._take(node)
        for name in self.model.outputs:
            if isinstance(self.values.get(name), Known):
                raise SpecError(f"output `{name}` is a constant: it does not depend on the inputs")
        return OpGraph(
            name=self.model.name,
            inputs=self.model.inputs,
            nodes=tuple(self._nodes()),
            outputs=self.model.outputs,
            dtype="float32" if self.model.dtype == "float32" else "float64",
        )

    # Values.

    def _fold(self, node: Any) -> bool:
        """Compute a node of constants, and say whether it is one. Integers behind dequantised ones are remembered."""
        args = [self.values.get(name) for name in node.input if name]
        known = [arg for arg in args if isinstance(arg, Known)]
        if len(known) < len(args):
            return False
        arrays = {name: arg.array for name, arg in zip(filter(None, node.input), known, strict=True)}
        with of_node(titled(node)):
            read = {name: Sized.of(array) for name, array in arrays.items()}
            self.budget.spend(node, read, inferred(node, self.model.opsets, read), slowly=True)
            results = computed(node, self.model.opsets, arrays)
        integers = integers_behind(node.op_type, attributes_of(node), known)
        self.values |= {name: Known(array=array, integers=integers) for name, array in results.items()}
        return True

    def _with_states(self, node: Any) -> Iterator[Any]:
        """Give a node, and before it what repeats a first state of one row, as some exporters write it, for a batch."""
        for i in STATES if node.op_type in RECURRENT else ():
            name = node.input[i] if i < len(node.input) else ""
            value = self.values.get(name)
            shape = value.array.shape if isinstance(value, Known) else self.model.inputs.get(name, ())
            if len(shape) != 3 or shape[1] != 1:
                continue
            if isinstance(value, Known) and not value.array.any():
                node.input[i] = ""  # they start from zeros anyway
                continue
            part, make = f"{node.name}.{name}", onnx.helper.make_node
            for key, number in (("first", shape[0]), ("second", 1), ("last", shape[2])):
                self.values[f"{part}.{key}"] = Known(array=np.array([number], np.int64))
            made = (
                make("Shape", [node.input[0]], [f"{part}.of"], name=f"{part}.of"),
                make("Gather", [f"{part}.of", f"{part}.second"], [f"{part}.batch"], name=f"{part}.batch"),
                make(
                    "Concat", [f"{part}.{k}" for k in ("first", "batch", "last")], [f"{part}.to"], f"{part}.to", axis=0
                ),
                make("Expand", [name, f"{part}.to"], [f"{part}.rows"], name=f"{part}.rows"),
            )
            node.input[i] = f"{part}.rows"
            self.uses.update(value for one in made for value in one.input)
            yield from made
        yield node

    def _walked(self, nodes: Iterable[Any], which: int) -> dict[str, Sized]:
        """Return every value's extents for the first or the second size of whatever is open."""
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.model.dtype))
        known = {name: Sized.of(value.array) for name, value in self.values.items() if isinstance(value, Known)}
        known |= {name: Sized(kind, sized(shape)) for name, shape in self.model.trials[which].items()}
        if which:  # only the first is computed with
            return walk(nodes, self.model.opsets, known)
        for name in self.model.inputs:
            with of_node(f"input `{name}`"):
                self.budget.hold([known[name]])
        return walk(nodes, self.model.opsets, known, self.budget)

    def _open(self, name: str) -> Open:
        first, second = (sizes[name] for sizes in self.sizes)
        if len(first.shape) != len(second.shape):
            raise SpecError(f"gives `{name}` of another rank for another batch")
        shape = tuple(n if n == m else None for n, m in zip(first.shape, second.shape, strict=True))
        return Open(name=name, kind=first.kind, shape=shape)

    # Nodes.

    def _take(self, node: Any) -> None:
        """Make one node a piece, or another name for a value."""
        args = [self.values[name] if name else None for name in node.input]
        found = [self._open(name) for name in node.output if name]
        if node.op_type in ALIKE and self._alike(node, args, found[0]):
            return
        self.values |= {value.name: value for value in found}
        kind = args[0].kind if args and isinstance(args[0], Open) else found[0].kind
        integer = onnx.helper.tensor_dtype_to_np_dtype(kind)
        if (bounds := bounds_of(node.op_type, args, self.bounds, integer)) is not None:
            self.bounds[found[0].name] = bounds
        if node.op_type == "Add" and (self._biased(args, found[0]) or self._joined(args, found[0])):
            return
        op = native_op(
            node.op_type,
            attributes_of(node),
            args,
            found[0],
            real=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.model.dtype)),
            opset=self.opset,
            wanted=[bool(name) for name in node.output],
        )
        inputs = tuple(arg.name for arg in args if isinstance(arg, Open))
        outputs = tuple(value.name for value in found)
        self.pieces[outputs[0]] = _Piece(name=self._unique(node.name), node=node, inputs=inputs, outputs=outputs, op=op)

    def _unique(self, name: str) -> str:
        found = next(n for n in chain([name], (f"{name}.{i}" for i in count(2))) if n not in self.names)
        self.names.add(found)
        return found

    def _alike(self, node: Any, args: Sequence[Value | None], result: Open) -> bool:
        """Give a value a second name where a node only passes it on, and say whether it could be done."""
        source = args[0]
        if node.op_type == "Dropout" and len(args) > 2 and args[2] is not None:
            training = args[2]
            if not isinstance(training, Known) or training.array.any():
                raise SpecError("is in training mode; export the model for inference")
        others = any(self.uses[name] for name in node.output[1:])  # a Dropout's mask
        if not isinstance(source, Open) or source.kind != result.kind or others:
            return False
        if result.name in self.model.outputs:
            node.CopyFrom(onnx.helper.make_node("Identity", [node.input[0]], [result.name], name=node.name))
            return False
        self.values[result.name] = source
        self.uses[source.name] += self.uses[result.name] - 1
        return True

    def _biased(self, args: Sequence[Value | None], result: Open) -> bool:
        """Put a constant that is added to a product into the product's op, and say whether it could be."""
        product, bias = args if isinstance(args[0], Open) else args[::-1]
        if not isinstance(product, Open) or not isinstance(bias, Known) or product.name not in self.pieces:
            return False
        before = self.pieces[product.name]
        if not isinstance(before.op, FullyConnectedOp) or before.op.bias is not None or self.uses[product.name] > 1:
            return False
        row = bias_row(bias, before.op.matrix.shape[0])
        if row is None or result.shape != product.shape:
            return False
        del self.pieces[product.name]
        self.pieces[result.name] = replace(before, op=replace(before.op, bias=row), outputs=(result.name,))
        return True

    def _joined(self, args: Sequence[Value | None], result: Open) -> bool:
        """Make two products that are added one product of what they read, and say whether they could be."""
        found = [self.pieces.get(arg.name) for arg in args if isinstance(arg, Open) and self.uses[arg.name] == 1]
        first, second = (*found, None, None)[:2]
        if first is None or second is None or first is second:
            return False
        one, other = first.op, second.op
        if not isinstance(one, FullyConnectedOp) or not isinstance(other, FullyConnectedOp):
            return False
        left, right = (self._open(piece.inputs[0]) for piece in (first, second))
        quantised = isinstance(one.weights, Quantized) or isinstance(other.weights, Quantized)
        same = left.shape[:-1] == right.shape[:-1] == result.shape[:-1] and left.kind == right.kind
        if quantised or not same or len(one.matrix) != len(other.matrix):
            return False
        if left.name == right.name:
            inputs, weights = first.inputs, one.matrix + other.matrix
        else:
            inputs = (f"{result.name}.inputs",)
            weights = np.hstack([one.matrix, other.matrix])
            axis, (joined,) = len(left.shape) - 1, inputs
            for sizes in self.sizes:
                width = sizes[left.name].shape[axis] + sizes[right.name].shape[axis]
                sizes[joined] = Sized(left.kind, (*sizes[left.name].shape[:axis], width))
            names = (left.name, right.name)
            node = onnx.helper.make_node("Concat", names, inputs, name=joined, axis=axis)
            self.uses[joined], self.values[joined] = 1, self._open(joined)
            self.pieces[joined] = _Piece(
                name=self._unique(joined), node=node, inputs=names, outputs=inputs, op=Concat(axis=axis)
            )
        biases = [op.bias for op in (one, other) if op.bias is not None]
        bias = biases[0] + biases[-1] if len(biases) == 2 else next(iter(biases), None)
        for piece in (first, second):
            del self.pieces[piece.outputs[0]]
        op = FullyConnectedOp(weights=weights, bias=bias, precision=one.precision)
        self.pieces[result.name] = replace(first, op=op, inputs=inputs, outputs=(result.name,))
        return True

    # Parts.

    def _nodes(self) -> Iterable[Node]:
        """Give the graph's nodes: ops of its own, and the parts that the host runs whole."""
        wanted, needed = set(self.model.outputs), []
        for piece in reversed(self.pieces.values()):
            if wanted.intersection(piece.outputs):
                wanted.update(piece.inputs)
                needed.append(piece)
        pieces = {piece.name: piece for piece in reversed(needed)}
        makers = {value: piece.name for piece in pieces.values() for value in piece.outputs}
        before = {name: {makers[v] for v in piece.inputs if v in makers} for name, piece in pieces.items()}
        sides: dict[str, str] = {}
        for name, piece in pieces.items():
            fed = {sides[p] for p in before[name]} if all(v in makers for v in piece.inputs) else set()
            alone = piece.op is not None and (isinstance(piece.op, FullyConnectedOp | RecurrentStep) or fed != {"host"})
            sides[name] = "graph" if alone else "host"
        reads = Counter(v for piece in self.pieces.values() for v in piece.inputs)
        reads.update(self.model.outputs)
        for side, names in find_regions(before, sides):
            if side == "host":
                yield self._part([pieces[name] for name in names], reads)
                continue
            for piece in (pieces[name] for name in names):
                if piece.op is not None:
                    yield Node(name=piece.name, op=piece.op, inputs=piece.inputs, outputs=piece.outputs)

    def _part(self, pieces: Sequence[_Piece], reads: Counter[str]) -> Node:
        """Return the node of some pieces that run as one ONNX model on the host, tried out on zeros.

        `reads` counts who wants a value, in all of the model.
        """
        made = {value for piece in pieces for value in piece.outputs}
        read = dict.fromkeys(v for piece in pieces for v in piece.inputs if v not in made)
        inside = Counter(v for piece in pieces for v in piece.inputs)
        given = tuple(v for piece in pieces for v in piece.outputs if reads[v] > inside[v])
        nodes = [self._standing(piece.node) for piece in pieces]
        constants = {
            name: value.array
            for node in nodes
            for name in node.input
            if name and isinstance(value := self.values.get(name), Known)
        }
        title = titled(pieces[0].node) if len(pieces) == 1 else f"nodes `{pieces[0].name}` to `{pieces[-1].name}`"
        with of_node(title):
            inputs = {name: self._open(name) for name in read}
            model = model_of(
                nodes,
                self.model.opsets,
                {name: (value.kind, value.shape) for name, value in inputs.items()},
                {name: self._open(name).kind for name in given},
                constants,
            )
            part = HostPart(model.SerializeToString())
            self._try(part, tuple(read), given)
        op = SoftwareOnly(
            operators=part.operators,
            run=part,
            output_shapes=tuple(self._open(name).shape for name in given),
            output_bounds=tuple(self.bounds.get(name) for name in given),
            reason=_reason(part.operators),
            parameters=sum(array.size for array in constants.values()),
            operations=sum(self._operations(piece.node) for piece in pieces),
        )
        return Node(name=pieces[0].name, op=op, inputs=tuple(read), outputs=given)

    def _standing(self, node: Any) -> Any:
        """Return a node that reads values by their own names, and squeezes no batch of one."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for i, name in enumerate(node.input):
            if isinstance(value := self.values.get(name), Open):
                copy.input[i] = value.name
        if node.op_type == "Squeeze" and len(node.input) == 1 and not node.attribute:
            axes = [axis for axis, n in enumerate(self._open(copy.input[0]).shape) if n == 1]
            if self.opset < 13:
                copy.attribute.append(onnx.helper.make_attribute("axes", axes))
            else:
                copy.input.append(f"{node.name}.axes")
                self.values[copy.input[1]] = Known(array=np.array(axes, np.int64))
        return copy

    def _try(self, part: HostPart, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Run a part on zeros: what it cannot take is known now, and that its results are as large as was said."""
        sizes, dtype_of = self.sizes[0], onnx.helper.tensor_dtype_to_np_dtype
        zeros = [
            np.zeros(sizes[name].shape, dtype_of(sizes[name].kind)) if (known := sizes[name].array) is None else known
            for name in inputs
        ]
        for name, array in zip(outputs, part.tried(zeros), strict=True):
            if array.shape != sizes[name].shape:
                raise SpecError(f"gives `{name}` of {array.shape}, where {sizes[name].shape} was inferred")

    def _operations(self, node: Any) -> float:
        inputs = [self.sizes[0][name].shape if name else () for name in node.input]
        first, second = (prod(sizes[next(filter(None, node.output))].shape) for sizes in self.sizes)
        return operations(node.op_type, attributes_of(node), inputs, second - first or first)


def _reason(operators: Iterable[str]) -> str:
    """Return why no NPU runs these; moving numbers is a reason only where they do nothing else."""
    found = dict.fromkeys(REASONS[name] for name in operators)
    if len(found) > 1:
        found.pop(REASONS["Identity"], None)
    return "; ".join(found)
