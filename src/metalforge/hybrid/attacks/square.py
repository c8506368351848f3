r"""A black-box attack: random search that asks for scores only, after the Square attack, for sequences.

(M. Andriushchenko, F. Croce, N. Flammarion, M. Hein, "Square attack", ECCV 2020.) Every number is always moved by
+epsilon or -epsilon. The start has one sign for each input line through all of time, their stripes. Each query then
gives new signs, one a line, to a block: neighbouring steps, and lines chosen at random since lines have no neighbours.
What raises the margin stays. The block's share of a sequence shrinks on their schedule, from `share` on.

It needs no slopes, so that nothing which hides slopes can hold it off: where it does better than an attack by slopes,
these were masked (A. Athalye et al., 2018; F. Croce, M. Hein, 2020).
"""

import math

import numpy as np

from metalforge.core.errors import SpecError

from .gradient_attacks import SIGNS, Size, checked_epsilon
from .victim import Labels, Reals, Victim

__all__ = ["square_attack"]

HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Where, in parts of the budget, the share is halved: the paper's 10, 50, 200, ... of 10 000 queries."""


def square_attack(
    victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, queries: int = 200, share: float = 0.8, seed: int = 0
) -> Reals:
    """Return perturbed sequences after at most `queries` questions for each; a sequence once misread is left alone."""
    size = checked_epsilon(u, epsilon)
    if queries < 1 or not 0 < share <= 1:
        raise SpecError(f"`queries` must be 1 or more and `share` in 0 .. 1, above 0. Got {queries} and {share}")
    rng, coin = np.random.default_rng(seed), SIGNS.astype(u.dtype)
    n, steps, inputs = u.shape
    at: Reals = u + size * rng.choice(coin, (n, 1, inputs))
    best = victim.loss(at, labels)
    for query in range(1, queries):
        active = np.flatnonzero(best <= 0)
        if not len(active):
            break
        part = math.sqrt(share / 2 ** sum(query / queries > h for h in HALVINGS))
        tried = at[active]
        long, wide = max(1, round(part * steps)), max(1, round(part * inputs))
        begin = rng.integers(0, steps - long + 1, len(active))
        lines = np.argsort(rng.uniform(size=(len(active), inputs)), axis=1)[:, :wide]
        signs = rng.choice(coin, (len(active), wide))
        rows = np.arange(len(active))[:, None, None]
        times = (begin[:, None] + np.arange(long))[:, :, None]
        block = rows, times, lines[:, None, :]
        tried[block] = u[active][block] + size[active][block] * signs[:, None, :]
        losses = victim.loss(tried, labels[active])
        better = losses > best[active]
        at[active[better]], best[active[better]] = tried[better], losses[better]
    return at
