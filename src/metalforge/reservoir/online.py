r"""Readouts learned row by row: a rule holds the parameters, `init` and `step` pass an explicit state along.

    LMS  e = y - W x - b,  W += rate e x^T,  b += rate e         normalised: rate / (|x|^2 + 1), without b rate / |x|^2
    RLS  the weighted ridge solution of all rows so far: row t of T has weight forgetting^(T - t), and the penalty of
         W is alpha forgetting^T

(B. Widrow, S. D. Stearns, "Adaptive signal processing", 1985; S. Haykin, "Adaptive filter theory", 2002.) RLS keeps
means apart, so that its bias is not penalised: with forgetting 1 it *is* `readout.ridge` with ridge = alpha, with a
bias as without. reservoirpy's RLS is the same without a bias; its bias is a running mean of errors, a different rule.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from metalforge.core import Doubles, Reals, SpecError, cores_for, require_positive, require_shares

from .least_squares import LeastSquares, absorb
from .series import DivergenceError, SeriesError, as_steps


class LmsState(NamedTuple):
    """`w_out` (outputs, width), `out_bias` (outputs,), and the rows learned."""

    w_out: Doubles
    out_bias: Doubles
    rows: int


class RlsState(NamedTuple):
    """A readout with what the next row needs: the inverse of the (weighted, centred) normal matrix, and means.

    `weight` is the sum of the rows' weights, to which the means belong.
    """

    w_out: Doubles
    out_bias: Doubles
    rows: int
    inverse: Doubles
    mean_features: Doubles
    mean_targets: Doubles
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lms:
    """Least mean squares: cheap, slow to settle. Stable for rate < 2 / |x|^2; `normalised` for 0 < rate < 2."""

    rate: float
    normalised: bool = False
    fit_bias: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf") or (self.normalised and self.rate >= 2):
            raise SpecError(f"`rate` must be above 0, and below 2 when normalised. Got {self.rate}")

    def init(self, width: int, outputs: int) -> LmsState:
        """Return a readout of zeros."""
        return LmsState(np.zeros((outputs, width)), np.zeros(outputs), 0)

    def step(self, state: LmsState, x: Reals, y: Reals) -> tuple[LmsState, Doubles]:
        """Return the state after a row, features (width,) and targets (outputs,), and what was said before it."""
        x, y = _row(state.w_out, x, y)
        rate = self.rate
        if self.normalised:
            # A row of zeros without bias teaches nothing: any finite rate will do.
            rate /= float(x @ x + self.fit_bias) or 1.0
        with np.errstate(all="ignore"):
            prediction = state.w_out @ x + state.out_bias
            error = y - prediction
            w_out = state.w_out + rate * np.outer(error, x)
            out_bias = state.out_bias + rate * error * self.fit_bias
        rows = state.rows + 1
        if not _finite(w_out, out_bias):
            raise DivergenceError(
                f"LMS diverged at row {rows}: its weights are lost\nhint: a smaller rate, or normalised=True"
            )
        return LmsState(w_out, out_bias, rows), prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Rls:
    """Recursive least squares: exact after every row, width^2 operations per row.

    A forgetting below 1 follows targets that drift; its memory is 1 / (1 - forgetting) rows, which must be several
    times the width, or directions that no row excites grow without bound.
    """

    alpha: float = 1e-6
    forgetting: float = 1.0
    fit_bias: bool = True

    def __post_init__(self) -> None:
        require_positive(alpha=self.alpha)
        require_shares(forgetting=self.forgetting)

    def init(self, width: int, outputs: int) -> RlsState:
        """Return a readout of zeros that knows only its penalty."""
        nothing = np.zeros(outputs)
        return RlsState(
            np.zeros((outputs, width)), nothing, 0, np.eye(width) / self.alpha, np.zeros(width), nothing, 0.0
        )

    def step(self, state: RlsState, x: Reals, y: Reals) -> tuple[RlsState, Doubles]:
        """Return the state after a row, features (width,) and targets (outputs,), and what was said before it."""
        x, y = _row(state.w_out, x, y)
        kept = self.forgetting * state.weight
        weight = kept + 1.0
        # The centred normal matrix R of all rows grows by share * d d^T when a row lies d off the mean so far,
        #     R' = forgetting R + share d d^T,   R' W' = R' W + share d (dy - W d)^T,
        # which is a row sqrt(share) [d, dy] without a mean. Without a bias nothing is centred.
        d, dy, share = (x - state.mean_features, y - state.mean_targets, kept / weight) if self.fit_bias else (x, y, 1)
        prediction = state.w_out @ x + state.out_bias
        before = LeastSquares(state.w_out, state.inverse, state.rows)
        w_out, inverse, rows = absorb(before, np.sqrt(share) * d[None], np.sqrt(share) * dy[None], self.forgetting)
        mean_x, mean_y, out_bias = state.mean_features, state.mean_targets, state.out_bias
        if self.fit_bias:
            mean_x, mean_y = mean_x + d / weight, mean_y + dy / weight
            out_bias = mean_y - w_out @ mean_x
        return RlsState(w_out, out_bias, rows, inverse, mean_x, mean_y, weight), prediction


def learn(rule: Lms | Rls, features: Reals, targets: Reals, state: Any = None) -> tuple[Any, Doubles]:
    """Return the state after rows (rows, width) with targets (rows, outputs), and what was predicted before each."""
    x = as_steps("features", features, None, np.float64)
    y = as_steps("targets", targets, None, np.float64)
    if len(x) != len(y):
        raise SeriesError(f"features have {len(x)} rows, targets {len(y)}: they must be as many")
    state = rule.init(x.shape[1], y.shape[1]) if state is None else state
    predictions = np.empty(y.shape)
    with cores_for(x.shape[1]):
        for row in range(len(x)):
            state, predictions[row] = rule.step(state, x[row], y[row])
    return state, predictions


def _row(w_out: Doubles, x: Reals, y: Reals) -> tuple[Doubles, Doubles]:
    features, targets = np.asarray(x, np.float64), np.asarray(y, np.float64)
    outputs, width = w_out.shape
    if features.shape != (width,) or targets.shape != (outputs,):
        raise SeriesError(
            f"a row must be features ({width},) and targets ({outputs},). Got {features.shape} and {targets.shape}"
        )
    if not _finite(features, targets):
        raise SeriesError("features and targets must be finite. Got a row that is not")
    return features, targets


def _finite(*parts: Doubles) -> bool:
    return all(bool(np.all(np.isfinite(part))) for part in parts)
