"""The routing table of the seed documents, all thirteen rows as they are written, each beside what the chip does.

Policy `seed` puts an op where its row says, whatever it costs and whatever rounding does to it. Where an AKD1000
differs, the row has a note; the executor does what the note says. An op that no row names is software.
"""

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from metalforge.hybrid.model.graph import Node
from metalforge.hybrid.model.ops import FullyConnectedOp, Op, Precision

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
    found = {getattr(op, "kind", "")}
    if isinstance(op, FullyConnectedOp):
        if op.matrix.shape[0] > LARGE:
            found.add("large")
        if op.precision is Precision.INT4 or (op.precision is not Precision.FLOAT and op.int4_exact):
            found.add("int4")
    return found
