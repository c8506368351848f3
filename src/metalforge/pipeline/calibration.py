"""Comparison of candidates that take turns: which is best, by how much, and whether that is more than chance.

The candidates take turns in short blocks (A B C C B A ...), because clocks and temperatures drift. Every block gives
one score for its candidate, and two candidates are compared round by round, so that a drift which both saw cancels: the
mean of the paired differences, and a bootstrap over rounds for how surely it is positive.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import msgspec
import numpy as np

_BOOTSTRAPS = 2000
_SURE = 0.95  # below this a difference is called a tie


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which candidate is best; `ties` cannot be told from it, `gain` is over the runner-up."""

    best: str
    ties: tuple[str, ...]
    gain: float | None
    """(best - next) / |next|, from paired rounds; None with one candidate or a next of 0."""
    confidence: float | None
    """How often the best is really better than the next, in bootstraps over rounds."""
    means: dict[str, float]
    words: str


def take_turns(names: Sequence[str], measure: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """Return the scores that `measure` gave each candidate, one per round, for `judge`."""
    scores: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        # Forward, then backward: a linear drift over a round does not favour those that come first.
        for name in names if turn % 2 == 0 else names[::-1]:
            scores[name].append(measure(name))
    return scores


def judge(scores: Mapping[str, list[float]], seed: int = 0) -> Verdict:
    """Return which candidate is best in a table of scores by round, larger being better, and how surely."""
    means = {name: fmean(values) for name, values in scores.items()}
    best, *others = sorted(means, key=lambda name: -means[name])
    sure = {name: _confidence(scores[best], scores[name], seed) for name in others}
    ties = tuple(name for name, confidence in sure.items() if confidence < _SURE)
    gain = confidence = None
    words = f"`{best}` is the only candidate"
    if others:
        second = others[0]
        confidence = sure[second]
        gain = (means[best] - means[second]) / abs(means[second]) if means[second] else None
        by = "" if gain is None else f" by {gain:.1%}"
        words = f"`{best}` is better than `{second}`{by}, {confidence:.0%} sure"
    if ties:
        words = f"`{best}` and {', '.join(f'`{t}`' for t in ties)} cannot be told apart ({confidence:.0%} sure)"
    return Verdict(best=best, ties=ties, gain=gain, confidence=confidence, means=means, words=words)


def _confidence(best: Sequence[float], other: Sequence[float], seed: int) -> float:
    """Return the fraction of bootstraps over rounds in which the mean paired difference is positive.

    A bootstrap of few rounds is too sure of itself: its spread is sqrt((n - 1) / n) of the true one. The resampled
    means are therefore stretched around the mean by sqrt(n / (n - 1)).
    """
    differences = [a - b for a, b in zip(best, other, strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    if all(d == mean for d in differences):
        return 1.0 if mean > 0 else 0.5
    resampled = np.random.default_rng(seed).choice(differences, (_BOOTSTRAPS, n)).mean(axis=1)
    return float(np.mean(mean + (resampled - mean) * math.sqrt(n / (n - 1)) > 0))
