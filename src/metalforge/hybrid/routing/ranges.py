"""How large every value of a graph can be: what a chip needs to know before it can round anything.

Without data, ranges follow from those of the inputs (`OpGraph.ranges`) and from what bounds an op: |tanh| <= 1,
|W x + b| <= |W| r + |b|. With data, they are measured in a run in software. A value has one range for each line of its
last axis; only what stands side by side in a `Concat`, or comes out of a matrix, has lines of different range.

A range r maps |x| <= r to the integers of the NPU and clamps larger values. The maximum of the data is a poor range:
one faulty sample makes the steps of all others too coarse. Let S be the moduli |x| of all numbers that are not zero,
S_j those of line j in n rows, and q_k(S) the (k + 1)-th largest of S. The range is

    r = max( q_k(S) with k = floor(0.005 |S|),  max_j q_m(S_j) with m = floor(0.005 n) )      4-bit activations
    r' = 1.25 r                                                                               8 bits and more

where j runs over the dense lines: |S_j| >= n / 2 and n >= 200. About 0.5 % of the numbers may lie beyond r. The second
term keeps a line that is larger than the others as a rule, such as one feature in another unit. Zeros do not count,
since data may be sparse. With 8 bits and more there are steps to spare, and 25 % of headroom clamps less of the data
that is still to come, for 0.3 bits.

Examples for `observe` are one batch where a graph has no state. For one with state they are time steps: arrays (T, ...)
of one sequence, or (B, T, ...) of several that run side by side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metalforge.core import Array, Doubles, SpecError
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.inputs import GraphValues
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.reservoir import ACTIVATIONS

TAIL = 0.005
"""Share of the numbers that may lie beyond a range."""
ENOUGH = 200
"""Rows that make a line count by itself: the tail of fewer is none of them."""
HEADROOM = 1.25
"""Range of activations of 8 bits and more, over that of 4 bits."""


class MeasuredRange(NamedTuple):
    """A range, and what lies within it. A range of 0 is that of data without a number other than zero."""

    range: float
    rms: float
    """Root mean square of the numbers, clamped to the range."""
    beyond: int
    beyond_headroom: int
    """Numbers beyond the range, and beyond `HEADROOM` times the range."""


def widening(activation_bits: int) -> float:
    """Return the factor that an activation width puts on a measured range."""
    return 1.0 if activation_bits == 4 else HEADROOM


def measured(values: NDArray[Any]) -> MeasuredRange:
    """Return the range of numbers (rows, lines) that share one."""
    sizes = np.abs(values)
    numbers = sizes[sizes > 0]
    if not numbers.size:
        return MeasuredRange(0.0, 0.0, 0, 0)
    ranges, dense = _by_line(sizes)
    place = numbers.size - 1 - int(TAIL * numbers.size)
    own = ranges[dense] if len(sizes) >= ENOUGH else ranges[:0]
    largest = max(float(np.partition(numbers, place)[place]), float(own.max(initial=0.0)))
    return MeasuredRange(
        range=largest,
        rms=float(np.sqrt(np.mean(np.minimum(sizes, largest, dtype=np.float64) ** 2))),
        beyond=int(np.count_nonzero(sizes > largest)),
        beyond_headroom=int(np.count_nonzero(sizes > HEADROOM * largest)),
    )


def line_ranges(values: NDArray[Any], activation_bits: int) -> Doubles:
    """Return a range for every line of numbers (rows, lines); a line of zeros has the largest range of the others."""
    ranges = widening(activation_bits) * _by_line(np.abs(values))[0]
    return np.where(ranges > 0, ranges, float(ranges.max(initial=0.0)) or 1.0)


def _by_line(sizes: NDArray[Any]) -> tuple[Doubles, NDArray[np.bool_]]:
    """Return q_m(S_j) of every line, and which lines are dense; the tail of a sparse one is of its own numbers."""
    rows, counts = len(sizes), np.count_nonzero(sizes, axis=0)
    dense = 2 * counts >= rows
    top = -np.sort(-np.partition(sizes, rows - 1 - int(TAIL * rows), axis=0)[rows - 1 - int(TAIL * rows) :], axis=0)
    tails = (TAIL * np.where(dense, rows, counts)).astype(np.int64)
    return np.take_along_axis(top, tails[np.newaxis], axis=0)[0].astype(np.float64), dense


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

    `sizes` (2, lines) are those at 4 bits, and at 8 bits and more, where a measured range has headroom (`measured`).
    `beyond` counts the numbers of the calibration data that lie beyond the two.
    """

    sizes: Doubles
    rms: Doubles
    nonnegative: bool
    source: str
    beyond: tuple[int, int] = (0, 0)

    @classmethod
    def even(
        cls, width: int, largest: float, *, rms: float | None = None, nonnegative: bool = False, source: str
    ) -> "ValueRange":
        """Return one range for all lines."""
        mean = largest * EVENLY if rms is None else rms
        sizes = np.full((2, width), largest)
        return cls(sizes=sizes, rms=np.full(width, mean), nonnegative=nonnegative, source=source)

    @property
    def largest(self) -> Doubles:
        """The largest modulus of each line, at 4 bits."""
        return np.asarray(self.sizes[0])

    def at(self, activation_bits: int) -> "ValueRange":
        """Return the range for activations of so many bits."""
        if widening(activation_bits) == 1:
            return self
        return replace(self, sizes=self.sizes[[1, 1]], beyond=(self.beyond[1], self.beyond[1]))

    def of_one_size(self) -> "ValueRange":
        """Return the same range for every line, the largest: what integers that exist already want."""
        return replace(self, sizes=np.repeat(self.sizes.max(axis=1, keepdims=True), self.rms.size, axis=1))

    def beside(self, other: "ValueRange") -> "ValueRange":
        """Return the range of two values side by side."""
        return ValueRange(
            sizes=np.concatenate([self.sizes, other.sizes], axis=1),
            rms=np.concatenate([self.rms, other.rms]),
            nonnegative=self.nonnegative and other.nonnegative,
            source=self.source if self.source == other.source else f"{self.source}; {other.source}",
            beyond=(self.beyond[0] + other.beyond[0], self.beyond[1] + other.beyond[1]),
        )


