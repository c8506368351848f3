"""The choice of the next visit: a volume, a coordinate, an existing or a new chain, and the updates it may have.

Decisions are functions of the journal's state, of the visits that are under way and of what the steerers were told; so
a round that was not written when its process died is planned again, and comes out the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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

from .advice import CheapLengths, waits_for_scouts
from .steering import AskAhead

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
    start: Start | Literal[""] = ""
    chain: ChainLog | None = None
    asked: Suggestion | None = None
    """What a steerer said, where one was asked."""
    head: str = ""
    """The head whose answer that steerer was given."""
    baseline: float | None = None
    """Where the visit would be without that answer; None for no visit."""
    by_head: bool = False
    """Whether the head decided where the visit is: see `steering`."""


class Volume(NamedTuple):
    """A volume as a visit is decided: its chains that may go on here, and its visits under way."""

    state: CampaignState
    system: System
    here: Sequence[ChainLog]
    pending: Sequence[Assigned]

    def least(self, chains: Iterable[ChainLog]) -> ChainLog | None:
        """Return the idle one of chains that has the fewest updates; None where all are under way."""
        return min(self.idle(chains), key=lambda c: (c.complete, c.id), default=None)

    def idle(self, chains: Iterable[ChainLog]) -> list[ChainLog]:
        """Return those of chains that have no visit under way."""
        busy = {visit.chain for visit in self.pending}
        return [c for c in chains if c.id not in busy]


def _on_two_sides(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    """Return whether all places of one kind are below all of the other; no visit is at infinity."""
    one, other = ([inf if place is None else place for place in places] for places in (ours, theirs))
    return max(one) < min(other) or max(other) < min(one)


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
    lengths: CheapLengths | None = None
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
        ahead: AskAhead | None = None,
        woken: bool = False,
    ) -> Assigned | Nothing:
        """Return the next visit; `pending` ones are under way, or decided and not written yet.

        `ahead` is for visits that are decided one after the other with nothing told in between. With `woken` the
        variance is not compared with its threshold.
        """
        wanted, spent, nothing = self.usual(who), Nothing("trajectories"), Nothing()
        if self.affordable(state, pending, fresh=False, wanted=wanted) is None:
            return spent  # without asking the steerer, which takes longer
        made = state.visited.copy()
        made.update(v.system for v in pending if v.visit >= len(state.visits))
        asked = {system: self._requested(system, state, pending) for system in who.systems}
        need = {system: self._need(system, state, made) for system in who.systems}
        for system in sorted(who.systems, key=lambda d: (asked[d] is None, need[d])):
            volume = self._volume(who, state, system, pending)
            wish = asked[system] or self._wish(who, volume, ahead or AskAhead(), woken=woken)
            if isinstance(wish, Nothing):
                return wish
            if wish is None:
                continue
            chain, points = self._chain_for(wish, volume), 1
            if who.follows is None:
                points = sum(self._points_left(made, each) for each in who.systems)
            updates = self.affordable(state, pending, fresh=chain is None, wanted=wanted, points=points)
            if updates is None and chain is None and (more := self._instead(volume)) is not None:
                wish, chain = more, more.chain
                updates = self.affordable(state, pending, fresh=False, wanted=wanted)
            if updates is not None:
                return self._assigned(who, volume, wish, chain, updates, rounds=rounds, number=number, pending=pending)
            nothing = spent
        return nothing

    def _volume(self, who: Assignee, state: CampaignState, system: System, pending: Sequence[Assigned]) -> Volume:
        here = [
            c
            for c in state.chains.values()
            if c.system == system
            and not c.abandoned
            and self._may_visit(c.coordinate)
            and self.bits.get(c.substrate, who.bits) == who.bits
        ]
        return Volume(state, system, here, [visit for visit in pending if visit.system == system])

    def _assigned(
        self,
        who: Assignee,
        volume: Volume,
        wish: Wish,
        chain: ChainLog | None,
        updates: int,
        *,
        rounds: int,
        number: int,
        pending: Sequence[Assigned],
    ) -> Assigned:
        """Return the visit of a wish; without `chain` it is of a new one."""
        state, asked = volume.state, wish.asked
        reason = wish.reason
        if chain is not None and abs(wish.coordinate - chain.coordinate) > 1e-12:
            reason += f"; asked for {wish.coordinate:.5g}, {chain.id} is near enough"
        coming = [visit for visit in pending if visit.fresh and visit.chain not in state.chains]
        new = len(state.chains) + len(coming)
        named = ("score", "mean", "width", "candidates", "acquisition") if asked is not None else ()
        return Assigned(
            visit=number,
            round=rounds,
            chain=chain_name(new) if chain is None else chain.id,
            stream=new if chain is None else chain.stream,
            system=volume.system,
            coordinate=wish.coordinate if chain is None else chain.coordinate,
            updates=updates,
            fresh=chain is None,
            substrate=who.substrate,
            by=wish.by,
            reason=reason,
            cheap=self._cheap_updates(volume, wish, new, number) if chain is None else 0,
            start=wish.start if chain is None else "",
            head=wish.head,
            baseline=wish.baseline,
            by_head=wish.by_head,
            **{name: getattr(asked, name) for name in named},
        )

    def _requested(self, system: System, state: CampaignState, pending: Sequence[Assigned]) -> Wish | None:
        """Return the next of the points that were asked for by name, where a volume has no chain yet."""
        known: list[ChainLog | Assigned] = [*state.chains.values(), *pending]
        there = [one.coordinate for one in known if one.system == system]
        missing = [coordinate for coordinate in self.spec.steering.points if coordinate not in there]
        if not missing:
            return None
        return Wish(missing[0], "asked for by the user", "user", start=self.spec.theory.start_of(len(there)))

    def _wish(self, who: Assignee, volume: Volume, ahead: AskAhead, *, woken: bool) -> Wish | Nothing | None:
        if who.follows is not None:
            return self._follow(who.follows, volume)
        system = volume.system
        if (wanted := self._wanted(volume)) is not None:
            return wanted
        if self.sleep is not None and not woken and (why := self.sleep(system)) is not None:
            return Nothing("asleep", why, system)
        # A steerer looks elsewhere when a point is taken, under way or removed; it is told nothing outside its range.
        taken = (*(v.coordinate for v in volume.pending), *self.spec.steering.removed)
        covered = [coordinate for coordinate in taken if self.spec.covers(coordinate)]
        asked = ahead.next(system, self.steerers[system], covered, volume.state)
        wish = self._steered(volume, None if asked is None else asked.found)
        if wish is None or asked is None or not asked.head:
            return wish

        def place(found: Suggestion | None) -> float | None:
            if (other := self._steered(volume, found)) is None:
                return None
            chain = self._chain_for(other, volume)
            return other.coordinate if chain is None else chain.coordinate

        without = [place(found) for found in asked.without]
        by_head = _on_two_sides([place(found) for found in asked.alike], without)
        return wish._replace(head=asked.head, baseline=without[0], by_head=by_head)

    def _steered(self, volume: Volume, found: Suggestion | None) -> Wish | None:
        """Return what follows from a steerer's suggestion: where it has none, more for the chain that has least."""
        if found is not None and self._may_visit(found.coordinate):
            # A chain that has crossed over says no more of where it began: every visit of a crossing is a new chain.
            theory = self.spec.theory
            start = theory.start_of(len(volume.here)) if theory.target == "crossing" else ""
            by = found.by or self.steerers[volume.system].name
            return Wish(found.coordinate, found.reason, by, start=start, asked=found)
        why = "the steerer has no wish" if found is None else f"{found.coordinate:.5g} was removed"
        return self._more(volume, why)

    def _more(self, volume: Volume, why: str) -> Wish | None:
        """Return a visit to the idle chain with the fewest updates; None where all are under way."""
        if (least := volume.least(volume.here)) is None:
            return None
        return Wish(least.coordinate, f"{why}: more for the chain that has least", "rule:least", chain=least)

    def _instead(self, volume: Volume) -> Wish | None:
        """Return a visit to a chain that is there, where the budget has no room for the warm-up of a new one.

        There is none for a crossing, whose chains are over once they have crossed.
        """
        if self.spec.theory.target == "crossing":
            return None
        return self._more(volume, "the budget has no room for the warm-up of a new chain")

    def _wanted(self, volume: Volume) -> Wish | None:
        """Return a chain that the evidence lacks, once the first points have been looked at: new, or one to continue.

        A chain that is there but too short to count is continued; one that is on its way is waited for. A steerer that
        does not look at results is left alone: what it is compared with must not be steered.
        """
        state, steering, here = volume.state, self.spec.steering, volume.here
        look = state.last_look(volume.system)
        first = len({c.coordinate for c in here}) < steering.initial
        if look is None or first or not find_steerer(steering.steerer).adaptive:
            return None

        def serves(want: Want, coordinate: float, start: str) -> bool:
            return abs(coordinate - want.coordinate) <= want.reach and want.start in ("", start)

        # The chain of a visit that was decided may not be in the journal yet.
        starts = [
            state.chains[v.chain].start if v.chain in state.chains else v.start or self.spec.theory.start_of(v.stream)
            for v in volume.pending
        ]
        under_way = [(v.coordinate, start) for v, start in zip(volume.pending, starts, strict=True)]
        for want in look.wants:
            if any(serves(want, *one) for one in under_way):
                continue
            reason = f"the evidence lacks {want.item}"
            least = volume.least(c for c in here if serves(want, c.coordinate, c.start))
            if least is not None:
                return Wish(least.coordinate, f"{reason}: more for the one that is there", "evidence", chain=least)
            if len(here) < steering.most and self._may_visit(want.coordinate):
                start: Start = "cold" if want.start == "cold" or (not want.start and len(here) % 2) else "hot"
                return Wish(want.coordinate, reason, "evidence", start=start)
        return None

    def _follow(self, scout: System, volume: Volume) -> Wish | None:
        """Return a flagged coordinate: one that was not visited yet, else the one with the least updates."""
        near, here = self.spec.near, volume.here
        scouts = [c for c in volume.state.chains.values() if c.system == scout]
        flagged = sorted({c.coordinate for c in scouts if c.flagged and self._may_visit(c.coordinate)})
        free = [coordinate for coordinate in flagged if not near(coordinate, [v.coordinate for v in volume.pending])]
        fresh = [coordinate for coordinate in free if not near(coordinate, [c.coordinate for c in here])]
        if fresh:
            return Wish(fresh[0], f"flagged by the scout on {scout}", "follow")
        there = [c for c in here if near(c.coordinate, free)]
        if not there:
            return None
        least = min(there, key=lambda c: (c.complete, c.id))
        return Wish(least.coordinate, f"flagged by the scout on {scout}, more statistics", "follow")

    def _chain_for(self, wish: Wish, volume: Volume) -> ChainLog | None:
        """Return the idle chain that a wish continues; None where it wants a new one."""
        if wish.chain is not None or wish.start:
            return wish.chain
        if not (idle := volume.idle(volume.here)):
            return None
        nearest = min(idle, key=lambda c: (abs(c.coordinate - wish.coordinate), c.id))
        full = len(volume.here) >= self.spec.steering.most
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

    def _cheap_updates(self, volume: Volume, wish: Wish, stream: int, visit: int) -> int:
        """Return with how many cheaper updates a new chain begins, as its theory says."""
        latest, theory = volume.state.latest(volume.system), self.spec.theory
        wanted = theory.cheap_updates(wish.coordinate, volume.system, None if latest is None else latest.result)
        usual = min(self.spec.warmup.cheap, wanted)
        if not usual or self.lengths is None:
            return usual
        place = ChainPlace(volume.system, wish.coordinate, wish.start or theory.start_of(stream))
        return self.lengths.cheap(volume.state, place, usual, visit)
