"""The placer: which pieces of work go where, given what that gains and what fits.

A *candidate* is a piece of work on a device: it covers some names and has a gain, what the objective saves that way.
`choose` takes the set with the largest gain whose members do not overlap, fit together, and cover what must be. Gains
add up, because a call's price holds its own transfers and the host carries every value between two calls; so this is a
weighted packing. It is searched exactly while candidates are few, and by greedy choice with exchanges beyond.

`route` places one workload on one of the substrates of a machine: capability filter first, then the workload's
preference, then the policy's price. The decision carries its reason and every alternative that was turned down, with
why and at what cost, so that a reader can disagree with it. `hybrid.routing` places the ops of a model.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from metalforge.core import (
    Cost,
    Kind,
    PlacementError,
    Substrate,
    SubstrateInfo,
    Workload,
    missing_capabilities,
    require_known,
)

from .prices import rank

EXACT_UP_TO = 12
"""Candidates; 2^12 sets take some milliseconds."""
Gain: TypeAlias = tuple[float, ...]
"""Compared entry by entry, the first decides."""


class Choosable(Protocol):
    """A piece of work on a device."""

    @property
    def nodes(self) -> frozenset[str]:
        """What it covers, by name."""

    @property
    def gain(self) -> Gain:
        """What is saved by it."""


Piece = TypeVar("Piece", bound=Choosable)


class Policy(StrEnum):
    """How to choose among substrates that can do the work."""

    ORIGIN = "origin"
    """The published design's rule: the preferred kind, else the first GPU, then NPU, then CPU; no cost is looked at."""
    LATENCY = "latency"
    """The preferred kind, else any; among those the shortest modelled or measured call."""
    ENERGY = "energy"
    """The preferred kind, else any; among those the fewest joules per call."""


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A substrate that was not chosen, and why."""

    name: str
    kind: Kind
    reason: str
    cost: Cost | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload goes, and the case for it."""

    workload: str
    policy: Policy
    substrate: SubstrateInfo
    reason: str
    cost: Cost
    rejected: tuple[Rejection, ...] = ()


_ORIGIN_ORDER = (Kind.GPU, Kind.NPU, Kind.CPU)


def route(
    workload: Workload,
    substrates: Sequence[Substrate],
    policy: Policy | str = Policy.LATENCY,
    *,
    ignore_preference: bool = False,
) -> Decision:
    """Place one call of `workload` on one of `substrates`; the first in the list wins ties.

    `ignore_preference` lets the policy choose among all kinds, whatever the workload prefers.

    Raises
    ------
    PlacementError
        No substrate has the capabilities; the message says what each one lacks.
    """
    require_known("policy", policy, list(Policy))
    policy = Policy(policy)
    capable: list[Substrate] = []
    rejected: list[Rejection] = []
    for candidate in substrates:
        lacks = missing_capabilities(candidate.info.capabilities, workload.needs)
        if lacks:
            reason = "cannot: lacks " + ", ".join(c.label for c in lacks)
            rejected.append(Rejection(name=candidate.info.name, kind=candidate.info.kind, reason=reason))
        else:
            capable.append(candidate)
    if not capable:
        lines = "\n".join(f"  {r.name}: {r.reason}" for r in rejected) or "  there are no substrates"
        needs = ", ".join(c.label for c in workload.needs)
        raise PlacementError(
            f"no substrate can run `{workload.name}` (needs {needs}):\n{lines}\n"
            "hint: `metalforge devices` shows what this machine misses and the command that adds it"
        )

    # The real thing comes before its emulation.
    real_kinds = {s.info.kind for s in capable if not s.info.properties.get("emulated")}
    stand_ins = [s for s in capable if s.info.properties.get("emulated") and s.info.kind in real_kinds]
    preferred = [s for s in capable if s.info.kind is workload.prefer and not ignore_preference]
    pool = [s for s in preferred or capable if s not in stand_ins]
    costs = {id(s): s.cost(workload) for s in capable}
    how, gains = _ranked(pool, costs, policy)
    chosen = pool[gains.index(max(gains))]
    if len(capable) == 1:
        reason = "the only substrate that can"
    elif preferred:
        reason = f"of the preferred kind ({workload.prefer}), " + (how if len(pool) > 1 else "the only one")
    else:
        reason = how

    for other in capable:
        if other is chosen:
            continue
        if other in stand_ins:
            why = f"can, but it is emulated and a real {other.info.kind} is here"
        elif preferred and other not in preferred:
            why = f"can, but the workload prefers {workload.prefer}"
        elif policy is Policy.ORIGIN:
            why = "can, but comes later in the order"
        else:
            why = f"can, but {_price(costs[id(other)], policy)} against {_price(costs[id(chosen)], policy)}"
        rejected.append(Rejection(name=other.info.name, kind=other.info.kind, reason=why, cost=costs[id(other)]))
    return Decision(
        workload=workload.name,
        policy=policy,
        substrate=chosen.info,
        reason=reason,
        cost=costs[id(chosen)],
        rejected=tuple(rejected),
    )


