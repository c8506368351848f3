r"""How good predictions are: errors under named norms, and an interval for a series whose errors are correlated.

Series are (T,) or (T, outputs), truth first. Everything that is not a number, empty or of another shape is refused:
a metric of bad data is worse than none. Shares of right labels have intervals that hold near 0 and 1 too.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from metalforge.core import Doubles, SpecError, find
from metalforge.statistics import lagged_sums

from .weights import require_finite

Norm: TypeAlias = Literal["std", "minmax", "var", "mean", "iqr"]
"""What the error is divided by: of the truth, its standard deviation, its range, its variance, |its mean|, or the
distance between its quartiles."""


class Interval(NamedTuple):
    """A value and the ends of its confidence interval."""

    value: float
    low: float
    high: float


def rmse(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return sqrt(mean (y_true - y_pred)^2) over all entries."""
    truth, predicted = _series(y_true, y_pred)
    return float(np.sqrt(np.mean((truth - predicted) ** 2)))


def nrmse(y_true: ArrayLike, y_pred: ArrayLike, norm: Norm = "std") -> float:
    r"""Return the root mean square error in units of a norm of the truth.

        nrmse^2 = mean over outputs of (mse of the output / norm(truth of the output)^2)

    With `std`, the literature's NRMSE and the default, 1 is what predicting the mean gives. Every output has a norm of
    its own, so outputs of other sizes and offsets do not hide an error. `var` divides the error by the variance, which
    has a unit; it is there because reservoirpy's `norm="var"` does so (and its default is `minmax`): numbers under
    different norms are not comparable.
    """
    truth, predicted = _series(y_true, y_pred)
    size = _checked_norm(truth, norm)
    return float(np.sqrt(np.mean(np.mean((truth - predicted) ** 2, axis=0) / size**2)))


_NORMS: dict[str, Callable[[Doubles], Any]] = {
    "std": lambda y: np.std(y, axis=0),
    "minmax": lambda y: np.ptp(y, axis=0),
    "var": lambda y: np.var(y, axis=0),
    "mean": lambda y: np.abs(np.mean(y, axis=0)),
    "iqr": lambda y: np.subtract(*np.quantile(y, [0.75, 0.25], axis=0)),
}


def _checked_norm(truth: Doubles, norm: Norm) -> Doubles:
    """Return the norm of each output; raises where it is nothing but rounding."""
    size = np.asarray(find("norm", norm, _NORMS)(truth))
    # What a sum of equal numbers leaves; a variance is the square of it.
    rounding = (16 * np.finfo(np.float64).eps * np.abs(truth).max(axis=0)) ** (2 if norm == "var" else 1)
    if np.any(size <= rounding):
        output = int(np.argmax(size <= rounding))
        raise SpecError(
            f"the {norm} of the truth is 0 (output {output}): no error can be measured in units of it"
            "\nhint: use rmse, or another norm"
        )
    return size


def _series(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return both as float64 (T, outputs); raises unless they are finite, not empty and of one shape."""
    both = []
    for name, values in (("y_true", y_true), ("y_pred", y_pred)):
        given = np.asarray(values)
        if given.dtype.kind not in "iuf" or given.ndim not in (1, 2) or given.size == 0:
            raise SpecError(
                f"`{name}` must be real numbers of shape (T,) or (T, outputs), not empty. "
                f"Got {given.dtype} of shape {given.shape}"
            )
        require_finite(name, given)
        both.append(given.astype(np.float64))
    truth, predicted = both
    if truth.shape != predicted.shape:
        # (T,) against (T, 1) is not let through either: broadcasting would compare every time with every other.
        raise SpecError(f"`y_true` and `y_pred` must have one shape. Got {truth.shape} and {predicted.shape}")
    return truth.reshape(len(truth), -1), predicted.reshape(len(predicted), -1)


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    r"""Return successes / n with Wilson's score interval.

        (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    (E. Wilson, Journal of the American Statistical Association 22, 1927.)
    """
    if not 0 <= successes <= n or n < 1:
        raise SpecError(f"a share wants 0 <= successes <= n and n >= 1. Got {successes} of {n}")
    if not 0 < confidence < 1:
        raise SpecError(f"`confidence` must lie between 0 and 1. Got {confidence}")
    z = float(ndtri((1 + confidence) / 2))
    p = successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    # The ends are exactly 0 and 1 there; rounding may miss them.
    low = 0.0 if successes == 0 else float(middle - half)
    high = 1.0 if successes == n else float(middle + half)
    return Interval(p, low, high)


def politis_white(series: Doubles) -> int:
    r"""Return the block length, 1 to n / 3, for which the bootstrap's variance of the mean has the least squared error.

        b = (2 G^2 / D)^(1/3) n^(1/3),   G = sum |k| R(k),   D = 4/3 (sum R(k))^2

    for circular blocks, with autocovariances R(k) under a flat-top window up to 2 m; m is the lag after which the next
    ones are all insignificant. (D. Politis, H. White, Econometric Reviews 23, 2004, corrected by A. Patton, D. Politis,
    H. White, 28, 2009.)
    """
    n = len(series)
    longest = max(1, n // 3)
    covariance = lagged_sums(series - series.mean(), n) / n
    if covariance[0] <= 0:
        return 1
    correlation = covariance / covariance[0]
    insignificant = np.abs(correlation[1:]) < 2 * math.sqrt(math.log10(n) / n)
    run = max(5, math.isqrt(math.ceil(math.log10(n))))
    m = next((k for k in range(len(insignificant) - run + 1) if insignificant[k : k + run].all()), len(insignificant))
    lags = np.arange(1, min(2 * max(m, 1), n - 1) + 1)
    window = np.clip(2 * (1 - lags / lags[-1]), 0, 1)
    weighted = window * covariance[lags]
    spectrum = covariance[0] + 2 * weighted.sum()
    bias = 2 * np.sum(lags * weighted)
    if spectrum <= 0:
        return longest  # anticorrelated beyond what n times can tell
    best = (2 * bias**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(1, math.ceil(best)), longest))
