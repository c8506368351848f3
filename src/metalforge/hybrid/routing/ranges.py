r"""How large every value of a graph can be: what a chip needs to know before it can round anything.

Without data, ranges follow from those of the inputs (`OpGraph.ranges`) and from what bounds an op: |tanh| <= 1,
|W x + b| <= |W| r + |b|. With data, they are measured in a run in software (`measured`). A value has one range for each
line of its last axis; only what stands side by side in a `Concat`, or comes out of a matrix, has lines of different
range.

Examples for `observe` are one batch where a graph has no state. For one with state they are time steps: arrays (T, ...)
of one sequence, or (B, T, ...) of several that run side by side.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.inputs import GraphValues
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.reservoir.activations import ACTIVATIONS

from .measured import HEADROOM, measured, widening

Examples: TypeAlias = ArrayLike | Mapping[str, ArrayLike] | Sequence[Mapping[str, ArrayLike]]
"""Inputs by name, an array for the only one, or several of them: series that each start from rest."""
EVENLY = 1 / sqrt(3)
"""Root mean square of a value spread evenly over -1 .. 1: what is assumed where nothing better is known."""
NEVER_NEGATIVE = ("sigmoid", "relu", "bounded_relu", "softmax")
SHRINKING = ("tanh", "piecewise_tanh", "bounded_relu", "relu", "gelu", "identity")
"""Functions with |f(x)| <= |x|."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueRange:
    """The largest modulus of each line of a value and its root mean square, and how they are known.

    `wide` takes the place of `largest` at 8 bits and more: a measured range has headroom there (`measured`). `beyond`
    counts the numbers of the calibration data that lie beyond the two.
    """

    largest: Doubles
    wide: Doubles
    rms: Doubles
    nonnegative: bool
    source: str
    beyond: tuple[int, int] = (0, 0)

    @classmethod
    def even(
        cls, width: int, largest: float, *, rms: float | None = None, nonnegative: bool = False, source: str
    ) -> "ValueRange":
        """Return one range for all lines."""
        mean, every = largest * EVENLY if rms is None else rms, np.full(width, largest)
        return cls(largest=every, wide=every, rms=np.full(width, mean), nonnegative=nonnegative, source=source)

    def at(self, activation_bits: int) -> "ValueRange":
        """Return the range for activations of so many bits."""
        if widening(activation_bits) == 1:
            return self
        return replace(self, largest=self.wide, beyond=(self.beyond[1], self.beyond[1]))

    def of_one_size(self) -> "ValueRange":
        """Return the same range for every line, the largest: what integers that exist already want."""
        largest, wide = (np.full_like(lines, lines.max()) for lines in (self.largest, self.wide))
        return replace(self, largest=largest, wide=wide)

    def beside(self, other: "ValueRange") -> "ValueRange":
        """Return the range of two values side by side."""
        return ValueRange(
            largest=np.concatenate([self.largest, other.largest]),
            wide=np.concatenate([self.wide, other.wide]),
            rms=np.concatenate([self.rms, other.rms]),
            nonnegative=self.nonnegative and other.nonnegative,
            source=self.source if self.source == other.source else f"{self.source}; {other.source}",
            beyond=(self.beyond[0] + other.beyond[0], self.beyond[1] + other.beyond[1]),
        )


