"""What one visit should be: a volume, a coordinate, a chain that is there or a new one, and the updates it may have.

Decisions are functions of the journal's state, of the visits that are under way and of what the steerers were told; so
a round that was half written when its process died can be planned again, and comes out the same.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf, prod
from typing import Literal, NamedTuple

from metalforge.campaign.analysis.evidence import Want
from metalforge.campaign.chain_log import ChainLog, chain_name
from metalforge.campaign.findings import gains
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.records import Assigned, Record, StoppedBy
from metalforge.campaign.theory import Start, System
from metalforge.core import ChainPlace, SpecError, Steerer, Suggestion

from .expecting import waits_for_scouts
from .lengths import Lengths
from .suggestions import AskAhead

Sleep = Callable[[System], str | None]
"""Whether a volume is known well enough to let the producers sleep, and why."""


class Nothing(NamedTuple):
    """There is no visit now. `ends` says what the campaign ends by, unless a visit under way changes that."""

    ends: StoppedBy | None = None
    reason: str = ""
    system: System = ()
    """The volume whose producers sleep, where they do."""


class Wish(NamedTuple):
    """Where somebody wants to measure, why and who; `start` asks for a new chain, `chain` for one that is there."""

    coordinate: float
    reason: str
    by: str
    score: float = 0.0
    start: Start | Literal[""] = ""
    chain: ChainLog | None = None
    asked: Suggestion | None = None
    """What a steerer said, where one was asked."""
    head: str = ""
    """The head whose answer that steerer was given."""
    baseline: float | None = None
    """Where the visit would be without that answer; None for no visit."""
    by_head: bool = False
    """Whether the head decided where the visit is: see `suggestions`."""


def _on_two_sides(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    """Return whether all places of one kind are below all of the other; no visit is at infinity."""
    one, other = ([inf if place is None else place for place in places] for places in (ours, theirs))
    return max(one) < min(other) or max(other) < min(one)


def _serves(coordinate: float, start: str, want: Want) -> bool:
    """Return whether a chain there from this start is one that is wanted."""
    return abs(coordinate - want.coordinate) <= want.reach and want.start in ("", start)


def _start(visit: Assigned, state: CampaignState) -> Start:
    """Return the start of a visit's chain, which may not be in the journal yet."""
    chain = state.chains.get(visit.chain)
    return visit.start or state.spec.theory.start_of(visit.stream) if chain is None else chain.start


def complete_at(visit: Assigned, state: CampaignState) -> int:
    """Return at which measured update a visit is complete; one that is over moves its chain no further."""
    chain, began = state.chains[visit.chain], state.open_visits.get(visit.visit)
    return chain.measured if began is None else visit.updates + (max(began - chain.warmup, 0) if began else 0)


def longest_warmup(spec: CampaignSpec) -> int:
    """Return the updates that a new chain makes at most before it measures."""
    return spec.warmup.longest + spec.warmup.cheap