def find_ranges(graph: OpGraph, observed: Mapping[str, ValueRange] | None = None) -> dict[str, ValueRange]:
    """Return the ranges of all values that have one; what was observed comes before what can be derived."""
    seen = observed or {}
    known: dict[str, ValueRange] = {}

    def note(value: str, derived: ValueRange | None, *, certain: bool, limit: float = np.inf) -> None:
        shown = seen.get(value)
        if shown is None or (certain and derived is not None):
            # Examples only show how a range that is certain is filled.
            found = derived if shown is None or derived is None else replace(derived, rms=shown.rms)
        else:  # headroom ends at the limit that the value's op sets
            nonnegative = derived is not None and derived.nonnegative
            found = replace(shown, sizes=np.minimum(shown.sizes, [[np.inf], [limit]]), nonnegative=nonnegative)
        if found is not None:
            known[value] = found

    for name in graph.inputs:
        largest = graph.ranges.get(name)
        even = None if largest is None else ValueRange.even(_width(graph, name), largest, source="given with the graph")
        note(name, even, certain=True)
    for node in graph.nodes:
        if isinstance(node.op, ops.SoftwareOnly):
            for value, limits in zip(node.outputs, node.op.output_bounds or [None] * len(node.outputs), strict=True):
                note(value, None if limits is None else _bounded(_width(graph, value), *limits), certain=True)
            continue
        derived, op = _derive(graph, node, known), node.op
        function = op.weights.activation if isinstance(op, ops.RecurrentStep) else getattr(op, "function", None)
        for value in node.outputs:  # all that a recurrence gives are states
            if derived is not None and _side_by_side(graph, node):  # a concat keeps the ranges of its parts
                known[value] = derived
            else:
                note(value, derived, certain=False, limit=_limit(function))
    return {name: _without_zeros(found) for name, found in known.items()}


def _limit(function: str | None) -> float:
    """Return the largest number that an activation can give."""
    bound = 1.0 if function == "softmax" else ACTIVATIONS[function].bound if function else None
    return np.inf if bound is None else bound


def _bounded(width: int, low: float, high: float) -> ValueRange:
    """Return the range of a value that ONNX operators limit, such as dequantised integers."""
    source = "limited by its ONNX operators"
    return ValueRange.even(width, max(abs(low), abs(high)), nonnegative=low >= 0, source=source)


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
            return reduce(ValueRange.beside, given)
        case ops.Concat() if complete:
            sizes = np.max([found.sizes for found in given], axis=0)
            return replace(given[0], sizes=sizes, nonnegative=all(found.nonnegative for found in given))
        case ops.Add() if complete:
            return ValueRange(
                sizes=np.sum([found.sizes for found in given], axis=0),
                rms=np.sqrt(np.sum([found.rms**2 for found in given], axis=0)),
                nonnegative=all(found.nonnegative for found in given),
                source="sum of its inputs' ranges",
            )
    return None


def _activated(function: str, before: ValueRange | None, width: int) -> ValueRange | None:
    """Return the range of f(x), for x of a known or unknown range."""
    limit, shrinks = _limit(function), before if function in SHRINKING else None
    nonnegative = function in NEVER_NEGATIVE or (shrinks is not None and shrinks.nonnegative)
    if shrinks is not None:
        return ValueRange(
            sizes=np.minimum(shrinks.sizes, limit),
            rms=np.minimum(shrinks.rms, limit * EVENLY),
            nonnegative=nonnegative,
            source=f"{function} of a value that is {shrinks.source}",
        )
    if limit == np.inf:
        return None
    return ValueRange.even(width, limit, nonnegative=nonnegative, source=f"{function} is at most {limit:g}")


def _product(op: ops.FullyConnectedOp, x: ValueRange) -> ValueRange:
    """Return the range of W x + b: the sum of moduli, and of squares for inputs that do not depend on each other."""
    w = op.matrix.astype(np.float64)
    bias = np.zeros(len(w)) if op.bias is None else op.bias.astype(np.float64)
    return ValueRange(
        sizes=np.stack([np.abs(w) @ size + np.abs(bias) for size in x.sizes]),
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
    most = found.sizes.max(axis=1, keepdims=True, initial=0.0)
    return replace(found, sizes=np.where(found.sizes > 0, found.sizes, np.where(most > 0, most, 1.0)))


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
            sizes = even.sizes * [[1.0], [HEADROOM]]
            found[name] = replace(even, sizes=sizes, beyond=(known.beyond, known.beyond_headroom))
    return found


def _calls(graph: OpGraph, examples: Any, reader: GraphValues, model: SoftwareModel) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs of every call that the examples are, with the model at rest before each series."""
    several = isinstance(examples, Sequence) and all(isinstance(one, Mapping) for one in examples)
    for example in examples if several else [examples]:
        model.reset()
        named = reader.named(example)
        yield from reader.sequences(named)[0] if graph.stateful else [named]
