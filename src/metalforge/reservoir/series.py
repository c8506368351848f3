"""Series of steps, checked: one array, a batch of equal lengths or a list of different ones become one list."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, Reals, SpecError

A = TypeVar("A", bound=np.generic)
B = TypeVar("B", bound=np.generic)
Series: TypeAlias = Reals | Sequence[Reals]
"""One series (steps, width), a batch (series, steps, width), or a list of (steps_i, width)."""


Layout: TypeAlias = Literal["steps_first", "channels_first"]
"""The order of the two axes of a series: (steps, width) as here, or (channels, steps) as in aeon."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class SeriesError(SpecError, ValueError):
    """Inputs or targets that a network cannot take: wrong width, unequal lengths, empty, or not finite."""


class DivergenceError(MetalforgeError, OverflowError):
    """Weights or outputs that left the finite numbers; for states the engine raises a plain OverflowError."""


def as_steps(name: str, value: Any, width: int | None, dtype: Any) -> Reals:
    """Return one series (steps, width) as a contiguous array of a real type; `width` None takes any."""
    given = np.asarray(value)
    if given.dtype.kind not in "fiub":
        raise SeriesError(f"`{name}` must be real numbers. Got {given.dtype}")
    if given.ndim != 2 or given.size == 0 or width not in (None, given.shape[1]):
        wanted = "(steps, any)" if width is None else f"(steps, {width})"
        hint = "\nhint: values[:, None] makes one column" if given.ndim == 1 else ""
        raise SeriesError(f"`{name}` must have shape {wanted}, not empty. Got {given.shape}{hint}")
    with np.errstate(over="ignore"):  # a float64 too large for float32: said below, with its place
        steps = np.ascontiguousarray(given, dtype)
    if not np.all(np.isfinite(steps)):
        step, column = (int(i) for i in np.argwhere(~np.isfinite(steps))[0])
        raise SeriesError(f"`{name}` must be finite. Got {given[step, column]} at step {step}, column {column}")
    return steps


def as_series(name: str, value: Any, width: int | None, dtype: Any) -> list[Reals]:
    """Return one series, a batch or a list of series as a list of contiguous arrays (steps_i, width)."""
    if is_one(value):
        return [as_steps(name, value, width, dtype)]
    if len(value) == 0:
        raise SeriesError(f"`{name}` must hold at least one series. Got none")
    return [as_steps(f"{name}[{i}]", series, width, dtype) for i, series in enumerate(value)]


def steps_first(given: Any, layout: Layout) -> Any:
    """Return several series of some layout as (steps, width); one table is (steps, width) in any case."""
    if layout == "steps_first":
        return given
    if isinstance(given, Mapping):
        return {name: np.asarray(one).T for name, one in given.items()}
    if isinstance(given, np.ndarray) and given.dtype != object:
        return given.swapaxes(1, 2) if given.ndim == 3 else given
    return [np.asarray(one).T for one in given]


def found_layout(series: Sequence[Any]) -> Layout:
    """Return the layout of several series: the axis that differs in length is that of the steps.

    Raises `SeriesError` where all have one shape with more features than steps: as a rule, that is (channels, steps).
    """
    first, second = ({np.shape(one)[axis] for one in series} for axis in (0, 1))
    if len(first) == 1 < len(second):
        return "channels_first"
    if len(first) == len(second) == 1 and max(second) > max(first):
        raise SeriesError(
            f"series of shape ({max(first)}, {max(second)}) would have fewer steps than features"
            "\nhint: layout='channels_first' for (series, channels, steps) as in aeon, layout='steps_first' for "
            "(series, steps, features)"
        )
    return "steps_first"


def side_by_side(series: Sequence[NDArray[A]], run: Callable[[NDArray[A]], NDArray[B]]) -> list[NDArray[B]]:
    """Return what `run` makes of each series (steps_i, width); those of one length are given to it as one batch."""
    found: dict[int, NDArray[B]] = {}
    for length in dict.fromkeys(map(len, series)):
        places = [i for i, one in enumerate(series) if len(one) == length]
        found |= zip(places, run(np.stack([series[i] for i in places])), strict=True)
    return [found[i] for i in range(len(series))]


def is_one(value: Any) -> bool:
    """Return whether a value is one series; a list or an array of three axes is several."""
    return isinstance(value, np.ndarray) and value.ndim != 3 and value.dtype != object


def like_given(given: Any, results: list[Reals]) -> Reals | list[Reals]:
    """Return results in the form of what was given: an array for one series or a batch, else a list."""
    if is_one(given):
        return results[0]
    return np.stack(results) if isinstance(given, np.ndarray) and given.ndim == 3 else results
