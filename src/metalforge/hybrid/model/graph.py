"""A model as a graph of ops, checked when it is made: names, shapes, order, no cycles.

Nodes name the values they read; a value is a graph input or an output of a node. What a node gives has the node's own
name unless `outputs` names several.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from metalforge.core import BriefRepr, Reals, SpecError, require_one_of
from metalforge.reservoir import EsnWeights

from . import ops

Dtype: TypeAlias = Literal["float32", "float64"]


@contextmanager
def of_node(title: str) -> Iterator[None]:
    """Let errors begin with the node that they speak of, once."""
    try:
        yield
    except SpecError as error:
        raise SpecError(str(error) if title in str(error) else f"{title} {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Node(BriefRepr):
    """An op with a name, the values it reads and the values it gives."""

    name: str
    op: ops.Op
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.outputs:
            object.__setattr__(self, "outputs", (self.name,))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OpGraph(BriefRepr):
    """Inputs by name with their shapes, nodes in any order, outputs by name.

    `nodes` come out sorted so that every value is made before it is read; `shapes` has the shape of every value.
    `ranges` are the largest |value| of inputs where they are known; the planner measures the others on data.
    """

    inputs: Mapping[str, ops.Shape]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    name: str = "model"
    dtype: Dtype = "float32"
    ranges: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.inputs or not self.nodes or not self.outputs:
            raise SpecError("a graph wants at least one input, one node and one output")
        require_one_of("float32", "float64", dtype=self.dtype)
        for name, shape in self.inputs.items():
            if any(n is not None and n < 1 for n in shape):
                raise SpecError(f"input `{name}` must have positive extents. Got {shape}")
        for name, largest in self.ranges.items():
            if name not in self.inputs or not 0 < largest < float("inf"):
                raise SpecError(f"`ranges` wants positive numbers for inputs. Got {largest} for `{name}`")
        self._check_names()
        object.__setattr__(self, "nodes", _sorted(self.nodes, set(self.inputs)))
        self._check_targets()
        for output in self.outputs:
            if output not in self.shapes:
                raise SpecError(f"output `{output}` is made by no node; there are {', '.join(self.shapes)}")

    def __getitem__(self, name: str) -> Node:
        """Return a node by name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise SpecError(f"no node `{name}`; there are {', '.join(node.name for node in self.nodes)}")

    def producer(self, value: str) -> Node | None:
        """Return the node that makes a value; None for an input."""
        return next((node for node in self.nodes if value in node.outputs), None)

    @cached_property
    def shapes(self) -> Mapping[str, ops.Shape]:
        """The shape of every value."""
        shapes: dict[str, ops.Shape] = dict(self.inputs)
        for node in self.nodes:
            with of_node(f"node `{node.name}` ({node.op.kind})"):
                found = node.op.shapes([shapes[value] for value in node.inputs])
            if len(found) != len(node.outputs):
                raise SpecError(f"node `{node.name}` names {len(node.outputs)} outputs and has {len(found)}")
            shapes.update(zip(node.outputs, found, strict=True))
        return MappingProxyType(shapes)

    @cached_property
    def parameters(self) -> int:
        """Weights of all ops."""
        return sum(node.op.parameters for node in self.nodes)

    @cached_property
    def stateful(self) -> bool:
        """Whether some op keeps a state from call to call."""
        return any(node.op.stateful for node in self.nodes)

    @property
    def before(self) -> dict[str, set[str]]:
        """The nodes that each node waits for, in the order of `nodes`."""
        makers = {value: node.name for node in self.nodes for value in node.outputs}
        return {node.name: {makers[v] for v in node.inputs if v in makers} for node in self.nodes}

    def consumers(self, value: str) -> tuple[Node, ...]:
        """Return the nodes that read a value."""
        return tuple(node for node in self.nodes if value in node.inputs)

    def _check_names(self) -> None:
        seen = set(self.inputs)
        names: set[str] = set()
        for node in self.nodes:
            if not node.name or node.name in names:
                raise SpecError(f"nodes must have different names, not empty. Got `{node.name}`")
            names.add(node.name)
            for value in node.outputs:
                if value in seen:
                    raise SpecError(f"node `{node.name}`: value `{value}` is made twice")
                seen.add(value)
        for node in self.nodes:
            arity = node.op.arity
            if (arity is not None and len(node.inputs) != arity) or (arity is None and not node.inputs):
                wanted = "at least one" if arity is None else str(arity)
                raise SpecError(f"node `{node.name}` ({node.op.kind}) wants {wanted} inputs. Got {len(node.inputs)}")
            for value in node.inputs:
                if value not in seen:
                    raise SpecError(f"node `{node.name}` reads `{value}`, which nothing makes")

    def _check_targets(self) -> None:
        """Gradients and updates must speak of fully connected nodes with weights of their shape."""
        for node in self.nodes:
            if not isinstance(node.op, ops.Gradient | ops.GradientUpdate | ops.MutationUpdate):
                continue
            target = self[node.op.of].op
            if not isinstance(target, ops.FullyConnectedOp):
                raise SpecError(f"node `{node.name}`: `{node.op.of}` is no fully connected node, but {target.kind}")
            given, wanted = self.shapes[node.outputs[0]], tuple(int(n) for n in target.matrix.shape)
            if given != wanted:
                raise SpecError(f"node `{node.name}`: the weights of `{node.op.of}` are {wanted}. Got {given}")


