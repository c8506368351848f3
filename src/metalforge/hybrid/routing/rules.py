"""Which ops the NPU can run and why, and the routing table of the seed documents beside what the chip does.

Policy `seed` puts an op where its row of the table says, whatever it costs and whatever rounding does to it. Where an
AKD1000 differs, the row has a note; the executor does what the note says. An op that no row names is software.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import FullyConnectedOp, Op, Precision
from metalforge.substrates import Quantized, digit_limit

from .ranges import ValueRange

Substrate: TypeAlias = Literal["npu", "software", "npu+software", "software->npu"]
"""Where an op runs. npu+software: the product there, the rest here; software->npu: computed here, pushed there."""
LARGE = 1000
"""Nodes, that is units, above which the design documents take a layer to exceed the chip."""


class SeedRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: what it speaks of, where that goes, why, which ops it applies to, and what the chip really does."""

    operation: str
    substrate: Substrate
    reason: str
    applies: str
    note: str = ""


SEED_TABLE = msgspec.toml.decode(
    Path(__file__).with_name("seed_table.toml").read_bytes(), type=dict[str, tuple[SeedRow, ...]]
)["rows"]


def seed_row(node: Node) -> SeedRow | None:
    """Return the first row that speaks of a node; None where the table is silent."""
    kinds = _kinds(node.op)
    return next((row for row in SEED_TABLE if row.applies in kinds), None)


def _kinds(op: Op) -> set[str]:
    """Return what the table may call an op: its kind, and of a layer also whether it is large or holds int4 weights."""
    found = {op.kind}
    if isinstance(op, FullyConnectedOp):
        if op.matrix.shape[0] > LARGE:
            found.add("large")
        if op.precision is Precision.INT4 or (op.precision is not Precision.FLOAT and op.int4_exact):
            found.add("int4")
    return found


CALIBRATE = "give calibration data: plan(graph, calibration={...})"
WIDEST = digit_limit(3)


class Verdict(msgspec.Struct, frozen=True):
    """Whether an op can run, why or why not, and what to do about it."""

    reason: str
    fix: str = ""
    ok: bool = False


NEVER = msgspec.toml.decode(Path(__file__).with_name("verdicts.toml").read_bytes(), type=dict[str, Verdict])
"""Why an NPU of this kind does not run an op, by the op's kind."""


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
    return NEVER[op.kind]


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
