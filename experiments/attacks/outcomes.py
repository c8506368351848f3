r"""Shares over sequences of several reservoirs, with intervals: correct answers, and attacks that transfer.

A share is sum(numerator) / sum(denominator), two numbers per sequence. Its interval is a percentile bootstrap in two
levels: reservoirs are drawn with replacement, then whole sequences within each, so that it holds for another reservoir
and other sequences of the same kind. Several models judged on the same sequences are drawn together: a difference of
theirs has the interval of paired cases. (A. Davison, D. Hinkley, "Bootstrap methods and their application", 1997.)
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.reservoir.metrics import Interval

Flags: TypeAlias = Sequence[NDArray[np.bool_]]
"""For each reservoir, a yes or no for each of its sequences."""
RESAMPLES = 1000


def share(right: Flags) -> Interval:
    """Return the share of sequences that are right."""
    return _ratio(right, [np.ones(len(r)) for r in right])


def share_difference(first: Flags, second: Flags) -> Interval:
    """Return share(first) - share(second) of the same sequences."""
    change = [a.astype(np.float64) - b for a, b in zip(first, second, strict=True)]
    return _ratio(change, [np.ones(len(c)) for c in change])


def transfer_rate(source_clean: Flags, source_attacked: Flags, target_clean: Flags, target_attacked: Flags) -> Interval:
    """Return how many of the sequences that fool their source fool the target too.

    Counted are sequences that both read rightly when clean and that the source misreads under the attack; an error that
    the target makes anyway is no transfer. NaN where there are none.
    """
    eligible = [a & b & ~c for a, b, c in zip(source_clean, target_clean, source_attacked, strict=True)]
    carried = [e & ~t for e, t in zip(eligible, target_attacked, strict=True)]
    return _ratio(carried, eligible)


def _ratio(numerators: Sequence[NDArray[Any]], denominators: Sequence[NDArray[Any]]) -> Interval:
    """Return sum(numerators) / sum(denominators) and its 95 % interval."""
    if not numerators or any(len(a) != len(b) or not len(a) for a, b in zip(numerators, denominators, strict=True)):
        raise SpecError("a share wants at least one reservoir, and as many numerators as denominators in each")
    total = sum(float(d.sum()) for d in denominators)
    if total == 0:
        return Interval(np.nan, np.nan, np.nan)
    rng = np.random.default_rng(0)
    groups = len(numerators)
    # How often a reservoir is drawn in each resample, and sums over whole draws of its sequences, one for each time.
    tops, bottoms = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    chosen = rng.integers(0, groups, (groups, RESAMPLES))
    for group, (top, bottom) in enumerate(zip(numerators, denominators, strict=True)):
        both = np.stack([top, bottom], axis=1).astype(np.float64)
        for drawn in chosen:
            where = np.flatnonzero(drawn == group)
            sums = both[rng.integers(0, len(both), (len(where), len(both)))].sum(axis=1)
            tops[where] += sums[:, 0]
            bottoms[where] += sums[:, 1]
    found = tops[bottoms > 0] / bottoms[bottoms > 0]
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(sum(float(n.sum()) for n in numerators) / total, float(low), float(high))
