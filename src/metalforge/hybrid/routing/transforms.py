"""What may be done to a graph so that more of it maps: each a function of the graph, none changes what is computed."""

from collections.abc import Collection, Sequence

import numpy as np

from metalforge.core import Reals, require_at_least
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.reservoir import to_dense
from metalforge.substrates import DeviceProfile, Quantized, units_on_chip

from .encodings import Weights


def pack_recurrent(op: ops.RecurrentStep) -> Reals:
    """Return [W_in | W_res], (units, inputs + units)."""
    return np.hstack([op.weights.w_in, to_dense(op.weights.w_res)])


def source_of(graph: OpGraph, value: str) -> str:
    """Return the value that fan-outs copied to make this one; itself where there were none."""
    producer = graph.producer(value)
    while producer is not None and isinstance(producer.op, ops.FanOutOp):
        value = producer.inputs[0]
        producer = graph.producer(value)
    return value


def sibling_heads(graph: OpGraph, eligible: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return groups of two or more of the `eligible` layers that read one value, fan-outs looked through.

    Real and quantised weights are not put together: integers that exist keep their own scales.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for node in graph.nodes:
        if node.name in eligible and isinstance(node.op, ops.FullyConnectedOp):
            key = source_of(graph, node.inputs[0]), isinstance(node.op.weights, Quantized)
            groups.setdefault(key, []).append(node.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def merge_siblings(layers: Sequence[Weights]) -> Weights:
    """Return the layers' rows as one matrix, all real or all quantised; then with one scale per row."""
    parts = [w for w in layers if isinstance(w, Quantized)]
    if not parts:
        return np.concatenate([w for w in layers if not isinstance(w, Quantized)])
    return Quantized(
        values=np.concatenate([q.values.astype(np.int16) for q in parts]),
        scales=np.concatenate([np.broadcast_to(q.scales, q.values.shape[:1]) for q in parts]),
        limits=(min(q.limits[0] for q in parts), max(q.limits[1] for q in parts)),
        error=np.concatenate([q.error for q in parts]),
    )


def rectified_chains(graph: OpGraph, eligible: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Return runs of `eligible` nodes that one program can hold: layer, bounded ReLU, layer, ..., in every length.

    A value inside a run has no reader outside it and is no output of the graph; a layer whose weights change while the
    model runs is in no run, since its thresholds would have to follow.
    """
    usable = set(eligible) - update_targets(graph)
    turns = {"fully_connected": "bounded_relu", "bounded_relu": "fully_connected"}
    runs = []
    for node in graph.nodes:
        if node.name not in usable or not isinstance(node.op, ops.FullyConnectedOp):
            continue
        run = [node]
        while (following := _only_reader(graph, run[-1])) is not None:
            if following.name not in usable or following.op.kind != turns[run[-1].op.kind]:
                break
            run.append(following)
            runs.append(tuple(n.name for n in run))
    return tuple(runs)


def split_rows(rows: int, size: int) -> tuple[slice, ...]:
    """Return rows 0 .. `rows` in runs of `size`; the last may be shorter."""
    require_at_least(1, rows=rows, size=size)
    return tuple(slice(start, min(start + size, rows)) for start in range(0, rows, size))


def rows_on_chip(inputs: int, digits: int, chip: DeviceProfile) -> int | None:
    """Return the rows of a matrix that one on-chip processor holds; None where the profile does not say."""
    limit = chip.mesh.onchip_bytes
    return None if limit is None else units_on_chip(inputs, limit.value) // digits


def update_targets(graph: OpGraph) -> frozenset[str]:
    """Return the nodes whose weights some op of the graph changes."""
    return frozenset(node.op.of for node in graph.nodes if isinstance(node.op, ops.GradientUpdate | ops.MutationUpdate))


def _only_reader(graph: OpGraph, node: Node) -> Node | None:
    """Return the node that alone reads what another makes; None where there are several, or the caller reads it."""
    value = node.outputs[0]
    readers = graph.consumers(value)
    if len(readers) != 1 or value in graph.outputs or len(readers[0].inputs) != 1:
        return None
    return readers[0]
