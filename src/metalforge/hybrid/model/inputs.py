"""What a user's arrays mean for a model: one sample, a batch by input name, or series that each start from rest.

- A graph without state takes a batch of samples for every input: (N, ...), one array for the only input, or arrays by
  name.
- A graph with a state takes series: (T, n) is one, (S, T, n) are S of one length, a list (or a `.npz` file of several
  arrays) are some of different lengths. Where n is 1 its axis may be left out.

`GraphValues` reads the inputs of an executor's callers and puts outputs together; `model_inputs` reads data files.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Array, PathLike, Reals, SpecError, load_arrays
from metalforge.reservoir import as_series, as_steps

from .graph import OpGraph

Outputs: TypeAlias = Array | dict[str, Array]
"""One array where the graph has one output, else arrays by name."""


class GraphValues:
    """Reads the inputs of a graph's callers, and puts outputs together: over time, without a batch axis."""

    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._axes = {name: shape.index(None) for name, shape in graph.shapes.items() if None in shape}
        """Where the batch is."""

    def named(self, x: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return inputs by name; an array stands for the only input."""
        names = list(self._graph.inputs)
        if not isinstance(x, Mapping):
            if len(names) != 1:
                raise SpecError(
                    f"give the inputs by name: {', '.join(names)}"
                    f"\nhint: numpy.savez('x.npz', {', '.join(f'{name}=...' for name in names[:4])})"
                )
            x = {names[0]: x}
        try:
            return {name: np.asarray(values) for name, values in x.items()}
        except ValueError as error:
            raise SpecError(
                f"an input must be one array; series of several lengths are for a graph with a state ({error})"
            ) from error

    def batched(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], bool]:
        """Return inputs with a batch axis, and whether they came without."""
        given = [name for name in self._graph.inputs if name in self._axes and name in inputs]
        whole = dict(inputs)
        if {whole[name].ndim - len(self._graph.inputs[name]) for name in given} != {-1}:
            return whole, False
        for name in given:
            value, axis = whole[name], self._axes[name]
            whole[name] = np.expand_dims(value, axis) if axis else value[np.newaxis]
        return whole, True

    def samples(self, inputs: Mapping[str, Array]) -> int:
        """Return the samples of a call."""
        return next((int(np.shape(inputs[n])[self._axes[n]]) for n in self._graph.inputs if n in self._axes), 1)

    def sequences(self, arrays: Mapping[str, Array]) -> tuple[Iterator[dict[str, Array]], bool]:
        """Return the inputs of each time step, and whether several sequences run side by side.

        A sequence is (T, n) for an input of shape (None, n); B of them are (B, T, n).
        """
        shapes = self._graph.inputs
        if set(arrays) != set(shapes):
            raise SpecError(f"sequences are wanted for {', '.join(shapes)}. Got {', '.join(arrays) or 'none'}")
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
        steps: Iterator[dict[str, Array]] = (
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


Given: TypeAlias = Array | Mapping[str, Array] | Sequence[Array]
"""One array, arrays by name, or a list of series."""


def loaded(path: PathLike) -> Array | dict[str, Array]:
    """Return what a file holds: one array, or several by name."""
    found = load_arrays(path)
    return found if len(found) > 1 else next(iter(found.values()))


def model_inputs(graph: OpGraph, given: Given) -> list[dict[str, Array]]:
    """Return what a graph can be called with: one batch by name, or for a graph with a state one entry per series."""
    if isinstance(given, Mapping) and len(given) == len(graph.inputs) == 1:
        given = next(iter(given.values()))
    if graph.stateful and len(graph.inputs) == 1:
        ((name, shape),) = graph.inputs.items()
        return [{name: one} for one in as_series_of(name, given, shape[-1], graph.dtype)]
    reader = GraphValues(graph)
    return [check_inputs(graph, reader.batched(reader.named(given))[0], cast=False)]


def as_series_of(name: str, given: Given, width: int | None, dtype: Any) -> list[Reals]:
    """Return series (T_i, width) of one array, a list or arrays by name; where `width` is 1 its axis may be missing."""
    if isinstance(given, np.ndarray) and given.dtype != object:
        narrow = width == 1 and given.shape[-1:] != (1,)
        return as_series(name, given[..., np.newaxis] if narrow else given, width, dtype)
    members = given if isinstance(given, Mapping) else {f"{name}[{i}]": one for i, one in enumerate(given)}
    if not members:
        raise SpecError(f"`{name}` must hold at least one series. Got none")
    return [
        as_steps(label, np.asarray(one)[:, np.newaxis] if width == 1 and np.ndim(one) == 1 else one, width, dtype)
        for label, one in members.items()
    ]


def check_inputs(graph: OpGraph, inputs: Mapping[str, ArrayLike], *, cast: bool = True) -> dict[str, Array]:
    """Return the inputs as arrays of the graph's type, or of their own unless `cast`.

    Raises `SpecError` on other names, other shapes, NaN, or batches of different sizes.
    """
    if set(inputs) != set(graph.inputs):
        raise SpecError(f"inputs must be {', '.join(graph.inputs)}. Got {', '.join(inputs) or 'none'}")
    found = {}
    batches: dict[str, int] = {}
    for name, shape in graph.inputs.items():
        value = np.asarray(inputs[name])
        if value.dtype.kind not in "biuf":
            raise SpecError(f"input `{name}` must be real numbers. Got {value.dtype}")
        if value.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
            extents = ", ".join("batch" if n is None else str(n) for n in shape)
            raise SpecError(f"input `{name}` must have shape ({extents}). Got {value.shape}")
        if value.size == 0:
            raise SpecError(f"input `{name}` must have at least one sample. Got shape {value.shape}")
        if cast and value.dtype != _real(graph.dtype):
            with np.errstate(over="ignore"):
                value = value.astype(graph.dtype)
        if not np.isfinite(value).all():
            at = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise SpecError(f"input `{name}` must be finite in {value.dtype}. Got {value[at]} at {at}")
        if shape.count(None) == 1:  # of several that are open, a model's own ops say what must agree
            batches[name] = value.shape[shape.index(None)]
        found[name] = value
    if len(set(batches.values())) > 1:
        raise SpecError(f"inputs must have one batch. Got {', '.join(f'{n} for `{k}`' for k, n in batches.items())}")
    return found


_real = cache(np.dtype)
