"""What a call is given: arrays by name, with a batch axis, or sequences cut into time steps."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError
from metalforge.hybrid.model.graph import OpGraph

__all__ = ["InputReader", "Sequences"]


class Sequences(NamedTuple):
    """The inputs of each time step, and whether several sequences run side by side."""

    steps: Iterator[dict[str, ArrayLike]]
    several: bool


class InputReader:
    """Reads what callers of a graph give."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph

    def named(self, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return inputs by name; an array stands for the only input."""
        if isinstance(x, Mapping):
            return dict(x)
        if len(self._graph.inputs) != 1:
            raise SpecError(f"give the inputs by name: {', '.join(self._graph.inputs)}")
        return {next(iter(self._graph.inputs)): x}

    def batched(self, inputs: Mapping[str, ArrayLike]) -> tuple[dict[str, ArrayLike], bool]:
        """Return inputs with a batch axis, and whether they came without."""
        axes = {name: shape.index(None) for name, shape in self._graph.inputs.items() if None in shape}
        lacking = {np.ndim(inputs[name]) - len(self._graph.inputs[name]) for name in axes if name in inputs}
        if lacking != {-1}:
            return dict(inputs), False
        found = {
            name: np.expand_dims(np.asarray(value), axes[name]) if name in axes else value
            for name, value in inputs.items()
        }
        return found, True

    def samples(self, inputs: Mapping[str, ArrayLike]) -> int:
        """Return the samples of a call."""
        for name, shape in self._graph.inputs.items():
            if None in shape:
                return int(np.shape(inputs[name])[shape.index(None)])
        return 1

    def sequences(self, given: Mapping[str, ArrayLike]) -> Sequences:
        """Return the time steps of sequences: (T, n) for an input of shape (None, n), or (B, T, n) for B at a time."""
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
        return Sequences(steps, side_by_side)
