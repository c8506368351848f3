"""Scores of several instances of a task as one figure: pooled proportions, or a mean over instances."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import t as student

from metalforge.reservoir.metrics import wilson

from .protocol import Figure

__all__ = ["METRICS", "Metric", "Score", "figure_of", "pooled", "student_interval"]

Metric: TypeAlias = Literal["accuracy", "nrmse"]
METRICS = ("accuracy", "nrmse")


class Score(NamedTuple):
    """A metric of one instance, its own interval, and the number of cases behind it."""

    value: float
    low: float
    high: float
    cases: int


def figure_of(scores: Sequence[Score], metric: Metric, *, shared_test: bool = False) -> Figure:
    """Return the figure of scores from several instances.

    Accuracies are pooled, with Wilson's interval for all cases, or for one instance's where they share their cases.
    NRMSEs are averaged, with Student's interval over the instances, or the only instance's own.
    """
    if metric == "accuracy":
        value = pooled(scores)
        cases = scores[0].cases if shared_test else sum(s.cases for s in scores)
        return Figure(value, *wilson(round(value * cases), cases)[1:3])
    return Figure(*scores[0][:3]) if len(scores) == 1 else student_interval([s.value for s in scores])


def pooled(scores: Sequence[Score]) -> float:
    """Return the mean weighted by cases."""
    return float(np.average([s.value for s in scores], weights=[s.cases for s in scores]))


def student_interval(values: Sequence[float]) -> Figure:
    """Return the mean of at least two values with Student's interval of 95 %."""
    mean = float(np.mean(values))
    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / sqrt(len(values)))
    return Figure(mean, mean - half, mean + half)
