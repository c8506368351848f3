"""The routing table of the seed documents, all thirteen rows as they are written, each beside what the chip does.

Policy `seed` puts an op where its row says, whatever it costs and whatever rounding does to it. Where an AKD1000
differs, the row has a note; the executor does what the note says. An op that no row names is software.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from metalforge.hybrid.model.graph import Node
from metalforge.hybrid.model.ops import Elementwise, FullyConnected, Precision

__all__ = ["LARGE", "SEED_TABLE", "SeedRow", "Substrate", "seed_row"]

Substrate: TypeAlias = Literal["npu", "software", "npu+software", "software->npu"]
"""Where an op runs. npu+software: the product there, the rest here; software->npu: computed here, pushed there."""
LARGE = 1000
"""Nodes, that is units, above which the seeds take a layer to exceed the chip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One row: what it speaks of, where that goes, why, and what the chip really does."""

    operation: str
    substrate: Substrate
    reason: str
    note: str
    applies: Callable[[Node], bool]


def seed_row(node: Node) -> SeedRow | None:
    """Return the first row that speaks of a node; None where the table is silent."""
    return next((row for row in SEED_TABLE if row.applies(node)), None)


def _layer(node: Node) -> FullyConnected | None:
    return node.op if isinstance(node.op, FullyConnected) else None


def _is_large(node: Node) -> bool:
    layer = _layer(node)
    return layer is not None and layer.matrix.shape[0] > LARGE


def _is_int4(node: Node) -> bool:
    layer = _layer(node)
    if layer is None or layer.precision is Precision.FLOAT:
        return False
    return layer.precision is Precision.INT4 or layer.int4_exact


def _activation(name: str) -> Callable[[Node], bool]:
    return lambda node: isinstance(node.op, Elementwise) and node.op.function == name


def _kind(kind: str) -> Callable[[Node], bool]:
    return lambda node: getattr(node.op, "kind", "") == kind


SEED_TABLE = (
    SeedRow(
        operation="FC layer, large (>1000 nodes)",
        substrate="software",
        reason="exceeds NP budget",
        note="the chip maps larger layers: one on a processor with external memory, or split into blocks of rows",
        applies=_is_large,
    ),
    SeedRow(
        operation="FC layer, int4-compatible weights",
        substrate="npu",
        reason="native op, 23x faster",
        note="23x is the seeds' figure; modelled costs are beside it",
        applies=_is_int4,
    ),
    SeedRow(
        operation="FC layer, f32 weights",
        substrate="software",
        reason="quantization would lose precision",
        note="two or three base-15 digits hold such weights to 0.7 % or 0.05 %; policy `default` uses them",
        applies=lambda node: _layer(node) is not None,
    ),
    SeedRow(
        operation="tanh activation",
        substrate="npu+software",
        reason="HW does linear part, SW applies tanh",
        note="the last layer of a program returns its potentials without a rectifier, so this needs no trick",
        applies=_activation("tanh"),
    ),
    SeedRow(
        operation="bounded ReLU",
        substrate="npu",
        reason="native op",
        note="native as the activation of a layer, in 4 bits: 15 steps",
        applies=_activation("bounded_relu"),
    ),
    SeedRow(
        operation="sigmoid activation",
        substrate="software",
        reason="not hardware-native",
        note="",
        applies=_activation("sigmoid"),
    ),
    SeedRow(
        operation="GELU activation",
        substrate="software",
        reason="not hardware-native",
        note="",
        applies=_activation("gelu"),
    ),
    SeedRow(
        operation="recurrent step",
        substrate="npu+software",
        reason="HW does W_in x + W_res state, SW applies activation",
        note="one layer of [W_in | W_res], a range for each part; the host adds bias and leak and carries the state",
        applies=_kind("recurrent_step"),
    ),
    SeedRow(
        operation="gradient computation",
        substrate="software",
        reason="hardware has no gradient path",
        note="",
        applies=_kind("gradient"),
    ),
    SeedRow(
        operation="weight update (gradient step)",
        substrate="software",
        reason="gradients computed in software",
        note="the seeds' own training loop then pushes the weights by set_variable, and so does the executor",
        applies=_kind("weight_update_gradient"),
    ),
    SeedRow(
        operation="weight update (mutation)",
        substrate="software->npu",
        reason="computed in SW, applied via set_variable()",
        note="an update replaces the weights of a whole program",
        applies=_kind("weight_update_mutation"),
    ),
    SeedRow(
        operation="multi-head fan-out",
        substrate="npu",
        reason="SkipDMA, native",
        note="the chip refuses several outputs from one layer: heads that read one value become one merged layer",
        applies=_kind("fan_out"),
    ),
    SeedRow(
        operation="temporal integration",
        substrate="npu+software",
        reason="HW forward pass, SW manages state buffer",
        note="the layers before it are the forward pass; the integration itself is the host's, like its buffer",
        applies=_kind("temporal_integration"),
    ),
)
"""In the order in which they are tried: what is large is large whatever its weights are."""
