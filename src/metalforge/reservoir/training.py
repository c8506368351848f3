"""Fitting whole series: inputs and targets go in, a network with a readout comes out.

    x_t = s_t, or [s_t; u_t] with `passthrough`         what the readout sees; the first `washout` steps are left out

Every series starts from rest (see `running`). A network with output feedback is taught by teacher forcing: y before
step t is the target of step t - 1, and zero before the first.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from metalforge.core import HeadLayout, Reals

from .readout import NormalEquations, Pair, select_ridge
from .running import series_states
from .series import Series, SeriesError, as_series, as_steps, is_one
from .weights import EsnWeights


def collect(
    weights: EsnWeights,
    inputs: Series,
    targets: Any = None,
    *,
    washout: int = 0,
    passthrough: bool | None = None,
    last_state_only: bool = False,
) -> Iterator[Pair]:
    """Return an iterator over (features, targets), one pair a series, made as they are asked for.

    `inputs` and `targets` are one series (T, width), a batch (series, T, width) or lists of (T_i, width). With
    `last_state_only` a series has one target, so `targets` is (series, outputs), and one row of features. Without
    targets the second of each pair is empty (rows, 0). `passthrough` None is what the network has.
    """
    see_inputs = weights.passthrough if passthrough is None else passthrough
    given = as_series("inputs", inputs, weights.inputs, weights.dtype)
    taught = _targets(targets, given, one=is_one(inputs), last_state_only=last_state_only)
    if washout < 0:
        raise SeriesError(f"`washout` must be at least 0. Got {washout}")
    for i, series in enumerate(given):
        if washout >= len(series):
            raise SeriesError(
                f"`washout` must leave at least one step. Got {washout}, and series {i} has {len(series)}"
                "\nhint: give longer series or a smaller washout"
            )
    forced = None
    if weights.feedback:
        if taught is None or last_state_only:
            raise SeriesError("teacher forcing of output feedback needs a target for every step\nhint: give `targets`")
        if taught[0].shape[1] != weights.feedback:
            raise SeriesError(
                f"the network feeds back {weights.feedback} outputs. Got targets {taught[0].shape[1]} wide"
            )
        forced = [np.ascontiguousarray(y, weights.dtype) for y in taught]

    def pairs() -> Iterator[Pair]:
        for i, states in enumerate(series_states(weights, given, forced)):
            first = len(states) - 1 if last_state_only else washout
            # A copy of a last state: a view would keep the states of its whole batch.
            seen = states[first:].copy() if last_state_only else states[first:]
            features = np.concatenate([seen, given[i][first:]], axis=1) if see_inputs else seen
            if taught is None:
                yield features, np.zeros((len(seen), 0), weights.dtype)
            else:
                yield features, taught[i] if last_state_only else taught[i][washout:]

    return pairs()


def fit(
    weights: EsnWeights,
    inputs: Series,
    targets: Any,
    *,
    ridge: float | Sequence[float],
    washout: int = 0,
    passthrough: bool | None = None,
    last_state_only: bool = False,
    fit_bias: bool = True,
    validation: tuple[Any, Any] | None = None,
    heads: HeadLayout | None = None,
) -> EsnWeights:
    """Return the network with the ridge readout for these series, found in float64 and cast to the weights' type.

    Several ridges: the best on `validation` (inputs, targets) or, without, on series left out in turn; that keeps the
    features of all series in memory. With one ridge only one batch of series is held at a time.
    """

    def features(u: Series, y: Any) -> Iterator[Pair]:
        if y is None:
            raise SeriesError("a readout is fitted to `targets`. Got None")
        return collect(weights, u, y, washout=washout, passthrough=passthrough, last_state_only=last_state_only)

    if isinstance(ridge, Sequence | np.ndarray):
        held_out = None if validation is None else list(features(*validation))
        found = select_ridge(list(features(inputs, targets)), ridge, validation=held_out, fit_bias=fit_bias).readout
    else:
        found = NormalEquations.of(features(inputs, targets)).solve([ridge], fit_bias=fit_bias)[0]
    return weights.with_readout(found.w_out, found.out_bias, passthrough=passthrough, heads=heads, ridge=found.ridge)


def _targets(targets: Any, given: list[Reals], *, one: bool, last_state_only: bool) -> list[Reals] | None:
    """Targets as a list of float64 arrays, each as long as its series, or of one row."""
    if targets is None:
        return None
    if last_state_only:
        rows = as_steps("targets", np.atleast_2d(targets) if one else targets, None, np.float64)
        taught = [row[None] for row in rows]
    else:
        taught = as_series("targets", targets, None, np.float64)
    if len(taught) != len(given):
        raise SeriesError(f"`targets` must be of {len(given)} series, as `inputs` are. Got {len(taught)}")
    for i, (u, y) in enumerate(zip(given, taught, strict=True)):
        if not last_state_only and len(u) != len(y):
            raise SeriesError(f"series {i} has {len(u)} steps of inputs and {len(y)} of targets: they must be as many")
        if y.shape[1] != taught[0].shape[1]:
            raise SeriesError(f"targets of series {i} are {y.shape[1]} wide, those of series 0 {taught[0].shape[1]}")
    return taught
