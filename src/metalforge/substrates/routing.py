"""Placing a workload: capability filter first, then the workload's preference, then the policy.

The decision carries its reason and every alternative that was turned down, with why and at what cost, so that a
reader can disagree with it.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from metalforge.core.capabilities import missing_capabilities
from metalforge.core.errors import PlacementError, UnknownNameError
from metalforge.core.quantities import Quantity
from metalforge.core.substrate import Cost, Kind, Substrate, SubstrateInfo
from metalforge.core.workload import Workload

__all__ = ["Decision", "Policy", "Rejection", "route"]


class Policy(StrEnum):
    """How to choose among substrates that can do the work."""

    ORIGIN = "origin"
    """The origin's rule: the preferred kind, else the first GPU, then NPU, then CPU; no cost is looked at."""
    LATENCY = "latency"
    """The preferred kind, else any; among those the shortest modelled or measured call."""
    ENERGY = "energy"
    """The preferred kind, else any; among those the fewest joules a call."""


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
    if policy not in list(Policy):
        raise UnknownNameError("policy", policy, list(Policy))
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
    if policy is Policy.ORIGIN:
        chosen = min(pool, key=lambda s: _ORIGIN_ORDER.index(s.info.kind))
        how = "first of the order GPU, NPU, CPU"
    else:
        chosen, how = _cheapest(pool, costs, policy)
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


def _quantity(cost: Cost, policy: Policy) -> Quantity | None:
    return cost.latency if policy is Policy.LATENCY else cost.energy


def _price(cost: Cost, policy: Policy) -> str:
    quantity = _quantity(cost, policy)
    return f"{policy} unknown ({cost.unknown})" if quantity is None else f"{policy} {quantity}"


def _cheapest(pool: Sequence[Substrate], costs: dict[int, Cost], policy: Policy) -> tuple[Substrate, str]:
    """Return the cheapest substrate; one without a figure comes after every one that has it.

    A measured and a modelled figure are not compared: then the list order decides, and the reason says so.
    """
    priced = [(q, s) for s in pool if (q := _quantity(costs[id(s)], policy)) is not None]
    if not priced:
        return pool[0], f"no {policy} figure for any candidate, so the first listed"
    if len({type(q) for q, _ in priced}) > 1:
        return priced[0][1], f"{policy} is measured for some and modelled for others, so the first listed"
    best, chosen = min(priced, key=lambda pair: pair[0].value)
    unpriced = len(pool) - len(priced)
    note = f"; {unpriced} without a figure come last" if unpriced else ""
    return chosen, f"lowest {policy}: {best}{note}"
