"""The thirteen rules of the published routing table, each with a small model that it decides: planned, run, compared.

An example is planned by the table, by costs (policy `default`), and with the op asked for on the chip whatever they
say; the first plan runs on the emulator beside software.
"""

from typing import cast

import msgspec
import numpy as np

from metalforge.core import PlacementError, find
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.routing.rules import LARGE, SEED_TABLE, SeedRow
from metalforge.reservoir import make_esn

from .executor import HybridExecutor

INPUTS, OUTPUTS, UNITS = 6, 4, 8
SAMPLES, CALLS = 16, 3
"""Of a run; several calls, since states and updates show from the second on."""


class Exercised(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, and what became of its example."""

    row: SeedRow
    """As the table has it, with the place and the reason that the plan gives."""
    model: str
    """The ops of the example; the one that the rule speaks of has the rule's name."""
    by_cost: str
    """Where policy `default` puts it for latency."""
    on_chip: str
    """What comes of asking for the chip: `runs`, or the refusal."""
    on_device: tuple[str, ...]
    """Ops that the device ran under the rule."""
    pushes: int
    difference: float
    """The largest between the model's outputs and software's, over the largest of software's."""
    plan: str
    """All that the plan says of the op."""

    def __str__(self) -> str:
        """Return it in a few lines."""
        row, device = self.row, ", ".join(self.on_device) or "nothing"
        pushed = f", weights pushed {self.pushes} times" if self.pushes else ""
        lines = [
            f"{row.applies}: {row.operation} -> {row.substrate} ({row.reason})",
            *([f"  the chip: {row.note}"] if row.note else []),
            f"  example: {self.model}; by cost it would be {self.by_cost}",
            f"  asked for on the chip: {self.on_chip}",
            f"  ran: {device} on the device{pushed}; off by {self.difference:.2g} of the largest output",
        ]
        return "\n".join(lines)


def exercise(rule: str) -> Exercised:
    """Return what a rule, named by what it applies to (`tanh`, `large`, ...), does to its example."""
    row = find("rule", rule, {row.applies: row for row in SEED_TABLE})
    graph = _model(rule)
    plan = OperationRouter("seed").plan(graph)
    try:
        OperationRouter().plan(graph, pin={rule: "npu"})
        on_chip = "runs"
    except PlacementError as error:
        on_chip = "refused: " + str(error).splitlines()[0].partition(": ")[2]
    described = [
        node.op.kind.replace("_", " ")
        + (" {1} to {0}".format(*node.op.matrix.shape) if isinstance(node.op, ops.FullyConnectedOp) else "")
        for node in graph.nodes
    ]
    rng = np.random.default_rng(2)
    software, apart, largest = SoftwareModel(graph), 0.0, 0.0
    with HybridExecutor(plan) as executor:
        for _ in range(CALLS):
            inputs = {name: rng.uniform(-1, 1, (SAMPLES, ops.entries(shape))) for name, shape in graph.inputs.items()}
            wanted, found = software.forward(inputs), executor.step(inputs)
            values = found.values() if isinstance(found, dict) else [found]
            for a, b in zip(wanted.values(), values, strict=True):
                apart, largest = max(apart, float(np.abs(a - b).max())), max(largest, float(np.abs(a).max()))
        pushes = executor.statistics().pushes
    return Exercised(
        row=msgspec.structs.replace(row, substrate=plan[rule].substrate, reason=plan[rule].reason),
        model=", ".join(described),
        by_cost=OperationRouter().plan(graph)[rule].substrate,
        on_chip=on_chip,
        on_device=tuple(r.op for r in plan.record.ops if r.job),
        pushes=pushes,
        difference=apart / largest,
        plan=plan.explain(rule),
    )


def _model(rule: str) -> OpGraph:
    """Return the example of a rule; the op that it speaks of has the rule's name."""
    rng = np.random.default_rng(1)
    grid = rng.integers(-7, 8, (OUTPUTS, INPUTS))
    grid[:, 0] = 7
    layer = ops.FullyConnectedOp(weights=(0.03 * grid).astype(np.float32))
    first = Node(name="layer", op=layer, inputs=("x",))
    alone: dict[str, ops.Op] = {
        "large": ops.FullyConnectedOp(weights=np.full((LARGE + 1, INPUTS), 0.5, np.float32)),
        "int4": layer,
        "fully_connected": ops.FullyConnectedOp(weights=rng.normal(size=grid.shape).astype(np.float32)),
        "recurrent_step": ops.RecurrentStep(weights=make_esn(UNITS, INPUTS, seed=1).astype(np.float32)),
    }
    behind: dict[str, ops.Op] = {"fan_out": ops.FanOutOp(), "temporal_integration": ops.TemporalIntegration(leak=0.3)}
    if rule in alone:
        nodes = [Node(name=rule, op=alone[rule], inputs=("x",))]
    elif rule == "weight_update_mutation":
        nodes = [first, Node(name=rule, op=ops.MutationUpdate(of="layer", shape=grid.shape, fraction=0.5))]
    elif rule in ("gradient", "weight_update_gradient"):
        nodes = [
            first,
            Node(name="gradient", op=ops.Gradient(of="layer"), inputs=("x", "layer", "target")),
            Node(name="weight_update_gradient", op=ops.GradientUpdate(of="layer", rate=0.1), inputs=("gradient",)),
        ]
    else:
        op = behind.get(rule) or ops.Elementwise(function=cast("ops.ElementwiseName", rule))
        nodes = [first, Node(name=rule, op=op, inputs=("layer",))]
    if rule == "fan_out":
        head = ops.FullyConnectedOp(weights=layer.matrix[:, :OUTPUTS])
        nodes += [Node(name=name, op=head, inputs=(rule,)) for name in ("head_0", "head_1")]
    read = {value for node in nodes for value in node.inputs}
    return OpGraph(
        inputs={name: (None, width) for name, width in (("x", INPUTS), ("target", OUTPUTS)) if name in read},
        nodes=tuple(nodes),
        outputs=tuple(node.name for node in nodes if node.name not in read),
        name=rule,
        ranges={"x": 1.0},
    )
