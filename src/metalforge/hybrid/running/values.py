"""What callers of a graph give and get: arrays by name, of one sample, of a batch, or of sequences over time."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Array
from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import OpGraph

Outputs: TypeAlias = Array | dict[str, Array]
"""One array where the graph has one output, else arrays by name."""


class GraphValues:
    """Reads the inputs of a graph's callers, and puts outputs together: over time, without a batch axis."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._axes = {name: shape.index(None) for name, shape in graph.shapes.items() if None in shape}
        """Where the batch is."""

    def named(self, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return inputs by name; an array stands for the only input."""
        if isinstance(x, Mapping):
            return dict(x)
        if len(self._graph.inputs) != 1:
            raise SpecError(f"give the inputs by name: {', '.join(self._graph.inputs)}")
        return {next(iter(self._graph.inputs)): x}

    def batched(self, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, ArrayLike], bool]:
        """Return inputs with a batch axis, and whether they came without."""
        shapes = self._graph.inputs
        given = [name for name in shapes if name in self._axes and name in inputs]
        if {np.ndim(inputs[name]) - len(shapes[name]) for name in given} != {-1}:
            return dict(inputs), False
        whole = dict(inputs)
        for name in given:
            value, axis = np.asarray(inputs[name]), self._axes[name]
            whole[name] = np.expand_dims(value, axis) if axis else value[np.newaxis]
        return whole, True

    def samples(self, inputs: Mapping[str, ArrayLike]) -> int:
        """Return the samples of a call."""
        return next((int(np.shape(inputs[n])[self._axes[n]]) for n in self._graph.inputs if n in self._axes), 1)

    def sequences(self, given: Mapping[str, ArrayLike]) -> tuple[Iterator[dict[str, ArrayLike]], bool]:
        """Return the inputs of each time step, and whether several sequences run side by side.

        A sequence is (T, n) for an input of shape (None, n); B of them are (B, T, n).
        """
        shapes = self._graph.inputs
        if set(given) != set(shapes):
            raise SpecError(f"sequences are wanted for {', '.join(shapes)}. Got {', '.join(given) or 'none'}")
        arrays = {name: np.asarray(values) for name, values in given.items()}
        for name, values in arrays.items():
            rank = len(shapes[name])
            if not rank or shapes[name][0] is not None or values.ndim not in (rank, rank + 1):
                wanted = ", ".join(map(str, shapes[name][1:]))
                raise SpecError(
                    f"`{name}` must be a sequence (T, {wanted}) or several (B, T, {wanted}). Got {values.shape}"
                )
        several = {values.ndim > len(shapes[name]) for name, values in arrays.items()}
        lengths = {values.shape[values.ndim - len(shapes[name])] for name, values in arrays.items()}
        if len(lengths) != 1 or len(several) != 1 or lengths == {0}:
            came = ", ".join(f"`{name}` {values.shape}" for name, values in arrays.items())
            raise SpecError(f"sequences must have one length, not zero, and be batched all or none. Got {came}")
        (n_steps,), (side_by_side,) = lengths, several
        steps: Iterator[dict[str, ArrayLike]] = (
            {name: values[:, t] if side_by_side else values[t : t + 1] for name, values in arrays.items()}
            for t in range(n_steps)
        )
        return steps, side_by_side

    def single(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of one sample, without the batch axis."""
        axes = self._axes
        return {n: (v.take(0, axes[n]) if axes[n] else v[0].copy()) if n in axes else v for n, v in outputs.items()}

    def over_time(self, steps: list[dict[str, Array]], *, batched: bool) -> dict[str, Array]:
        """Return the outputs of all steps: (T, ...) of one sequence, (B, T, ...) of several.

        Values without a batch axis, such as gradients, are (T, ...) either way.
        """
        axes = {name: int(batched and self._axes.get(name) == 0) for name in self._graph.outputs}
        return {name: np.stack([step[name] for step in steps], axis=axis) for name, axis in axes.items()}

    def shown(self, outputs: dict[str, Array]) -> Outputs:
        """Return the array itself where there is only one output."""
        return outputs[self._graph.outputs[0]] if len(self._graph.outputs) == 1 else outputs
