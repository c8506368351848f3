r"""Shares of right labels, with intervals that hold for small counts and near 0 or 1."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from metalforge.core.errors import SpecError

__all__ = ["Difference", "Proportion", "accuracy", "accuracy_difference", "confusion_matrix", "wilson"]


class Proportion(NamedTuple):
    """A share of n, and the ends of its confidence interval."""

    value: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """A difference of two shares of the same n cases, and the ends of its confidence interval."""

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


def accuracy_difference(
    labels: ArrayLike, first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95
) -> Difference:
    r"""Return accuracy(first) - accuracy(second) on the same cases, with Newcombe's interval for paired shares.

        low  = d - sqrt((p1 - l1)^2 - 2 phi (p1 - l1)(u2 - p2) + (u2 - p2)^2)
        high = d + sqrt((u1 - p1)^2 - 2 phi (u1 - p1)(p2 - l2) + (p2 - l2)^2)

    l and u are Wilson's ends, phi the correlation between being right with one and with the other. Two models that
    err on the same cases have a much shorter interval than two sets of cases would give. (R. Newcombe, Statistics in
    Medicine 17, 1998, 2635, method 10.)
    """
    truth, one = _labels(labels, first)
    _, two = _labels(labels, second)
    right_one, right_two = truth == one, truth == two
    n = truth.size
    both, neither = int(np.sum(right_one & right_two)), int(np.sum(~right_one & ~right_two))
    only_one, only_two = int(np.sum(right_one & ~right_two)), int(np.sum(~right_one & right_two))
    p1, l1, u1, _ = wilson(both + only_one, n, confidence=confidence)
    p2, l2, u2, _ = wilson(both + only_two, n, confidence=confidence)
    phi = _correlation(both, only_one, only_two, neither)
    down, up = (p1 - l1, u2 - p2), (u1 - p1, p2 - l2)
    difference = (only_one - only_two) / n
    return Difference(difference, difference - _joined(*down, phi), difference + _joined(*up, phi), n)


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, *, classes: int | None = None) -> NDArray[np.int64]:
    """Return counts (classes, classes): row the true label, column the predicted one; labels are 0 .. classes - 1."""
    truth, guess = _labels(labels, predicted)
    lowest, highest = int(min(truth.min(), guess.min())), int(max(truth.max(), guess.max()))
    size = highest + 1 if classes is None else classes
    if lowest < 0 or highest >= size:
        raise SpecError(f"labels must lie in 0 .. {size - 1}. Got {lowest} .. {highest}")
    return np.bincount(truth * size + guess, minlength=size * size).reshape(size, size).astype(np.int64)


def _correlation(both: int, only_one: int, only_two: int, neither: int) -> float:
    """Return Newcombe's phi: the correlation of a two-by-two table, with a continuity correction when positive."""
    sides = (both + only_one) * (only_two + neither) * (both + only_two) * (only_one + neither)
    if sides == 0:
        return 0.0
    excess = both * neither - only_one * only_two
    n = both + only_one + only_two + neither
    corrected = max(excess - n / 2, 0) if excess > 0 else excess
    return float(corrected / np.sqrt(float(sides)))


def _joined(a: float, b: float, phi: float) -> float:
    return float(np.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0)))


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
