"""The routing table of the seed documents, all thirteen rows as they are written, each beside what the chip does.

Policy `seed` puts an op where its row says, whatever it costs and whatever rounding does to it. Where an AKD1000
differs, the row has a note; the executor does what the note says. An op that no row names is software.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from metalforge.hybrid.model.graph import Node
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp, Precision

__all__ = ["LARGE", "SEED_TABLE", "SeedRow", "Substrate", "seed_row"]

Substrate: TypeAlias = Literal["npu", "software", "npu+software", "software->npu"]
"""Where an op runs. npu+software: the product there, the rest here; software->npu: computed here, pushed there."""
LARGE = 1000
"""Nodes, that is units, above which the design documents take a layer to exceed the chip."""


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One row: what it speaks of, where that goes, why, and what the chip really does."""

    operation: str
    substrate: Substrate
    reason: str
    applies: Callable[[Node], bool]
    note: str = ""


def seed_row(node: Node) -> SeedRow | None:
    """Return the first row that speaks of a node; None where the table is silent."""
    return next((row for row in SEED_TABLE if row.applies(node)), None)


def _layer(node: Node) -> FullyConnectedOp | None:
    return node.op if isinstance(node.op, FullyConnectedOp) else None


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
        "FC layer, large (>1000 nodes)",
        "software",
        "exceeds NP budget",
        _is_large,
        "the chip maps larger layers: one on a processor with external memory, or split into blocks of rows",
    ),
    SeedRow(
        "FC layer, int4-compatible weights",
        "npu",
        "native op, 23x faster",
        _is_int4,
        "23x is the design documents' figure; modelled costs are beside it",
    ),
    SeedRow(
        "FC layer, f32 weights",
        "software",
        "quantization would lose precision",
        lambda node: _layer(node) is not None,
        "two or three base-15 digits hold such weights to 0.7 % or 0.05 %; policy `default` uses them",
    ),
    SeedRow(
        "tanh activation",
        "npu+software",
        "HW does linear part, SW applies tanh",
        _activation("tanh"),
        "the last layer of a program returns its potentials without a rectifier, so this needs no trick",
    ),
    SeedRow(
        "bounded ReLU",
        "npu",
        "native op",
        _activation("bounded_relu"),
        "native as the activation of a layer, in 4 bits: 15 steps",
    ),
    SeedRow("sigmoid activation", "software", "not hardware-native", _activation("sigmoid")),
    SeedRow("GELU activation", "software", "not hardware-native", _activation("gelu")),
    SeedRow(
        "recurrent step",
        "npu+software",
        "HW does W_in x + W_res state, SW applies activation",
        _kind("recurrent_step"),
        "one layer of [W_in | W_res], a range for each part; the host adds bias and leak and carries the state",
    ),
    SeedRow("gradient computation", "software", "hardware has no gradient path", _kind("gradient")),
    SeedRow(
        "weight update (gradient step)",
        "software",
        "gradients computed in software",
        _kind("weight_update_gradient"),
        "the design documents' own training loop then pushes the weights by set_variable, and so does the executor",
    ),
    SeedRow(
        "weight update (mutation)",
        "software->npu",
        "computed in SW, applied via set_variable()",
        _kind("weight_update_mutation"),
        "an update replaces the weights of a whole program",
    ),
    SeedRow(
        "multi-head fan-out",
        "npu",
        "SkipDMA, native",
        _kind("fan_out"),
        "the chip refuses several outputs from one layer: heads that read one value become one merged layer",
    ),
    SeedRow(
        "temporal integration",
        "npu+software",
        "HW forward pass, SW manages state buffer",
        _kind("temporal_integration"),
        "the layers before it are the forward pass; the integration itself is the host's, like its buffer",
    ),
)
"""In the order in which they are tried: what is large is large whatever its weights are."""
