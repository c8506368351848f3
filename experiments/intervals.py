"""Intervals of what experiments measure: a mean over instances, and the NRMSE of one series with correlated errors."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError
from metalforge.reservoir.metrics import Interval, nrmse, politis_white
from metalforge.statistics.resample import block_indices


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95 % interval by Student's t; of one value, that value."""
    mean, n = float(np.mean(values)), len(values)
    return Interval.around(mean, float(stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(n)) if n > 1 else 0.0)


def nrmse_interval(truth: Reals, predicted: Reals, *, resamples: int = 1000, block: int | None = None) -> Interval:
    """Return the NRMSE of (T, outputs) and its 95 % percentile interval by a bootstrap over blocks of times.

    A series and its errors are correlated: resampling single times would give intervals that are too short. Truth and
    prediction are drawn together in circular blocks. Unless `block` is given, it is what Politis and White's rule finds
    for the squared errors or for the squared deviations of the truth, which the norm is made of: the longer one.
    For several independent series, do not join them: resample the series.
    """
    value = nrmse(truth, predicted)
    if block is None:
        squares = np.hstack([(truth - predicted) ** 2, (truth - truth.mean(axis=0)) ** 2])
        block = max(politis_white(column) for column in squares.T)
    rng = np.random.default_rng(0)
    draws = (block_indices(len(truth), block, rng) for _ in range(resamples))
    # A rare draw of blocks without any variation has no norm, and says nothing about the error.
    found = [nrmse(truth[rows], predicted[rows]) for rows in draws if np.all(np.std(truth[rows], axis=0) > 0)]
    if len(found) < 0.9 * resamples:
        raise SpecError("the truth is constant in more than a tenth of the resamples: it varies too rarely")
    return Interval(value, *(float(end) for end in np.quantile(found, [0.025, 0.975])))
