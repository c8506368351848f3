"""Scores of several instances of a task as one row: pooled proportions, or a mean over instances."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import t as student

from metalforge.reservoir.accuracy import wilson

from .protocol import Row

__all__ = ["WORSE_SIGN", "Metric", "Score", "pooled", "row_of", "student_interval"]

Metric: TypeAlias = Literal["accuracy", "nrmse"]
WORSE_SIGN = {"accuracy": -1.0, "nrmse": 1.0}
"""A gap is positive where the value is worse than the reference."""


class Score(NamedTuple):
    """A metric of one instance, its own interval, and the number of cases behind it."""

    value: float
    low: float
    high: float
    cases: int


def row_of(
    scores: Sequence[Score],
    reference: float,
    metric: Metric,
    *,
    task: str,
    approach: str,
    precision: str,
    refit: bool,
    shared_test: bool = False,
) -> Row:
    """Return the row of scores from several instances.

    Accuracies are pooled, with Wilson's interval for all cases, or for one instance's where they share their cases.
    NRMSEs are averaged, with Student's interval over the instances, or the only instance's own.
    """
    value, low, high = _proportion(scores, shared_test) if metric == "accuracy" else _mean(scores)
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
        gap=WORSE_SIGN[metric] * (value - reference) + 0.0,
    )


def pooled(scores: Sequence[Score]) -> float:
    """Return the mean weighted by cases."""
    return float(np.average([s.value for s in scores], weights=[s.cases for s in scores]))


def _proportion(scores: Sequence[Score], shared_test: bool) -> tuple[float, float, float]:
    value = pooled(scores)
    cases = scores[0].cases if shared_test else sum(s.cases for s in scores)
    return (value, *wilson(round(value * cases), cases)[1:3])


def _mean(scores: Sequence[Score]) -> tuple[float, float, float]:
    if len(scores) == 1:
        return scores[0].value, scores[0].low, scores[0].high
    return student_interval([s.value for s in scores])


def student_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of at least two values with Student's interval of 95 %."""
    mean = float(np.mean(values))
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / sqrt(len(values)))
    return mean, mean - half, mean + half
