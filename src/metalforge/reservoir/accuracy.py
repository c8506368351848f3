r"""Shares of right labels, with intervals that hold for small counts and near 0 or 1."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from metalforge.core.errors import SpecError

__all__ = ["Proportion", "accuracy", "wilson"]


class Proportion(NamedTuple):
    """A share of n, and the ends of its confidence interval."""

    value: float
    low: float
    high: float
    n: int


def accuracy(labels: ArrayLike, predicted: ArrayLike, *, confidence: float = 0.95) -> Proportion:
    """Return the share of right labels with Wilson's interval."""
    right = np.equal(*_labels(labels, predicted))
    return wilson(int(right.sum()), right.size, confidence=confidence)


def wilson(successes: int, n: int, *, confidence: float = 0.95) -> Proportion:
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
    return Proportion(p, low, high, n)


def _labels(labels: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both as int64 (n,); raises unless they are whole numbers, not empty and of one length."""
    truth, guess = np.asarray(labels), np.asarray(predicted)
    for name, given in (("labels", truth), ("predicted", guess)):
        if given.dtype.kind not in "iu" or given.ndim != 1 or given.size == 0:
            raise SpecError(
                f"`{name}` must be whole numbers of shape (n,), not empty. Got {given.dtype} of shape {given.shape}"
                + ("\nhint: scores want .argmax(axis=1) first" if given.ndim == 2 else "")
            )
    if truth.shape != guess.shape:
        raise SpecError(f"`labels` and `predicted` must have one length. Got {truth.size} and {guess.size}")
    return truth.astype(np.int64), guess.astype(np.int64)
