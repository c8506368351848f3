"""Which jobs to give the device: the set with the largest gain that fits it.

Every candidate covers some nodes and has a gain, what the objective saves when the device does them instead of the
host. Chosen candidates must not overlap, must fit the chip side by side, and must cover what is pinned there. Gains add
up, because a call's price holds its own transfers and the host carries every value between two calls; so this is a
weighted packing. It is searched exactly while candidates are few, and by greedy choice with exchanges beyond.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from metalforge.core.substrate import Cost

from .jobs import Job

__all__ = ["EXACT_UP_TO", "Candidate", "choose"]

EXACT_UP_TO = 12
"""Candidates; 2^12 sets take some milliseconds."""
Gain: TypeAlias = tuple[float, ...]
"""Compared entry by entry, the first decides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A job that could be given to the device, and what that would save."""

    job: Job
    gain: Gain
    device: Cost
    """One call, without updates."""
    pushes: Cost | None
    """Updates that the graph makes in every call."""
    host_share: Cost
    software: Cost
    """The same nodes on the host."""

    @property
    def nodes(self) -> frozenset[str]:
        """What it covers."""
        return frozenset(self.job.nodes)


def choose(
    candidates: Sequence[Candidate],
    fits: Callable[[Sequence[Candidate]], bool],
    must: Collection[str] = (),
    *,
    exact_up_to: int = EXACT_UP_TO,
) -> tuple[Candidate, ...] | None:
    """Return the candidates of the largest total gain that do not overlap and fit; None where `must` cannot be met.

    What gains nothing is left out unless it covers something that must be.
    """
    wanted = frozenset(must)
    useful = [c for c in candidates if c.nodes & wanted or c.gain > tuple(0.0 for _ in c.gain)]
    if len(useful) <= exact_up_to:
        return _exact(useful, fits, wanted)
    return _greedy(useful, fits, wanted)


def _exact(
    candidates: Sequence[Candidate], fits: Callable[[Sequence[Candidate]], bool], must: frozenset[str]
) -> tuple[Candidate, ...] | None:
    """Return the best of all sets, by walking through them with and without each candidate."""
    best: tuple[Candidate, ...] | None = None
    best_gain: Gain = ()

    def walk(index: int, taken: tuple[Candidate, ...], covered: frozenset[str]) -> None:
        nonlocal best, best_gain
        if index == len(candidates):
            gain = _total(taken)
            if must <= covered and (best is None or gain > best_gain) and fits(taken):
                best, best_gain = taken, gain
            return
        candidate = candidates[index]
        if not candidate.nodes & covered:
            walk(index + 1, (*taken, candidate), covered | candidate.nodes)
        walk(index + 1, taken, covered)

    walk(0, (), frozenset())
    return best


def _greedy(
    candidates: Sequence[Candidate], fits: Callable[[Sequence[Candidate]], bool], must: frozenset[str]
) -> tuple[Candidate, ...] | None:
    """Return a good set: the largest gains first, those that must be before them, then exchanges while they help."""
    order = sorted(candidates, key=lambda c: (len(c.nodes & must), c.gain), reverse=True)
    chosen = _filled((), order, fits)
    improved = True
    while improved:
        improved = False
        for candidate in order:
            if candidate in chosen:
                continue
            rest = tuple(c for c in chosen if not c.nodes & candidate.nodes)
            for leave in (None, *rest):
                start = (candidate, *(c for c in rest if c is not leave))
                trial = _filled(start, order, fits) if fits(start) else ()
                if _better(trial, chosen, must):
                    chosen, improved = trial, True
                    break
    return chosen if must <= _covered(chosen) else None


def _filled(
    start: tuple[Candidate, ...], order: Sequence[Candidate], fits: Callable[[Sequence[Candidate]], bool]
) -> tuple[Candidate, ...]:
    """Return a set with everything added that still goes in."""
    chosen = start
    for candidate in order:
        if candidate not in chosen and not candidate.nodes & _covered(chosen) and fits((*chosen, candidate)):
            chosen = (*chosen, candidate)
    return chosen


def _better(trial: tuple[Candidate, ...], chosen: tuple[Candidate, ...], must: frozenset[str]) -> bool:
    met, met_now = len(must & _covered(trial)), len(must & _covered(chosen))
    return (met, _total(trial)) > (met_now, _total(chosen))


def _covered(chosen: Sequence[Candidate]) -> frozenset[str]:
    return frozenset().union(*(c.nodes for c in chosen))


def _total(chosen: Sequence[Candidate]) -> Gain:
    return tuple(map(sum, zip(*(c.gain for c in chosen), strict=True))) if chosen else ()