def find_ranges(graph: OpGraph, observed: Mapping[str, ValueRange] | None = None) -> dict[str, ValueRange]:
    """Return the ranges of all values that have one; what was observed comes before what can be derived."""
    seen = observed or {}
    known: dict[str, ValueRange] = {}
    for name, largest in graph.ranges.items():
        known[name] = ValueRange.even(_width(graph, name), largest, source="given with the graph")
    promised = set(graph.ranges)
    for name in graph.inputs:
        _observe(name, seen, known, promised, np.inf)
    for node in graph.nodes:
        derived = _derive(graph, node, known)
        if isinstance(node.op, ops.SoftwareOnly):
            bounded = _bounded(graph, node, node.op)
            known |= bounded
            promised |= set(bounded)
        if derived is not None:
            # All that a recurrence gives are states.
            made = node.outputs if isinstance(node.op, ops.RecurrentSequence) else node.outputs[:1]
            known.update(dict.fromkeys(made, derived))
        if derived is None or not _side_by_side(graph, node):  # a concat keeps the ranges of its parts
            for value in node.outputs:
                _observe(value, seen, known, promised, _limit(_function(node.op)))
    return {name: _without_zeros(found) for name, found in known.items()}


def _observe(
    name: str, seen: Mapping[str, ValueRange], known: dict[str, ValueRange], promised: Collection[str], limit: float
) -> None:
    """Replace a derived range by what a run showed; headroom ends at the limit that the value's op sets."""
    if name not in seen:
        return
    if name in promised:  # the range is certain; the examples only show how it is filled
        known[name] = replace(known[name], rms=seen[name].rms)
    else:
        nonnegative = name in known and known[name].nonnegative
        known[name] = replace(seen[name], wide=np.minimum(seen[name].wide, limit), nonnegative=nonnegative)


def _limit(function: str | None) -> float:
    """Return the largest number that an activation can give."""
    bound = 1.0 if function == "softmax" else ACTIVATIONS[function].bound if function else None
    return np.inf if bound is None else bound


def _function(op: ops.Op) -> str | None:
    """Return the activation that makes an op's result."""
    if isinstance(op, ops.Elementwise):
        return op.function
    return op.weights.activation if isinstance(op, ops.RecurrentStep) else None


def _bounded(graph: OpGraph, node: Node, op: ops.SoftwareOnly) -> dict[str, ValueRange]:
    """Return the ranges of the outputs that ONNX operators limit, such as dequantised integers."""
    found = {}
    for value, limits in zip(node.outputs, op.output_bounds, strict=False):
        if limits is not None:
            largest, source = max(map(abs, limits)), "limited by its ONNX operators"
            found[value] = ValueRange.even(_width(graph, value), largest, nonnegative=limits[0] >= 0, source=source)
    return found


def _derive(graph: OpGraph, node: Node, known: Mapping[str, ValueRange]) -> ValueRange | None:
    """Return the range of a node's first output; None where nothing bounds it."""
    op = node.op
    inputs = [known.get(value) for value in node.inputs]
    given = [found for found in inputs if found is not None]
    complete = len(given) == len(inputs) and bool(given)
    match op:
        case ops.Elementwise():
            return _activated(op.function, inputs[0], _width(graph, node.outputs[0]))
        case ops.RecurrentStep():
            return _activated(op.weights.activation, None, op.weights.units)
        case ops.FullyConnectedOp() if complete:
            return _product(op, given[0])
        case ops.FanOutOp() | ops.TemporalIntegration() if complete:
            return given[0]
        case ops.Concat() if complete and _side_by_side(graph, node):
            joined = given[0]
            for found in given[1:]:
                joined = joined.beside(found)
            return joined
        case ops.Concat() if complete:
            return replace(
                given[0],
                largest=np.max([found.largest for found in given], axis=0),
                wide=np.max([found.wide for found in given], axis=0),
                nonnegative=all(found.nonnegative for found in given),
            )
        case ops.Add() if complete:
            return ValueRange(
                largest=np.sum([found.largest for found in given], axis=0),
                wide=np.sum([found.wide for found in given], axis=0),
                rms=np.sqrt(np.sum([found.rms**2 for found in given], axis=0)),
                nonnegative=all(found.nonnegative for found in given),
                source="sum of its inputs' ranges",
            )
    return None


