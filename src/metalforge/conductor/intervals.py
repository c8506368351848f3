"""How often a solve should be looked at: seldom when it is predicted to be easy, often when hard.

A look costs a read-back and changes no result; it is what lets a stalling solve be noticed. Predictions are iterations
of one solve. The published design compared totals of a trajectory (60,000) with these thresholds and so always looked
most often.
"""

__all__ = ["check_interval"]

EASY, HARD = 200, 1000
"""Iterations a solve: below the first every 20th is looked at, from the second every 5th, between every 10th."""


def check_interval(iterations_per_solve: float | None) -> int:
    """Return 20, 10 or 5 iterations for a predicted solve below 200, below 1000, or longer; 10 without a prediction."""
    if iterations_per_solve is None:
        return 10
    return 20 if iterations_per_solve < EASY else 10 if iterations_per_solve < HARD else 5
