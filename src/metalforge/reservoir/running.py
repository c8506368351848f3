"""Running whole series from rest: inputs go in, states and outputs come out.

Every series starts from rest, state and output zero: nothing passes from one series to the next. A network with output
feedback hears its own outputs, or those of a teacher as far as they reach.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, overload

import numpy as np

from metalforge.core import Reals, SpecError

from .engine import EsnEngine
from .series import DivergenceError, Series, SeriesError, as_series, is_one, like_given
from .weights import EsnWeights

VALUES_AT_ONCE = 1 << 23
"""State values of a batch of series of equal length that run together: 64 MB of float64."""


@overload
def predict(weights: EsnWeights, inputs: Reals, *, teacher: Any = ..., last_state_only: bool = ...) -> Reals: ...
@overload
def predict(
    weights: EsnWeights, inputs: Sequence[Reals], *, teacher: Any = ..., last_state_only: Literal[True]
) -> Reals: ...
@overload
def predict(
    weights: EsnWeights, inputs: Sequence[Reals], *, teacher: Any = ..., last_state_only: Literal[False] = ...
) -> list[Reals]: ...
def predict(
    weights: EsnWeights,
    inputs: Series,
    *,
    teacher: Any = None,
    last_state_only: bool = False,
) -> Reals | list[Reals]:
    """Return outputs (T, outputs) for every step of one series; a batch or a list for several.

    A network with output feedback feeds back its own outputs, or those of `teacher` (one array per series, at most as
    long as its inputs) as far as they reach. With `last_state_only` the result is (outputs,) or (series, outputs).
    """
    if weights.w_out is None:
        raise SpecError("this network has no readout yet\nhint: fit(weights, inputs, targets, ridge=...)")
    given = as_series("inputs", inputs, weights.inputs, weights.dtype)
    forced = None
    if teacher is not None:
        if not weights.feedback:
            raise SeriesError("`teacher` is what an output feedback sees; this network has none")
        forced = as_series("teacher", teacher, weights.feedback, weights.dtype)
        if len(forced) != len(given):
            raise SeriesError(f"`teacher` must hold {len(given)} series, as `inputs` do. Got {len(forced)}")
    rows = slice(-1, None) if last_state_only else slice(None)
    results = [
        weights.output(states[rows], given[i][rows]) for i, states in enumerate(series_states(weights, given, forced))
    ]
    if last_state_only:
        return results[0][0] if is_one(inputs) else np.concatenate(results)
    return like_given(inputs, results)


def closed_loop(engine: EsnEngine, weights: EsnWeights, u: Reals, teacher: Reals) -> Reals:
    """Return the states (T, units) from rest of one series whose outputs are fed back.

    The first steps see `teacher` (K, outputs), K from 0, in place of what the network said.
    """
    states = np.empty((len(u), weights.units), weights.dtype)
    seen = np.zeros(weights.inputs + weights.feedback, weights.dtype)
    before = np.zeros(weights.units, weights.dtype)
    for t in range(len(u)):
        if t > 0:
            seen[weights.inputs :] = teacher[t - 1] if t <= len(teacher) else _said(weights, before, u[t - 1], t - 1)
        seen[: weights.inputs] = u[t]
        engine.step(before, seen, out=states[t])
        before = states[t]
    return states


def series_states(weights: EsnWeights, inputs: list[Reals], forced: list[Reals] | None) -> Iterator[Reals]:
    """States (T_i, units) of each series from rest; neighbours of equal length run as a batch."""
    engine = EsnEngine(weights)
    if weights.feedback:
        nothing = np.zeros((0, weights.feedback), weights.dtype)
        teachers = forced if forced is not None else [nothing] * len(inputs)
        for u, teacher in zip(inputs, teachers, strict=True):
            if len(teacher) > len(u):
                raise SeriesError(f"a teacher must not be longer than its series of {len(u)} steps. Got {len(teacher)}")
            if len(teacher) == len(u):
                before = np.concatenate([np.zeros_like(teacher[:1]), teacher[:-1]])
                yield engine.run(np.concatenate([u, before], axis=1))
            else:
                yield closed_loop(engine, weights, u, teacher)
        return
    for steps, group in groupby(inputs, key=len):
        alike = list(group)
        size = max(1, VALUES_AT_ONCE // (steps * weights.units))
        for start in range(0, len(alike), size):
            batch = alike[start : start + size]
            yield from [engine.run(batch[0])] if len(batch) == 1 else engine.run(np.stack(batch))


def _said(weights: EsnWeights, state: Reals, u: Reals, step: int) -> Reals:
    """The output that is fed back after a step."""
    with np.errstate(over="ignore", invalid="ignore"):
        output = weights.output(state, u)
    if not np.all(np.isfinite(output)):
        raise DivergenceError(
            f"outputs that are fed back are not finite at step {step}"
            "\nhint: a larger ridge, or a smaller spectral radius"
        )
    return output
