"""How often a solve should be looked at: seldom when it is predicted to be easy, often when hard.

A look costs a read-back and changes no result; it is what lets a stalling solve be noticed. Predictions are iterations
of one solve. The origin compared totals of a trajectory (60,000) with these thresholds and so always looked most often.
"""

from collections.abc import Callable

__all__ = ["build_on_check", "check_interval"]

EASY, HARD = 200, 1000
"""Iterations a solve: below the first every 20th is looked at, from the second every 5th, between every 10th."""


def check_interval(iterations_per_solve: float | None) -> int:
    """Return 20, 10 or 5 iterations for a predicted solve below 200, below 1000, or longer; 10 without a prediction."""
    if iterations_per_solve is None:
        return 10
    return 20 if iterations_per_solve < EASY else 10 if iterations_per_solve < HARD else 5


def build_on_check(iterations_per_solve: float | None) -> Callable[[int, float], int]:
    """Return a solver's `on_check(iteration, residual)` that gives the next check interval.

    It follows the prediction, and the solve itself once that has outlived the prediction: a solve at iteration 1200
    is a hard one whatever was foretold. It holds no state, so one can watch many solves. The solver's first interval
    is `check_interval` of the same prediction.
    """
    first = check_interval(iterations_per_solve)

    def on_check(iteration: int, residual: float) -> int:
        return min(first, check_interval(iteration))

    return on_check