def check_budget(spec: CampaignSpec) -> None:
    """Raise where the budget has no room for the first visit of the campaign, and say how many updates that takes."""
    budget, warmup, visit = spec.budget.trajectories, longest_warmup(spec), spec.steering.shortest
    least = warmup + visit
    if budget is not None and budget < least:
        raise SpecError(
            f"`budget.trajectories` must be at least {least} for this spec: a new chain may need {warmup} updates of "
            f"warm-up, and the shortest visit measures {visit}. Got {budget}\n"
            "hint: raise the budget, or lower `warmup.longest` or `steering.visit`"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VisitPlan:
    """Decides visits of one campaign."""

    spec: CampaignSpec
    steerers: Mapping[System, Steerer]
    sleep: Sleep | None = None
    bits: Mapping[str, str] = field(default_factory=dict)
    """Of every lane: a chain goes on only where they are what they were."""
    lengths: Lengths | None = None
    """Who says with how many cheaper updates chains begin; None: the theory."""

    def records(self, visit: Assigned) -> list[Record]:
        """Return what is written when a visit is: it, and why its chain begins as it does."""
        return [visit, *(self.lengths.notes(visit) if self.lengths is not None else ())]

    def next(
        self,
        who: Assignee,
        state: CampaignState,
        pending: Sequence[Assigned],
        *,
        rounds: int,
        number: int,
        skip: AbstractSet[int] = frozenset(),
        ahead: AskAhead | None = None,
        woken: bool = False,
    ) -> Assigned | Nothing:
        """Return the next visit; `pending` ones are under way, those of `skip` are taken as not there.

        `ahead` is for visits that are decided one after the other with nothing told in between. With `woken` the
        variance is not compared with its threshold.
        """
        spent = Nothing("trajectories")
        if self.affordable(state, pending, fresh=False, wanted=self.usual(who)) is None:
            return spent  # without asking the steerer, which takes longer
        ahead, nothing = ahead or AskAhead(), Nothing()
        chains = [c for c in state.chains.values() if not (skip and c.visits and c.visits[0] in skip)]
        made = state.visited - Counter(state.visits[number].system for number in skip)
        made.update(v.system for v in pending if v.visit >= len(state.visits) or v.visit in skip)
        asked = {system: self._requested(system, chains, pending) for system in who.systems}
        need = {system: self._need(system, state, made) for system in who.systems}
        for system in sorted(who.systems, key=lambda d: (asked[d] is None, need[d])):
            there = [c for c in chains if c.system == system and not c.abandoned and self._may_visit(c.coordinate)]
            here = [c for c in there if self.bits.get(c.substrate, who.bits) == who.bits]
            waiting = [visit for visit in pending if visit.system == system]
            wish = asked[system] or self._wish(who, state, system, here, waiting, ahead, woken=woken)
            if isinstance(wish, Nothing):
                return wish
            if wish is None:
                continue
            chain = self._chain_for(wish, here, pending)
            wanted = self.usual(who)
            points = 1
            if who.follows is None:
                points = sum(self._points_left(made, volume) for volume in who.systems)
            updates = self.affordable(state, pending, fresh=chain is None, wanted=wanted, points=points)
            if updates is None and chain is None and (more := self._instead(here, pending)) is not None:
                wish, chain = more, more.chain
                updates = self.affordable(state, pending, fresh=False, wanted=wanted)
            if updates is None:
                nothing = spent
                continue
            born = {c.id for c in chains}
            coming = [visit for visit in pending if visit.fresh and visit.chain not in born]
            new = len(chains) + len(coming)
            return self._assigned(who, state, wish, system, chain, updates, rounds=rounds, number=number, new=new)
        return nothing

    def _assigned(
        self,
        who: Assignee,
        state: CampaignState,
        wish: Wish,
        system: System,
        chain: ChainLog | None,
        updates: int,
        *,
        rounds: int,
        number: int,
        new: int,
    ) -> Assigned:
        """Return the visit of a wish; without `chain` it is of a new one, of this number."""
        reason = wish.reason
        if chain is not None and abs(wish.coordinate - chain.coordinate) > 1e-12:
            reason += f"; asked for {wish.coordinate:.5g}, {chain.id} is near enough"
        named = ("mean", "width", "candidates", "acquisition") if wish.asked is not None else ()
        return Assigned(
            visit=number,
            round=rounds,
            chain=chain_name(new) if chain is None else chain.id,
            stream=new if chain is None else chain.stream,
            system=system,
            coordinate=wish.coordinate if chain is None else chain.coordinate,
            updates=updates,
            fresh=chain is None,
            substrate=who.substrate,
            by=wish.by,
            reason=reason,
            score=wish.score,
            cheap=self._cheap_updates(state, system, wish, new, number) if chain is None else 0,
            start=wish.start if chain is None else "",
            head=wish.head,
            baseline=wish.baseline,
            by_head=wish.by_head,
            **{name: getattr(wish.asked, name) for name in named},
        )

    def _requested(self, system: System, chains: Sequence[ChainLog], pending: Sequence[Assigned]) -> Wish | None:
        """Return the next of the points that were asked for by name, where a volume has no chain yet."""
        if not self.spec.steering.points:
            return None
        there = [c.coordinate for c in chains if c.system == system] + [
            visit.coordinate for visit in pending if visit.system == system
        ]
        missing = [coordinate for coordinate in self.spec.steering.points if coordinate not in there]
        if not missing:
            return None
        return Wish(missing[0], "asked for by the user", "user", start=self.spec.theory.start_of(len(there)))

    def _wish(
        self,
        who: Assignee,
        state: CampaignState,
        system: System,
        here: Sequence[ChainLog],
        pending: Sequence[Assigned],
        ahead: AskAhead,
        *,
        woken: bool,
    ) -> Wish | Nothing | None:
        if who.follows is not None:
            return self._follow(who.follows, state, here, pending)
        if (wanted := self._wanted(state, system, here, pending)) is not None:
            return wanted
        if self.sleep is not None and not woken and (why := self.sleep(system)) is not None:
            return Nothing("asleep", why, system)
        # A steerer looks elsewhere when a point is taken, under way or removed; it is told nothing outside its range.
        taken = [
            coordinate
            for coordinate in (*(v.coordinate for v in pending), *self.spec.steering.removed)
            if self.spec.covers(coordinate)
        ]
        asked = ahead.next(system, self.steerers[system], taken, state)
        wish = self._steered(system, None if asked is None else asked.found, here, pending)
        if wish is None or asked is None or not asked.head:
            return wish

        def place(found: Suggestion | None) -> float | None:
            other = self._steered(system, found, here, pending)
            chain = None if other is None else self._chain_for(other, here, pending)
            return chain.coordinate if chain is not None else None if other is None else other.coordinate

        baseline = place(asked.baseline)
        by_head = _on_two_sides(
            [place(found) for found in (asked.found, *asked.alike)],
            [baseline, *(place(found) for found in asked.baselines)],
        )
        return wish._replace(head=asked.head, baseline=baseline, by_head=by_head)

    def _steered(
        self, system: System, found: Suggestion | None, here: Sequence[ChainLog], pending: Sequence[Assigned]
    ) -> Wish | None:
        """Return what follows from a steerer's suggestion: where it has none, more for the chain that has least."""
        if found is not None and self._may_visit(found.coordinate):
            # A chain that has crossed over says no more of where it began: every visit of a crossing is a new chain.
            theory = self.spec.theory
            start = theory.start_of(len(here)) if theory.target == "crossing" else ""
            by = found.by or self.steerers[system].name
            return Wish(found.coordinate, found.reason, by, score=found.score, start=start, asked=found)
        why = "the steerer has no wish" if found is None else f"{found.coordinate:.5g} was removed"
        return self._more(here, pending, why)

    def _more(self, here: Sequence[ChainLog], pending: Sequence[Assigned], why: str) -> Wish | None:
        """Return a visit to the idle chain with the fewest updates; None where all are under way."""
        busy = {visit.chain for visit in pending}
        least = min((c for c in here if c.id not in busy), key=lambda c: (c.complete, c.id), default=None)
        if least is None:
            return None
        return Wish(least.coordinate, f"{why}: more for the chain that has least", "rule:least", chain=least)

    def _instead(self, here: Sequence[ChainLog], pending: Sequence[Assigned]) -> Wish | None:
        """Return a visit to a chain that is there, where the budget has no room for the warm-up of a new one.

        There is none for a crossing, whose chains are over once they have crossed.
        """
        if self.spec.theory.target == "crossing":
            return None
        return self._more(here, pending, "the budget has no room for the warm-up of a new chain")

    def _wanted(
        self, state: CampaignState, system: System, here: Sequence[ChainLog], pending: Sequence[Assigned]
    ) -> Wish | None:
        """Return a chain that the evidence lacks, once the first points have been looked at: new, or one to continue.

        A chain that is there but too short to count is continued; one that is on its way is waited for. A steerer that
        does not look at results is left alone: what it is compared with must not be steered.
        """
        if not find_steerer(self.spec.steering.steerer).adaptive:
            return None
        look = state.last_look(system)
        if look is None or len({c.coordinate for c in here}) < self.spec.steering.initial:
            return None
        busy = {visit.chain for visit in pending}
        under_way = [(visit.coordinate, _start(visit, state)) for visit in pending]
        for want in look.wants:
            if any(_serves(coordinate, start, want) for coordinate, start in under_way):
                continue
            reason = f"the evidence lacks {want.item}"
            if there := [c for c in here if _serves(c.coordinate, c.start, want) and c.id not in busy]:
                least = min(there, key=lambda c: (c.complete, c.id))
                return Wish(least.coordinate, f"{reason}: more for the one that is there", "evidence", chain=least)
            if len(here) < self.spec.steering.most and self._may_visit(want.coordinate):
                start: Start = "cold" if want.start == "cold" or (not want.start and len(here) % 2) else "hot"
                return Wish(want.coordinate, reason, "evidence", start=start)
        return None

    def _follow(
        self, scout: System, state: CampaignState, here: Sequence[ChainLog], pending: Sequence[Assigned]
    ) -> Wish | None:
        """Return a flagged coordinate: one that was not visited yet, else the one with the least updates."""
        scouts = [c for c in state.chains.values() if c.system == scout]
        flagged = sorted({c.coordinate for c in scouts if c.flagged and self._may_visit(c.coordinate)})
        under_way = [visit.coordinate for visit in pending]
        free = [coordinate for coordinate in flagged if not self.spec.near(coordinate, under_way)]
        fresh = [coordinate for coordinate in free if not self.spec.near(coordinate, [c.coordinate for c in here])]
        if fresh:
            return Wish(fresh[0], f"flagged by the scout on {scout}", "follow")
        chains = [c for c in here if self.spec.near(c.coordinate, free)]
        if not chains:
            return None
        least = min(chains, key=lambda c: (c.complete, c.id))
        return Wish(least.coordinate, f"flagged by the scout on {scout}, more statistics", "follow")

    def _chain_for(self, wish: Wish, here: Sequence[ChainLog], pending: Sequence[Assigned]) -> ChainLog | None:
        """Return the idle chain that a wish continues; None where it wants a new one."""
        if wish.chain is not None or wish.start:
            return wish.chain
        busy = {visit.chain for visit in pending}
        idle = [c for c in here if c.id not in busy]
        if not idle:
            return None
        nearest = min(idle, key=lambda c: (abs(c.coordinate - wish.coordinate), c.id))
        full = len(here) >= self.spec.steering.most
        return nearest if full or self.spec.near(wish.coordinate, [nearest.coordinate]) else None

    def _may_visit(self, coordinate: float) -> bool:
        return self.spec.covers(coordinate) and not self.spec.near(coordinate, self.spec.steering.removed)

    def _need(self, system: System, state: CampaignState, visited: Counter[System]) -> tuple[bool, bool, float, int]:
        """Return what orders systems, the one in greatest need first: few points, then the largest gain for its work.

        Work is visits times the work of an update; what a system gains is for the error that the target is for
        (`findings.gains`). The first points of smaller systems, which say where to look in larger ones, come first.
        """
        visits, late = visited[system], waits_for_scouts(self.spec, system, visited)
        gain = gains(state)[system] / (max(visits, 1) * prod(system))
        return late, visits >= self.spec.steering.initial, -gain, visits

    def usual(self, who: Assignee) -> int:
        """Return the updates of a visit that nothing speaks against."""
        return self.spec.steering.visit * (
            self.spec.theory.wide.visit if who.sites and not self.spec.running.deterministic else 1
        )

    def affordable(
        self,
        state: CampaignState,
        pending: Sequence[Assigned],
        *,
        fresh: bool,
        wanted: int,
        points: int = 1,
    ) -> int | None:
        """Return the updates of the next visit, as many as `wanted` within the budget; None where it has no room.

        A new chain leaves an equal part of the budget to each of the other first `points` that are still to come.
        """
        budget = self.spec.budget.trajectories
        if budget is None:
            return wanted
        warmup = longest_warmup(self.spec)
        used = sum(chain.complete for chain in state.chains.values())
        promised = sum(visit.updates + (warmup if visit.fresh else 0) for visit in pending)
        left, before = budget - used - promised, warmup if fresh else 0
        least = self.spec.steering.shortest
        if left - before < least:
            return None
        share = left // points - before if fresh and points > 1 else left - before
        return min(wanted, max(share, least))

    def _points_left(self, made: Counter[System], system: System) -> int:
        """Return how many of a volume's first points have no visit yet."""
        spec = self.spec
        first = find_steerer(spec.steering.steerer).first_points(spec.scan(system)) + len(spec.steering.points)
        return max(first - made[system], 0)

    def _cheap_updates(self, state: CampaignState, system: System, wish: Wish, stream: int, visit: int) -> int:
        """Return with how many cheaper updates a new chain begins, as its theory says."""
        latest, theory = state.latest(system), self.spec.theory
        wanted = theory.cheap_updates(wish.coordinate, system, None if latest is None else latest.result)
        usual = min(self.spec.warmup.cheap, wanted)
        if not usual or self.lengths is None:
            return usual
        place = ChainPlace(system, wish.coordinate, wish.start or theory.start_of(stream))
        return self.lengths.cheap(state, place, usual, visit)
