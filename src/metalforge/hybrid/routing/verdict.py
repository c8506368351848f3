"""Whether a substrate can run an op: yes, or no with the reason and what would change it.

An op that nobody has heard of is not supported, because nobody has heard of it; asking never fails.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.substrates.npu.ladder import digit_limit
from metalforge.substrates.npu.quantize import Quantized

from .ranges import ValueRange

CALIBRATE = "give calibration data: plan(graph, calibration={...})"
WIDEST = digit_limit(3)


class Verdict(msgspec.Struct, frozen=True):
    """Whether an op can run, why or why not, and what to do about it."""

    reason: str
    fix: str = ""
    ok: bool = False


NEVER = msgspec.toml.decode(Path(__file__).with_name("verdicts.toml").read_bytes(), type=dict[str, Verdict])
"""Why an NPU of this kind does not run an op, by the op's kind."""
IN_SOFTWARE = tuple(op for op in vars(ops).values() if isinstance(op, type) and ops.Op in op.__bases__)
"""What `software.evaluate` knows: every op there is."""


def npu_verdict(node: Node, graph: OpGraph, ranges: Mapping[str, ValueRange]) -> Verdict:
    """Return whether the NPU can run a node's work, given the ranges that are known.

    Room on the chip and the error of rounding are the planner's business: they depend on the other nodes and on what is
    asked for.
    """
    op = node.op
    match op:
        case ops.FullyConnectedOp() | ops.RecurrentStep():
            return _matrix(node, graph, ranges)
        case ops.Elementwise(function="bounded_relu"):
            if node.inputs[0] not in ranges:
                return _unknown_range(node.inputs[0])
            return Verdict("native, as the activation of a fully connected layer, in 4 bits", ok=True)
        case ops.SoftwareOnly():
            fix = "replace it by fully connected layers" if op.operations else ""  # others have no products to move
            return Verdict(op.reason, fix=fix)
    return NEVER.get(getattr(op, "kind", "")) or _unheard(op, "no rule", "fully connected layers and activations")


def software_verdict(node: Node) -> Verdict:
    """Return whether software can run a node."""
    if isinstance(node.op, IN_SOFTWARE):
        return Verdict("software computes it", ok=True)
    return _unheard(node.op, "software has no rule", "the ops in metalforge.hybrid.model.ops")


def _unheard(op: ops.Op, lacking: str, instead: str) -> Verdict:
    kind = getattr(op, "kind", type(op).__name__)
    return Verdict(f"not supported: {lacking} for an op of kind `{kind}`", fix=f"build it of {instead}")


def _matrix(node: Node, graph: OpGraph, ranges: Mapping[str, ValueRange]) -> Verdict:
    """Return whether a matrix can be put on the chip: weights that may be integers, inputs of a known size."""
    op = node.op
    if op.precision is ops.Precision.FLOAT:
        return Verdict(
            "its weights must stay as they are, and the chip computes in integers",
            fix="declare Precision.ANY and set a tolerance",
        )
    if isinstance(op, ops.FullyConnectedOp) and isinstance(op.weights, Quantized):
        largest = int(np.abs(op.weights.values.astype(np.int64)).max())
        if largest > WIDEST:
            return Verdict(
                f"its integers reach {largest}; three digits hold {WIDEST}",
                fix="quantise to 11 bits or fewer, or give real weights",
            )
    if node.inputs[0] not in ranges:
        return _unknown_range(node.inputs[0])
    if isinstance(op, ops.RecurrentStep) and node.outputs[0] not in ranges:
        return Verdict(
            f"nothing bounds its state: {op.weights.activation} does not",
            fix=f"{CALIBRATE}, or use a bounded activation such as tanh",
        )
    shape = graph.shapes[node.inputs[0]]
    if shape.count(None) > 1:
        return Verdict(f"its input {shape} has an open extent besides the batch")
    return Verdict("a matrix product, which is what the chip does", ok=True)


def _unknown_range(value: str) -> Verdict:
    return Verdict(f"the range of `{value}` is not known, so it cannot be rounded", fix=CALIBRATE)
