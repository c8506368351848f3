r"""Ridge readouts: features and targets go in, linear readouts come out, for many penalties from the same sums.

    W = argmin  sum_t |y_t - W x_t - b|^2 + ridge |W|^2      b is not penalised
      = Y_c^T X_c (X_c^T X_c + ridge 1)^-1,   b = mean(y) - W mean(x)

with X_c, Y_c the centred rows. The sums X_c^T X_c and X_c^T Y_c are made once and serve every `ridge`; each then costs
one Cholesky factorisation. (One eigendecomposition would serve all, but costs as much as thirteen factorisations and
loses digits: on Mackey-Glass states with ridge 1e-8 it is off by 4e-3, Cholesky by 2e-4.) Everything is float64,
whatever the states are: squaring float32 states would leave three digits. Sums are kept centred (T. F. Chan, G. H.
Golub, R. J. LeVeque, 1983), so a large mean costs no digits and parts can be merged. The convention of `ridge` is that
of reservoirpy and scikit-learn: it is not multiplied by the number of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from metalforge.core import Doubles, Reals, SpecError, cores_for

from .series import SeriesError, as_steps

Pair: TypeAlias = tuple[Reals, Reals]
"""Features (rows, width) and targets (rows, outputs) of one series."""
ROWS_AT_ONCE = 8192
"""Rows that are turned to float64 at a time: a long float32 series is never copied whole."""
ROWS_TOGETHER = 512
"""Rows of short series that are added at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readout:
    """y = w_out x + out_bias, in float64, and the `ridge` that made it. `w_out` is (outputs, width)."""

    w_out: Doubles
    out_bias: Doubles
    ridge: float

    def __call__(self, features: Reals) -> Doubles:
        """Return outputs (rows, outputs) for features (rows, width)."""
        return np.asarray(features @ self.w_out.T + self.out_bias)


