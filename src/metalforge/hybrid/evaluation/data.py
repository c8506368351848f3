"""A user's data: what targets mean, and which part is for calibration and which is held out.

Words and whole numbers are classes, all else is real; targets are of every step, of a series, or of a sample. Whole
numbers from 0 on are the numbers of a model's outputs; other labels stand for them in sorted order, as scikit-learn
has it, unless they are named. Scores never come from the data that ranges are measured on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, Reals, SpecError
from metalforge.hybrid.esn.tasks import Task
from metalforge.hybrid.model.graph import OpGraph
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


CALIBRATED = 2000
"""Samples or steps that ranges are measured on at most: more would hardly show larger values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What of the data is held out, and what targets and outputs are called."""

    held_out: float = 0.5
    washout: int = 0
    labels: tuple[str, ...] | None = None
    output: str | None = None
    calibration: Any = None
    """Inputs to measure ranges on, as they were given; of a graph, as it takes them."""

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise SpecError(f"the share that is held out must be between 0 and 1. Got {self.held_out}")


def chosen_rows(n: int, share: float, codes: Array | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which of n are for calibration and which are held out: drawn by a fixed seed, classes in equal shares."""
    order = np.random.default_rng(0).permutation(n)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    marks = np.floor(np.arange(1, n + 1) * share) > np.floor(np.arange(n) * share)
    if marks.all() or not marks.any():
        raise SpecError(f"{n} cannot be divided into a part for calibration and one to hold out")
    return np.sort(order[~marks]), np.sort(order[marks])


def divided(task: Task, share: float) -> tuple[Task, Task]:
    """Return the part for calibration and the held-out one: whole series, or one series in the order of time.

    The held-out part of one series goes on from the state that the first part left.
    """
    n, steps = task.inputs.shape[:2]
    if n > 1:
        codes = task.targets if task.classes and not task.each_step else None
        return task.part((rows := chosen_rows(n, share, codes))[0]), task.part(rows[1])
    cut = round((1 - share) * steps)
    if not task.each_step or not task.washout < cut < steps:
        raise SpecError(
            f"one series of {steps} steps with {len(task.labels)} targets after its washout cannot be divided"
            "\nhint: more series, or a target for every step"
        )
    first = replace(task, inputs=task.inputs[:, :cut], targets=task.targets[:, :cut])
    return first, replace(task, washout=cut)


def said(task: Task) -> str:
    """Return how much data a part is."""
    n, steps = task.inputs.shape[:2]
    rows = len(task.labels)
    return f"{rows} of {steps} steps" if n == 1 else f"{n} series" + (f", {rows} steps" if task.each_step else "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Data of a model: examples to measure ranges on, and held-out inputs with what should come of them."""

    seen: list[Any]
    """Series (steps, inputs), or one dictionary of samples by input."""
    held: Task | dict[str, Array]
    training: Task | None = None
    """Series that new readouts may be fitted to."""
    wanted: Array
    groups: NDArray[np.int64]
    labels: tuple[str, ...]
    said: tuple[str, str]


def series_part(
    series: Sequence[Reals], targets: Given, width: int, options: Options, apart: list[Reals] | None
) -> Part:
    """Return series divided; where ranges are measured on others `apart`, all of them are held out."""
    task, labels = series_task(series, targets, width, options.labels, options.washout)
    if apart is not None:
        first, held, seen, shown = None, task, apart, f"{len(apart)} series of their own"
    else:
        first, held = divided(task, options.held_out)
        seen = [one[:end] for one, end in zip(first.inputs, first.ends + 1, strict=True)]
        shown = said(first)
    return Part(
        seen=seen,
        held=held,
        training=first,
        wanted=held.labels,
        groups=held.groups,
        labels=labels,
        said=(shown, said(held)),
    )


def sample_part(
    graph: OpGraph, inputs: dict[str, Array], given: Any, output: str, width: int, options: Options
) -> Part:
    """Return the data of a graph without a state: samples."""
    if not isinstance(given, np.ndarray):
        raise SpecError("the model keeps no state, so its targets are one array, not one for each series")
    shape = graph.shapes[output]
    n = next((len(inputs[name]) for name, extents in graph.inputs.items() if extents[:1] == (None,)), 1)
    labels = names_of(given, width, options.labels) if are_classes(given) else ()
    open_extents = dict(enumerate(given.shape))
    lead = (n, *(open_extents.get(i, 1) if m is None else m for i, m in enumerate(shape[1:-1], 1)))
    given = given[..., 0] if given.shape == (*lead, 1) else given
    wanted_shape = lead if labels or width == 1 else (*lead, width)
    if given.shape != wanted_shape:
        hint = "" if labels or given.shape != lead else "\nhint: whole numbers or words are classes: y.astype(int)"
        raise SpecError(f"targets of shape {wanted_shape} are wanted for {n} samples. Got {given.shape}{hint}")
    truth = codes_of(given, labels) if labels else given.astype(np.float64).reshape(*lead, width)
    if not np.all(np.isfinite(truth)):
        raise SpecError("targets must be finite. Got NaN or infinity")
    if options.calibration is None:
        codes = truth if labels and truth.ndim == 1 else None
        first, held = chosen_rows(n, options.held_out, codes)
        seen, shown = [at(graph, inputs, first[:CALIBRATED])], f"{len(first)} samples"
    else:
        seen, held, shown = options.calibration, np.arange(n), "samples of their own"
    rows = truth[held]
    return Part(
        seen=seen,
        held=at(graph, inputs, held),
        wanted=rows.reshape(-1) if labels else rows.reshape(-1, width),
        groups=np.repeat(np.arange(len(held)), int(np.prod(lead[1:]))),
        labels=labels,
        said=(shown, f"{len(held)} others"),
    )


def at(graph: OpGraph, inputs: Mapping[str, Array], rows: Any) -> dict[str, Array]:
    """Return some samples; inputs without a batch axis are the same for all."""
    return {name: x[rows] if graph.inputs[name][:1] == (None,) else x for name, x in inputs.items()}


def few(series: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
    """Return as many steps as ranges are measured on, of whole series as far as they go."""
    left, found = CALIBRATED, []
    for one in series:
        if left > 0:
            found.append({name: values[:left] for name, values in one.items()})
            left -= min(len(values) for values in one.values())
    return found
