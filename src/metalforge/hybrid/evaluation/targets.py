"""What a user's targets mean: classes with names, or real numbers; of every step, of a series, or of a sample.

Words and whole numbers are classes, all else is real. Whole numbers from 0 on are the numbers of a model's outputs;
other labels stand for them in sorted order, as scikit-learn has it, unless they are named.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metalforge.core.arrays import Array, Reals
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.tasks import Task
from metalforge.hybrid.model.inputs import Given

SHOWN = 6
"""Labels that a message names."""


def as_list(targets: Given) -> Array | list[Array]:
    """Return one array, or a list of the arrays of series."""
    if isinstance(targets, Mapping):
        return [np.asarray(one) for one in targets.values()]
    if isinstance(targets, np.ndarray):
        return targets
    if targets and all(np.ndim(one) for one in targets):
        return [np.asarray(one) for one in targets]
    return np.asarray(targets)


def are_classes(targets: Array | Sequence[Array]) -> bool:
    """Return whether targets are words or whole numbers."""
    kinds = {np.asarray(one).dtype.kind for one in ([targets] if isinstance(targets, np.ndarray) else targets)}
    if not kinds <= set("biufUS"):
        raise SpecError("targets must be numbers or words")
    return kinds <= set("biuUS")


def names_of(targets: Array | Sequence[Array], outputs: int | None, given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the classes in the order of the model's outputs; None outputs are as many as there are."""
    flat = np.concatenate([np.ravel(one) for one in ([targets] if isinstance(targets, np.ndarray) else targets)])
    found = np.unique(flat.astype(np.int64) if flat.dtype.kind == "b" else flat)
    if given is not None:
        if outputs is not None and len(given) != outputs:
            raise SpecError(f"{outputs} labels are wanted, one for each output. Got {len(given)}: {_some(given)}")
        if len(set(given)) != len(given):
            raise SpecError(f"labels must differ. Got {_some(given)}")
        return tuple(map(str, given))
    whole = found.dtype.kind in "iu"
    if whole and found[0] >= 0 and (outputs is None or found[-1] < outputs):
        return tuple(map(str, range(int(found[-1]) + 1 if outputs is None else outputs)))
    if outputs is not None and len(found) != outputs:
        raise SpecError(
            f"the model has {outputs} outputs, the targets {len(found)} different labels: {_some(found)}"
            "\nhint: --labels names the classes in the order of the outputs"
        )
    return tuple(_text(one) for one in found)


def codes_of(targets: Array, names: Sequence[str]) -> Array:
    """Return the number of each label; raises where one has none."""
    numbers = {name: i for i, name in enumerate(names)}
    values = targets.astype(np.int64) if targets.dtype.kind == "b" else targets
    found, inverse = np.unique(values, return_inverse=True)
    unknown = [_text(one) for one in found if _text(one) not in numbers]
    if unknown:
        raise SpecError(f"unknown label {_some(unknown)}; known: {_some(names)}")
    codes = np.array([numbers[_text(one)] for one in found], np.int64)
    return np.asarray(codes[inverse].reshape(values.shape))


def series_task(
    series: Sequence[Reals], targets: Given, outputs: int, names: Sequence[str] | None, washout: int
) -> tuple[Task, tuple[str, ...]]:
    """Return series with their targets, and the names of classes (none for real targets); `outputs` 0 is any number."""
    given = as_list(targets)
    classes = are_classes(given)
    labels = names_of(given, outputs or None, names) if classes else ()
    if isinstance(given, np.ndarray):
        given = _by_series(given, [len(one) for one in series], outputs, classes)
    if isinstance(given, np.ndarray):
        found: Array | list[Array] = codes_of(given, labels) if classes else _reals(given, outputs)
    else:
        found = [codes_of(one, labels) if classes else _reals(one, outputs) for one in given]
    return Task.of(series, found, washout=washout), labels


def _by_series(given: Array, lengths: Sequence[int], outputs: int, classes: bool) -> Array | list[Array]:
    """Return targets of series as one array, those of steps as a list."""
    first, equal = lengths[0], len(set(lengths)) == 1
    if len(lengths) == 1 and len(given) == first:
        return [given]
    if len(given) != len(lengths):
        steps = f", or {first} steps" if len(lengths) == 1 else ""
        raise SpecError(f"targets are wanted for {len(lengths)} series{steps}. Got shape {given.shape}")
    of_steps = equal and given.shape[1:2] == (first,) and (classes or given.ndim == 3 or first != outputs)
    return list(given) if of_steps else given


def _reals(given: Array, outputs: int) -> Array:
    rows = given.astype(np.float64) if given.ndim > 1 else given.astype(np.float64)[:, np.newaxis]
    if outputs and rows.shape[-1] != outputs:
        raise SpecError(
            f"the model has {outputs} outputs, the targets {rows.shape[-1]}"
            "\nhint: whole numbers or words are classes: y.astype(int)"
        )
    return rows


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _some(labels: Any) -> str:
    shown = [repr(_text(one)) for one in labels[:SHOWN]]
    return ", ".join(shown) + (f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else "")