def _activated(function: str, before: ValueRange | None, width: int) -> ValueRange | None:
    """Return the range of f(x), for x of a known or unknown range."""
    limit = _limit(function)
    shrinks = before if function in SHRINKING else None
    if shrinks is None and limit == np.inf:
        return None
    nonnegative = function in NEVER_NEGATIVE or (before is not None and before.nonnegative and function in SHRINKING)
    if shrinks is None:
        return ValueRange.even(width, limit, nonnegative=nonnegative, source=f"{function} is at most {limit:g}")
    return ValueRange(
        largest=np.minimum(shrinks.largest, limit),
        wide=np.minimum(shrinks.wide, limit),
        rms=np.minimum(shrinks.rms, limit * EVENLY),
        nonnegative=nonnegative,
        source=f"{function} of a value that is {shrinks.source}",
    )


def _product(op: ops.FullyConnectedOp, x: ValueRange) -> ValueRange:
    """Return the range of W x + b: the sum of moduli, and of squares for inputs that do not depend on each other."""
    w = op.matrix.astype(np.float64)
    bias = np.zeros(len(w)) if op.bias is None else op.bias.astype(np.float64)
    return ValueRange(
        largest=np.abs(w) @ x.largest + np.abs(bias),
        wide=np.abs(w) @ x.wide + np.abs(bias),
        rms=np.sqrt(w**2 @ x.rms**2 + bias**2),
        nonnegative=False,
        source="bound of a product",
    )


def _side_by_side(graph: OpGraph, node: Node) -> bool:
    """Whether a node puts its inputs side by side on the last axis."""
    return isinstance(node.op, ops.Concat) and node.op.axis in (-1, len(graph.shapes[node.outputs[0]]) - 1)


def _width(graph: OpGraph, value: str) -> int:
    shape = graph.shapes[value]
    return (shape[-1] if shape else None) or 1


def _without_zeros(found: ValueRange) -> ValueRange:
    """Return a range in which no line is zero: the chip's grid needs a size, and a line of zeros fits any."""
    largest, wide = (
        np.where(lines > 0, lines, float(lines.max(initial=0.0)) or 1.0) for lines in (found.largest, found.wide)
    )
    return replace(found, largest=largest, wide=wide)


def observe(graph: OpGraph, examples: Examples) -> dict[str, ValueRange]:
    """Return the ranges of all values in a run of the examples; one that was always zero shows nothing.

    The moduli of all values of all examples are held in memory, in float32.
    """
    everything = tuple(value for node in graph.nodes for value in node.outputs)
    model, reader = SoftwareModel(replace(graph, outputs=everything)), GraphValues(graph)
    seen: dict[str, list[NDArray[np.float32]]] = {}
    samples = 0
    for inputs in _calls(graph, examples, reader, model):
        samples += reader.samples(inputs)
        for name, value in (dict(inputs) | model.forward(inputs)).items():
            array = np.asarray(value, np.float64)
            if not np.all(np.isfinite(array)):
                raise SpecError(f"calibration made NaN or infinity of `{name}`; look at the examples or the weights")
            seen.setdefault(name, []).append(np.abs(array).reshape(-1, _width(graph, name)).astype(np.float32))
    found = {}
    for name, parts in seen.items():
        known = measured(np.concatenate(parts))
        if known.range:
            source = f"measured on {samples} samples"
            even = ValueRange.even(_width(graph, name), known.range, rms=known.rms, source=source)
            found[name] = replace(even, wide=HEADROOM * even.largest, beyond=(known.beyond, known.beyond_headroom))
    return found


def _calls(
    graph: OpGraph, examples: Any, reader: GraphValues, model: SoftwareModel
) -> Iterator[Mapping[str, ArrayLike]]:
    """Yield the inputs of every call that the examples are, with the model at rest before each series."""
    several = isinstance(examples, Sequence) and all(isinstance(one, Mapping) for one in examples)
    for example in examples if several else [examples]:
        model.reset()
        named = reader.named(example)
        yield from reader.sequences(named)[0] if graph.stateful else [named]
