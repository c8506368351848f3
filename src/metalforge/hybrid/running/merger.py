"""What calls give back: the named outputs of one sample, of a batch, or over time."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.hybrid.model.graph import OpGraph

__all__ = ["Array", "OutputMerger", "Outputs"]

Array: TypeAlias = NDArray[Any]
Outputs: TypeAlias = Array | dict[str, Array]
"""One array where the graph has one output, else arrays by name."""


class OutputMerger:
    """Puts the outputs of a graph together: over time, without a batch axis, or as one array."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._names = graph.outputs

    def single(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of one sample, without the batch axis."""
        return {
            name: value if (axis := self._batch(name)) is None else value.take(0, axis)
            for name, value in outputs.items()
        }

    def over_time(self, steps: list[dict[str, Array]], *, batched: bool) -> dict[str, Array]:
        """Return the outputs of all steps: (T, ...) of one sequence, (B, T, ...) of several.

        Values without a batch axis, such as gradients, are (T, ...) either way.
        """
        found = {}
        for name in self._names:
            several = batched and self._batch(name) == 0
            found[name] = np.stack([step[name] for step in steps], axis=1 if several else 0)
        return found

    def shown(self, outputs: dict[str, Array]) -> Outputs:
        """Return the array itself where there is only one output."""
        return outputs[self._names[0]] if len(self._names) == 1 else outputs

    def _batch(self, name: str) -> int | None:
        shape = self._graph.shapes[name]
        return shape.index(None) if None in shape else None