class NormalEquations:
    """The sums that a ridge readout needs; series are added one by one and need not be kept.

    `rows` counts what was added, `width` features to `outputs` targets.
    """

    __slots__ = ("_mean_x", "_mean_y", "_xx", "_xy", "_yy", "rows")

    def __init__(self, width: int, outputs: int) -> None:
        self.rows = 0
        self._mean_x, self._mean_y = np.zeros(width), np.zeros(outputs)
        self._xx, self._xy, self._yy = np.zeros((width, width)), np.zeros((width, outputs)), np.zeros(outputs)

    @classmethod
    def of(cls, series: Iterable[Pair], *, start: "NormalEquations | None" = None) -> "NormalEquations":
        """Return the sums over all series, added to `start` where one is given."""
        sums = start
        for features, targets in _gathered(series):
            sums = cls(features.shape[1], targets.shape[1]) if sums is None else sums
            sums.add(features, targets)
        if sums is None:
            raise SeriesError("a readout needs at least one series. Got none")
        return sums

    @property
    def width(self) -> int:
        """Features in a row."""
        return len(self._mean_x)

    @property
    def outputs(self) -> int:
        """Targets in a row."""
        return len(self._mean_y)

    @property
    def target_variance(self) -> Doubles:
        """Variance of each target over all rows."""
        return np.asarray(self._yy / max(self.rows, 1))

    def add(self, features: Reals, targets: Reals) -> Self:
        """Add rows of features (rows, width) and their targets (rows, outputs); return self."""
        if len(features) != len(targets):
            raise SeriesError(f"features have {len(features)} rows, targets {len(targets)}: they must be as many")
        for start in range(0, len(features), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            x = as_steps("features", features[rows], self.width, np.float64)
            y = as_steps("targets", targets[rows], self.outputs, np.float64)
            mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
            x, y = x - mean_x, y - mean_y
            with cores_for(self.width):
                xx, xy = x.T @ x, x.T @ y
            self._absorb(len(x), mean_x, mean_y, xx, xy, (y * y).sum(axis=0))
        return self

    def merge(self, other: "NormalEquations") -> "NormalEquations":
        """Return the sums over the rows of both."""
        if (self.width, self.outputs) != (other.width, other.outputs):
            raise SpecError(
                f"sums of {self.width} features to {self.outputs} outputs cannot be merged with "
                f"{other.width} to {other.outputs}"
            )
        both = NormalEquations(self.width, self.outputs)
        for part in (self, other):
            both._absorb(part.rows, part._mean_x, part._mean_y, part._xx, part._xy, part._yy)
        return both

    def _absorb(self, rows: int, mean_x: Doubles, mean_y: Doubles, xx: Doubles, xy: Doubles, yy: Doubles) -> None:
        if rows == 0:
            return
        total = self.rows + rows
        dx, dy, weight = mean_x - self._mean_x, mean_y - self._mean_y, self.rows * rows / total
        self._xx += xx + weight * np.outer(dx, dx)
        self._xy += xy + weight * np.outer(dx, dy)
        self._yy += yy + weight * dy * dy
        self._mean_x += dx * (rows / total)
        self._mean_y += dy * (rows / total)
        self.rows = total

    def solve(self, ridges: Sequence[float], *, fit_bias: bool = True) -> tuple[Readout, ...]:
        """Return one readout for each ridge.

        Without a penalty, or with one so small that rounding makes the matrix indefinite, it is the solution of least
        norm: directions that rounding cannot tell from zero are left out.
        """
        if self.rows == 0:
            raise SeriesError("a readout needs at least one row of features and targets; none was added")
        gram, moment = self._xx, self._xy
        if not fit_bias:
            gram = gram + self.rows * np.outer(self._mean_x, self._mean_x)
            moment = moment + self.rows * np.outer(self._mean_x, self._mean_y)
        found = []
        for penalty in _ridges(ridges):
            with cores_for(self.width):
                w_out = np.ascontiguousarray(_solved(gram, moment, penalty).T)
            out_bias = self._mean_y - w_out @ self._mean_x if fit_bias else np.zeros(self.outputs)
            found.append(Readout(w_out=w_out, out_bias=out_bias, ridge=penalty))
        return tuple(found)


def ridge(states: Reals, targets: Reals, ridge: float, *, fit_bias: bool = True) -> Readout:
    """Return the readout of states (rows, width) to targets (rows, outputs); `NormalEquations` has several at once."""
    equations = NormalEquations(np.shape(states)[-1], np.shape(targets)[-1]).add(states, targets)
    return equations.solve([ridge], fit_bias=fit_bias)[0]


class RidgeSelection(NamedTuple):
    """The chosen readout, fitted on all series, and the held-out error of every ridge that was tried.

    `errors` are mean squares over the held-out rows in units of each target's variance, averaged over the targets.
    """

    readout: Readout
    ridges: tuple[float, ...]
    errors: Doubles


def select_ridge(
    series: Sequence[Pair],
    ridges: Sequence[float],
    *,
    validation: Sequence[Pair] | None = None,
    folds: int | None = None,
    fit_bias: bool = True,
) -> RidgeSelection:
    """Return the ridge with the least error on series that were not fitted.

    These are the `validation` series; without them each series is left out once or, with `folds`, each of so many
    groups of series (series i is in group i modulo `folds`). A series is never cut: neighbouring steps are not
    independent, and rows left out of the middle would be guessed from both sides.
    """
    ridges = _ridges(ridges)
    groups = [list(series[i :: folds or len(series)]) for i in range(min(folds or len(series), len(series)))]
    if validation is None and len(groups) < 2:
        raise SeriesError(
            "choosing a ridge needs at least two series, to leave one out, or `validation`. "
            f"Got {len(series)} in {len(groups)} groups\nhint: validation=[(features, targets)]"
        )
    parts = [NormalEquations.of(group) for group in groups]
    everything = reduce(NormalEquations.merge, parts)
    if validation is not None:
        errors = _squares(everything.solve(ridges, fit_bias=fit_bias), validation)
        rows = sum(len(y) for _, y in validation)
    else:
        errors, rows = np.zeros((len(ridges), everything.outputs)), everything.rows
        for i, group in enumerate(groups):
            others = reduce(NormalEquations.merge, parts[:i] + parts[i + 1 :])
            errors += _squares(others.solve(ridges, fit_bias=fit_bias), group)
    variance = everything.target_variance
    errors = (errors / rows / np.where(variance > 0, variance, 1.0)).mean(axis=1)
    best = ridges[int(np.argmin(errors))]
    return RidgeSelection(everything.solve([best], fit_bias=fit_bias)[0], ridges, errors)


def _ridges(ridges: Any) -> tuple[float, ...]:
    penalties = tuple(float(r) for r in ridges)
    if not penalties or not all(0 <= r < float("inf") for r in penalties):
        raise SpecError(f"`ridge` must be finite and at least 0, and there must be one. Got {list(ridges)}")
    return penalties


def _solved(gram: Doubles, moment: Doubles, penalty: float) -> Doubles:
    """(gram + penalty 1)^-1 moment."""
    if penalty > 0:
        damped = gram.copy()
        np.einsum("ii->i", damped)[:] += penalty
        with suppress(np.linalg.LinAlgError):
            return np.asarray(cho_solve(cho_factor(damped, overwrite_a=True, check_finite=False), moment))
    values, vectors = np.linalg.eigh(gram)
    damping = np.maximum(values, 0.0) + penalty
    kept = damping > values[-1] * len(values) * np.finfo(np.float64).eps
    inverse = np.divide(1.0, damping, out=np.zeros_like(damping), where=kept)
    return np.asarray(vectors @ (inverse[:, None] * (vectors.T @ moment)))


def _gathered(series: Iterable[Pair]) -> Iterator[Pair]:
    """Short series put together: adding a single row costs as much as adding some hundred."""
    rows = 0

    def batch(pair: Pair) -> int:
        nonlocal rows
        rows += len(pair[0])
        return rows // ROWS_TOGETHER

    for _, group in groupby(series, key=batch):
        features, targets = zip(*group, strict=True)
        alone = len(features) == 1  # a long series need not be copied
        yield (features[0], targets[0]) if alone else (np.concatenate(features), np.concatenate(targets))


def _squares(readouts: Sequence[Readout], series: Iterable[Pair]) -> Doubles:
    """Sums of squared errors (readouts, outputs)."""
    gathered = _gathered(series)
    return np.asarray(sum(np.stack([((r(x) - y) ** 2).sum(axis=0) for r in readouts]) for x, y in gathered))