def graph_from_esn(weights: EsnWeights, *, name: str = "esn") -> OpGraph:
    """Return input -> recurrent step -> (concat with the input) -> readout, with one head a name of its layout."""
    step = Node(name="reservoir", op=ops.RecurrentStep(weights=weights), inputs=("input",))
    nodes = [step]
    outputs: tuple[str, ...] = ("reservoir",)
    if weights.w_out is not None:
        features = "reservoir"
        if weights.passthrough:
            features = "features"
            nodes.append(Node(name=features, op=ops.Concat(), inputs=("reservoir", "input")))
        heads, outputs = _readout(weights, weights.w_out, features)
        nodes += heads
    return OpGraph(
        name=name,
        inputs={"input": (None, weights.inputs)},
        nodes=tuple(nodes),
        outputs=outputs,
        dtype="float32" if weights.dtype == "float32" else "float64",
        ranges={} if weights.ranges is None else {"input": weights.ranges.u},
    )


def _readout(weights: EsnWeights, w_out: Reals, features: str) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of the readout and the names of its outputs."""
    bias = weights.out_bias
    if weights.heads is None:
        op = ops.FullyConnectedOp(weights=w_out, bias=bias)
        return [Node(name="readout", op=op, inputs=(features,))], ("readout",)
    nodes = [Node(name="fan_out", op=ops.FanOutOp(), inputs=(features,))]
    outputs = []
    for head in weights.heads.heads:
        span = weights.heads.span(head.name)
        op = ops.FullyConnectedOp(weights=w_out[span], bias=None if bias is None else bias[span])
        linear = head.name if head.activation == "identity" else f"{head.name}.linear"
        nodes.append(Node(name=linear, op=op, inputs=("fan_out",)))
        if head.activation != "identity":
            nodes.append(Node(name=head.name, op=ops.Elementwise(function=head.activation), inputs=(linear,)))
        outputs.append(head.name)
    return nodes, tuple(outputs)


def _sorted(nodes: Sequence[Node], known: set[str]) -> tuple[Node, ...]:
    """Return nodes in an order in which values are made before they are read; keeps the given order where it can."""
    ready: list[Node] = []
    waiting = list(nodes)
    made = set(known)
    while waiting:
        later = []
        for node in waiting:
            if made.issuperset(node.inputs):
                ready.append(node)
                made.update(node.outputs)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise SpecError(
                f"the graph has a cycle through {', '.join(f'`{node.name}`' for node in later)}; "
                "recurrence belongs inside a recurrent step, whose state the executor keeps"
            )
        waiting = later
    return tuple(ready)


SideT = TypeVar("SideT", bound=str)


def find_regions(
    before: Mapping[str, Collection[str]], sides: Mapping[str, SideT]
) -> tuple[tuple[SideT, tuple[str, ...]], ...]:
    """Return regions of nodes with their side, in an order in which they can run.

    `before` has the nodes that each waits for, itself in an order in which they can run. A region is convex when no
    path leaves it and comes back: it can then be run as a whole once its inputs are there. Nodes get a level that rises
    by one wherever an edge changes sides; nodes of one level and side are a region, since a path that leaves it never
    comes back down.
    """
    level: dict[str, int] = {}
    regions: dict[tuple[int, SideT], list[str]] = {}
    for name, producers in before.items():
        level[name] = max((level[p] + (sides[p] != sides[name]) for p in producers), default=0)
        regions.setdefault((level[name], sides[name]), []).append(name)
    return tuple((side, tuple(names)) for (_, side), names in sorted(regions.items(), key=lambda region: region[0]))
