"""Small graphs for tests of the router and the executor, and what a region of a graph must be, by definition."""

from dataclasses import replace

import numpy as np

from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid.model.graph import Node, OpGraph, graph_from_esn
from metalforge.hybrid.model.ops import Elementwise, FullyConnectedOp, Gradient, GradientUpdate
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.prices import Roofline

HOST = Roofline(profile="test-host", flops_per_s=1e11, bytes_per_s=2e10, call_s=1e-6)
"""A host of known rates: plans are the same on every machine."""
SLOW_HOST = Roofline(profile="slow-host", flops_per_s=1e6, bytes_per_s=1e6, call_s=1.0)
"""One that any NPU beats."""


def real_layer(rng, inputs, outputs, *, bias=True, dtype="f4"):
    """A layer with weights that no grid holds."""
    weights = (rng.normal(size=(outputs, inputs)) / np.sqrt(inputs)).astype(dtype)
    return FullyConnectedOp(weights=weights, bias=rng.normal(size=outputs).astype(dtype) if bias else None)


def int4_layer(rng, inputs, outputs, *, bias=False, dtype="f4"):
    """A layer on an int4 grid; every other row has no seven, as where one scale holds for all rows."""
    grid = rng.integers(-7, 8, (outputs, inputs))
    grid[::2] = np.clip(grid[::2], -5, 5)
    weights = (grid * rng.uniform(0.01, 0.05, (outputs, 1))).astype(dtype)
    return FullyConnectedOp(weights=weights, bias=rng.normal(size=outputs).astype(dtype) if bias else None)


def chain(*ops, inputs, ranges=1.0, dtype="float32"):
    """x -> n0 -> n1 -> ...; the input lies within its range."""
    nodes = [Node(name=f"n{i}", op=op, inputs=(f"n{i - 1}" if i else "x",)) for i, op in enumerate(ops)]
    return OpGraph(
        inputs={"x": (None, inputs)},
        nodes=tuple(nodes),
        outputs=(nodes[-1].name,),
        dtype=dtype,
        ranges={} if ranges is None else {"x": ranges},
    )


def esn(rng, units=32, inputs=10, outputs=3, *, leak=1.0, activation="tanh", dtype="f4"):
    """Weights with spectral radius 0.9."""
    w_res = rng.normal(size=(units, units))
    w_res *= 0.9 / np.abs(np.linalg.eigvals(w_res)).max()
    return EsnWeights(
        w_in=rng.uniform(-0.5, 0.5, (units, inputs)).astype(dtype),
        w_res=w_res.astype(dtype),
        bias=rng.uniform(-0.1, 0.1, units).astype(dtype),
        w_out=(rng.normal(size=(outputs, units)) / np.sqrt(units)).astype(dtype),
        leak=leak,
        activation=activation,
    )


def esn_graph(rng, **sizes):
    """input -> reservoir -> readout, inputs within -1 .. 1."""
    return replace(graph_from_esn(esn(rng, **sizes)), ranges={"input": 1.0})


def heads_graph(rng, n_heads=11, units=32, inputs=5):
    """input -> reservoir -> fan-out -> heads, every other one with a sigmoid."""
    layout = HeadLayout(
        name="test",
        heads=tuple(HeadSpec(name=f"h{i}", activation="sigmoid" if i % 2 else "identity") for i in range(n_heads)),
    )
    weights = esn(rng, units, inputs, n_heads)
    return replace(
        graph_from_esn(weights.with_readout(weights.w_out, weights.out_bias, heads=layout), name="heads"),
        ranges={"input": 1.0},
    )


def training_graph(rng, rate=0.1, inputs=6, outputs=2):
    """x -> layer -> y, and the layer learns the target in every call."""
    layer = real_layer(rng, inputs, outputs)
    return OpGraph(
        inputs={"x": (None, inputs), "target": (None, outputs)},
        nodes=(
            Node(name="layer", op=layer, inputs=("x",)),
            Node(name="y", op=Elementwise(function="identity"), inputs=("layer",)),
            Node(name="gradient", op=Gradient(of="layer"), inputs=("x", "layer", "target")),
            Node(name="learn", op=GradientUpdate(of="layer", rate=rate), inputs=("gradient",)),
        ),
        outputs=("y",),
        ranges={"x": 1.0},
    )


def edges(graph):
    """Pairs of nodes of which the second reads what the first makes."""
    maker = {value: node.name for node in graph.nodes for value in node.outputs}
    return {(maker[value], node.name) for node in graph.nodes for value in node.inputs if value in maker}


def reachable(pairs, start):
    """Everything that a path leads to from a start."""
    found, waiting = set(), [start]
    while waiting:
        here = waiting.pop()
        for a, b in pairs:
            if a == here and b not in found:
                found.add(b)
                waiting.append(b)
    return found


def is_convex(pairs, region):
    """Whether no path leaves a region and comes back."""
    outside = {b for a, b in pairs if a in region and b not in region}
    return not any(reachable(pairs, node) & region for node in outside)


def quotient(pairs, regions):
    """Edges between regions, by number."""
    of = {name: i for i, region in enumerate(regions) for name in region}
    return {(of[a], of[b]) for a, b in pairs if of[a] != of[b]}
