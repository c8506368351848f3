r"""Attacks by slopes or by questions, and a control: perturbed sequences u', |u' - u| <= epsilon in every number.

    fgsm           u' = u + epsilon sign(dL/du)                                       (I. Goodfellow et al., ICLR 2015)
    pgd            u' <- clip(u' + step sign(dL/du'), u - epsilon, u + epsilon), many times, from several starts
                                                                                      (A. Madry et al., ICLR 2018)
    random_signs   u' = u + epsilon times fair coins: the size of an attack without its direction

A loss of accuracy is the attack's only as far as it exceeds that of `random_signs`. `epsilon` is a number, or an array
that broadcasts to `u`: 0 where nothing may change, such as the rest before a short sequence.

`square_attack` is a random search that asks for scores only, after the Square attack, for sequences.
(M. Andriushchenko, F. Croce, N. Flammarion, M. Hein, "Square attack", ECCV 2020.) Every number is always moved by
+epsilon or -epsilon. The start has one sign for each input line through all of time, their stripes. Each query then
gives new signs, one per line, to a block: neighbouring steps, and lines chosen at random, as lines have no neighbours.
What raises the margin stays. The block's share of a sequence shrinks on their schedule.

It needs no slopes, so that nothing which hides slopes can hold it off: where it does better than an attack by slopes,
these were masked (A. Athalye et al., 2018; F. Croce, M. Hein, 2020).
"""

import math
from typing import TypeAlias

import numpy as np

from metalforge.core.arrays import Reals
from metalforge.core.errors import SpecError, require_at_least

from .victim import Labels, Objective, Victim

Size: TypeAlias = float | Reals
SIGNS = np.array([-1.0, 1.0])
STEP = 2.5
"""Madry et al.: steps add up to 2.5 epsilon, so that every point of the cube can be reached from every other."""


def fgsm(victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, objective: Objective = "cross_entropy") -> Reals:
    """Return sequences one step of the slope's sign away."""
    size = checked_epsilon(u, epsilon)
    _, slope = victim.loss_and_slope(u, labels, objective)
    return np.asarray(u + size * np.sign(slope))


def pgd(
    victim: Victim,
    u: Reals,
    labels: Labels,
    epsilon: Size,
    *,
    steps: int = 20,
    restarts: int = 2,
    seed: int = 0,
    objective: Objective = "margin",
) -> Reals:
    """Return, for each sequence, the one of largest loss met in `restarts` projected climbs of `steps` steps.

    The first climb starts at `u`, the others at random points of the cube. No climb stops early when a sequence is
    misread: one that is misread by far is misread by other models too, and transfer is what is asked here.
    """
    size = checked_epsilon(u, epsilon)
    if steps < 1 or restarts < 1:
        raise SpecError(f"`steps` and `restarts` must be 1 or more. Got {steps} and {restarts}")
    rng = np.random.default_rng(seed)
    low, high = u - size, u + size
    best, best_loss = u.copy(), np.full(len(u), -np.inf)
    for restart in range(restarts):
        at = u.copy() if restart == 0 else np.clip(u + size * rng.uniform(-1, 1, u.shape).astype(u.dtype), low, high)
        for _ in range(steps):
            losses, slope = victim.loss_and_slope(at, labels, objective)
            _keep(best, best_loss, at, losses)
            at = np.clip(at + STEP / steps * size * np.sign(slope), low, high)
        _keep(best, best_loss, at, victim.loss(at, labels, objective))
    return best


def random_signs(u: Reals, epsilon: Size, *, seed: int = 0) -> Reals:
    """Return sequences with every number moved by epsilon, up or down by a coin."""
    size = checked_epsilon(u, epsilon)
    return np.asarray(u + size * np.random.default_rng(seed).choice(SIGNS.astype(u.dtype), u.shape))


def checked_epsilon(u: Reals, epsilon: Size) -> Reals:
    """Return the size of a perturbation for every number of `u`; raises unless it can be one."""
    size = np.asarray(epsilon, u.dtype)
    if not np.all((size >= 0) & (size < np.inf)):
        raise SpecError(f"`epsilon` must be 0 or more, and finite. Got {epsilon}")
    try:
        return np.broadcast_to(size, u.shape)
    except ValueError:
        raise SpecError(f"`epsilon` must be a number, or broadcast to {u.shape}. Got shape {size.shape}") from None


def _keep(best: Reals, best_loss: Reals, found: Reals, losses: Reals) -> None:
    """Take over what is better, sequence by sequence."""
    better = losses > best_loss
    best[better], best_loss[better] = found[better], losses[better]


HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Where, in parts of the budget, the share is halved: the paper's 10, 50, 200, ... of 10 000 queries."""
SHARE = 0.8
"""Of a sequence, that the first block has."""


def square_attack(
    victim: Victim, u: Reals, labels: Labels, epsilon: Size, *, queries: int = 200, seed: int = 0
) -> Reals:
    """Return perturbed sequences after at most `queries` questions for each; a sequence once misread is left alone."""
    size = checked_epsilon(u, epsilon)
    require_at_least(1, queries=queries)
    rng, coin = np.random.default_rng(seed), SIGNS.astype(u.dtype)
    n, steps, inputs = u.shape
    at: Reals = u + size * rng.choice(coin, (n, 1, inputs))
    best = victim.loss(at, labels)
    for query in range(1, queries):
        active = np.flatnonzero(best <= 0)
        if not len(active):
            break
        part = math.sqrt(SHARE / 2 ** sum(query / queries > h for h in HALVINGS))
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