def _ranked(pool: Sequence[Substrate], costs: dict[int, Cost], policy: Policy) -> tuple[str, list[Gain]]:
    """Return how the choice is made, in words, and what each substrate gains by it.

    One without a figure comes after every one that has it. A measured and a modelled figure are not compared: then the
    order of the list decides, and the reason says so.
    """
    if policy is Policy.ORIGIN:
        return "first of the order GPU, NPU, CPU", [(-float(_ORIGIN_ORDER.index(s.info.kind)),) for s in pool]
    figures = [costs[id(s)].figure(policy) for s in pool]
    priced = [figure for figure in figures if figure is not None]
    if not priced:
        return f"no {policy} figure for any candidate, so the first listed", [(0.0,)] * len(pool)
    if len({type(figure) for figure in priced}) > 1:
        gains: list[Gain] = [(-float(figure is None), 0.0) for figure in figures]
        return f"{policy} is measured for some and modelled for others, so the first listed", gains
    unpriced = len(pool) - len(priced)
    note = f"; {unpriced} without a figure come last" if unpriced else ""
    gains = [(-missing, -value) for missing, value in (rank(costs[id(s)], policy) for s in pool)]
    return f"lowest {policy}: {min(priced, key=lambda figure: figure.value)}{note}", gains


def _price(cost: Cost, policy: Policy) -> str:
    quantity = cost.figure(policy)
    return f"{policy} unknown ({cost.unknown})" if quantity is None else f"{policy} {quantity}"


def choose(
    candidates: Sequence[Piece],
    fits: Callable[[Sequence[Piece]], bool],
    must: Collection[str] = (),
    *,
    exact_up_to: int = EXACT_UP_TO,
) -> tuple[Piece, ...] | None:
    """Return the candidates of the largest total gain that do not overlap and fit; None where `must` cannot be met.

    What gains nothing is left out unless it covers something that must be.
    """
    wanted = frozenset(must)
    useful = [c for c in candidates if c.nodes & wanted or c.gain > tuple(0.0 for _ in c.gain)]
    if len(useful) <= exact_up_to:
        return _exact(useful, fits, wanted)
    return _greedy(useful, fits, wanted)


def _exact(
    candidates: Sequence[Piece], fits: Callable[[Sequence[Piece]], bool], must: frozenset[str]
) -> tuple[Piece, ...] | None:
    """Return the best of all sets, by walking through them with and without each candidate."""
    best: tuple[Piece, ...] | None = None
    best_gain: Gain = ()

    def walk(index: int, taken: tuple[Piece, ...], covered: frozenset[str]) -> None:
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
    candidates: Sequence[Piece], fits: Callable[[Sequence[Piece]], bool], must: frozenset[str]
) -> tuple[Piece, ...] | None:
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
    start: tuple[Piece, ...], order: Sequence[Piece], fits: Callable[[Sequence[Piece]], bool]
) -> tuple[Piece, ...]:
    """Return a set with everything added that still goes in."""
    chosen = start
    for candidate in order:
        if candidate not in chosen and not candidate.nodes & _covered(chosen) and fits((*chosen, candidate)):
            chosen = (*chosen, candidate)
    return chosen


def _better(trial: tuple[Piece, ...], chosen: tuple[Piece, ...], must: frozenset[str]) -> bool:
    met, met_now = len(must & _covered(trial)), len(must & _covered(chosen))
    return (met, _total(trial)) > (met_now, _total(chosen))


def _covered(chosen: Sequence[Piece]) -> frozenset[str]:
    return frozenset().union(*(c.nodes for c in chosen))


def _total(chosen: Sequence[Piece]) -> Gain:
    return tuple(map(sum, zip(*(c.gain for c in chosen), strict=True))) if chosen else ()
