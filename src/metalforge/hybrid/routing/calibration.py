"""What a run in software shows of every value of a graph: example inputs in, ranges out.

For a graph without state the examples are one batch. For one with state they are time steps: arrays (T, ...) of one
sequence, or (B, T, ...) of several that run side by side.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.software import SoftwareModel
from metalforge.hybrid.running.inputs import InputReader

from .ranges import Observed

__all__ = ["observe"]


def observe(graph: OpGraph, examples: Mapping[str, ArrayLike]) -> dict[str, Observed]:
    """Return the largest modulus and the root mean square of every value over a run of the examples."""
    everything = tuple(value for node in graph.nodes for value in node.outputs)
    model, reader = SoftwareModel(replace(graph, outputs=everything)), InputReader(graph)
    largest: dict[str, float] = {}
    squares: dict[str, float] = {}
    entries: dict[str, int] = {}
    samples = 0
    for inputs in reader.sequences(examples).steps if graph.stateful else [examples]:
        values = dict(inputs) | model.forward(inputs)
        samples += reader.samples(inputs)
        for name, value in values.items():
            array = np.asarray(value, np.float64)
            if not np.all(np.isfinite(array)):
                raise SpecError(f"calibration made NaN or infinity of `{name}`; look at the examples or the weights")
            largest[name] = max(largest.get(name, 0.0), float(np.abs(array).max(initial=0.0)))
            squares[name] = squares.get(name, 0.0) + float(np.sum(array**2))
            entries[name] = entries.get(name, 0) + array.size
    return {
        name: Observed(largest[name], float(np.sqrt(squares[name] / max(entries[name], 1))), samples)
        for name in largest
    }
