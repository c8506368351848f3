r"""How far each chain is from what all of them together say, in the errors that a chain as long has if they are right.

A chain's own rows know its error only if it has seen everything. At a first-order transition it may not: in the wings
of the peak the rarer phase comes once in a while, and a chain that never met it has a small chi, and an even smaller
error of it. Whether that contradicts the others is for them to say: variances are those of the joined chains at the
chain's coordinate, and tau_int those of all chains near it. Where there are two phases, a chain is asked three things.

- *How many of its n rows it spent in the upper phase*, t. It is a process with two states, which goes up at the rate
  a = share / tau and comes down at b = (1 - share) / tau, share and tau those of all chains together. In n - t rows
  below it goes up K ~ Poisson(a (n - t)) times, and K visits take no more than t rows if M ~ Poisson(b t) >= K:

      P(at most t | began below) = P(K <= M),     P(at least t | began above) = P(M <= K),

  exactly (L. Takacs, Acta Math. Acad. Sci. Hung. 8 (1957) 169); exp(-a n) for a chain that never went up. The smaller
  tail, as a Gaussian's, is the pull. What came before the first row does not matter.
- *<E> and <|L|>, given that*: the mean of E - <E>_phase over the rows inside a phase. Rows on the way between them are
  left to the first question: they are few, far from either mean, and all from a handful of crossings.
- *chi, given that*: the mean of (|L| - <|L|>_phase)^2 over the same rows, over its expected value. Such a ratio r of
  relative variance v is distributed like chi^2_k / k with k = 2 / v, whose upper tail is far longer than a Gaussian's
  where k is small. The pull is therefore that of its cube root, which is close to a Gaussian,

      (r^(1/3) - (1 - v / 9)) / (v / 9)^(1/2)

  (E. B. Wilson and M. M. Hilferty, Proc. Natl. Acad. Sci. 17 (1931) 684).

With one phase the last two are left, over all rows.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.statistics import Joint

from .phases import PhaseTrack
from .selection import MeasuredChain

Floats = NDArray[np.float64]
LEAST_B4 = 2.0
"""<d^4> / <d^2>^2 at least, as in `measured_chi`: the value between one and two peaks."""
SMALLEST = 1e-15
"""Probability that is told from nothing: a pull of 7.9."""


class Pulls(NamedTuple):
    """Standard errors of each chain from all together; `share`, of the time above, is None without two known phases.

    `length` is that of each chain in the longest tau_int of what the first three are of.
    """

    energy: Floats
    order: Floats
    chi: Floats
    share: Floats | None
    length: Floats


def pulls_of(joint: Joint, chains: Sequence[MeasuredChain], tracks: Sequence[PhaseTrack]) -> Pulls:
    """Return how far each of the joined chains is from all together."""
    share, phases = _phases(joint, chains, tracks)
    within = [_within(*one) for one in zip(chains, tracks, phases, strict=True)]
    energy, order, chi = np.array(within).reshape(-1, 3).T
    of_share = [
        share_pull(track.upper.size, float(track.upper.mean()), bool(track.upper[0]), float(part), track.between)
        for track, part in zip(tracks, share, strict=True)
        if track.between is not None
    ]
    length = np.array([track.upper.size / max(track.within) for track in tracks])
    return Pulls(energy, order, chi, np.array(of_share) if len(of_share) == len(chains) else None, length)


def _phases(
    joint: Joint, chains: Sequence[MeasuredChain], tracks: Sequence[PhaseTrack]
) -> tuple[Floats, NDArray[np.float64]]:
    """Return the part of the upper phase where each chain is; <E>, var E, <O>, var O, <dO^4> inside either phase."""
    energy = np.concatenate([chain.energy for chain in chains])
    heat, order = energy - joint.origin, np.concatenate([chain.order for chain in chains]) - joint.centre
    weight = np.concatenate([np.full(chain.energy.size, 1 / (2 * chain.tau)) for chain in chains])
    upper, inside = (np.concatenate([getattr(track, name) for track in tracks]) for name in ("upper", "inside"))

    def columns() -> Iterator[Floats]:
        yield from (weight, weight * upper)
        for phase in (inside & ~upper, inside & upper):
            there = weight * phase
            yield from (there, there * heat, there * heat**2)
            for _ in range(4):
                there = there * order
                yield there

    rows, above, *sums = joint.weigh(energy, columns(), np.array([chain.coordinate for chain in chains]))
    low, high = np.reshape(sums, (2, 7, len(chains)))
    return above / rows, np.stack([_central(low, joint), _central(high, joint)]).transpose(2, 0, 1)


def _central(sums: Floats, joint: Joint) -> Floats:
    """Return <E>, var E, <O>, var O and <dO^4> from sums of 1, E, E^2, O .. O^4 about the joint's origin and centre."""
    e1, e2, m1, m2, m3, m4 = sums[1:] / np.maximum(sums[0], 1e-300)
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return np.array([e1 + joint.origin, e2 - e1**2, m1 + joint.centre, m2 - m1**2, fourth])


def _within(chain: MeasuredChain, track: PhaseTrack, phases: Floats) -> Floats:
    """Return the pulls of E, of the order parameter and of its variance in the rows inside the phases."""
    off, variance, squares = np.zeros(3), np.zeros(3), 0.0
    for phase, (heat, heat_variance, mean, order_variance, fourth) in zip((False, True), phases, strict=True):
        there = track.inside & (track.upper == phase)
        order = chain.order[there] - mean
        off += np.sum(chain.energy[there] - heat), np.sum(order), np.sum(order**2 - order_variance)
        surprise = max(fourth, LEAST_B4 * order_variance**2) - order_variance**2
        variance += order.size * np.array([heat_variance, order_variance, surprise])
        squares += order.size * order_variance
    variance = 2 * np.array(track.within) * np.maximum(variance, 1e-300)
    energy, mean, _ = off / np.sqrt(variance)
    chi = ratio_pull(1 + off[2] / squares, variance[2] / squares**2) if squares > 0 else 0.0
    return np.array([energy, mean, chi])


def ratio_pull(ratio: float, variance: float) -> float:
    """Return how surprising the ratio of a mean square to its expected value is, given its relative variance."""
    return float((np.cbrt(max(ratio, 0.0)) - (1 - variance / 9)) / np.sqrt(variance / 9))


def share_pull(rows: int, own: float, began_above: bool, share: float, tau: float) -> float:
    """Return how surprising it is to be above for a part `own` of the rows: positive where that is too much."""
    from scipy.special import chndtr, ndtri

    if began_above:
        return -share_pull(rows, 1 - own, False, 1 - share, tau)
    up, down = (1 - own) * rows * share / tau, own * rows * (1 - share) / tau
    # P(K > M) of two Poisson numbers is the distribution function of a noncentral chi^2 with two degrees of freedom.
    longer = float(chndtr(2 * up, 2, 2 * down))
    at_most, at_least = 1 - longer, longer if own > 0 else 1.0
    tail = float(ndtri(np.clip(min(at_most, at_least), SMALLEST, 0.5)))
    return tail if at_most < at_least else -tail
