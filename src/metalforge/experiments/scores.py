"""Scores of several instances of a task as one row: a proportion with Wilson's interval, or a mean with Student's."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from scipy.stats import t as student

from .problems import Metric
from .protocol import Row

__all__ = ["WORSE_SIGN", "Score", "row_of"]

Score = tuple[float, int]
"""A metric and the number of cases behind it."""
WORSE_SIGN = {"accuracy": -1.0, "nrmse": 1.0}
"""A gap is positive where the value is worse than the reference."""
Z95 = 1.959963984540054


def row_of(
    scores: Sequence[Score],
    reference: float,
    metric: Metric,
    *,
    task: str,
    approach: str,
    precision: str,
    refit: bool,
) -> Row:
    """Return the row of scores from independent instances; accuracies are pooled, NRMSEs averaged."""
    value, low, high = _proportion(scores) if metric == "accuracy" else _mean(scores)
    return Row(
        task=task,
        approach=approach,
        precision=precision,
        refit=refit,
        metric=metric,
        value=value,
        low=low,
        high=high,
        reference=reference,
        gap=WORSE_SIGN[metric] * (value - reference),
    )


def pooled(scores: Sequence[Score]) -> float:
    """Return the mean weighted by cases."""
    return float(np.average([s for s, _ in scores], weights=[n for _, n in scores]))


def _proportion(scores: Sequence[Score]) -> tuple[float, float, float]:
    """Wilson's score interval (E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209)."""
    n = sum(cases for _, cases in scores)
    p = pooled(scores)
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * sqrt(p * (1 - p) / n + Z95**2 / (4 * n * n))
    return p, min(centre - half, p), max(centre + half, p)


def _mean(scores: Sequence[Score]) -> tuple[float, float, float]:
    values = np.array([s for s, _ in scores])
    if len(values) < 2:
        return float(values[0]), float("nan"), float("nan")
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values)))
    mean = float(values.mean())
    return mean, mean - half, mean + half
