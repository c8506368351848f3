"""Lanes fed with orders: visits are decided, written before they begin, and handed to producers block by block.

A visit is a decision (a system, a coordinate, so many updates); an order is one block of it. Two orders wait on
every lane, so that no producer stands still while the next visit is decided; where a producer runs many chains at once
these are two volleys of orders, one for each of its visits. In a deterministic campaign there is one order of a visit
at a time and visits are decided in rounds: all of a round are over before the next is planned, so that decisions
depend on what was measured and not on which chain was faster.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.records import Assigned, Decided, Migrated, StoppedBy
from metalforge.campaign.theory import System
from metalforge.core import Advisor, SpecError

from .acceptance import ACCEPTANCE, in_place_of, refusal
from .advice import CheapLengths, PeakPriors
from .book import Book, Estimator
from .orders import Answer, Block, Order, Volley
from .producer_lane import DEPTH, ProducerLane
from .steering import AskAhead, reason_to_sleep, reason_to_wake
from .visits import Nothing, VisitPlan, complete_at

QUEUE = "rule:queue"
"""By which a lane that has room takes over a visit that waits elsewhere before a new one is decided."""
MOST_FAILED = 64
"""Chains that may fail one after another in their first update; then the campaign ends."""


class Planner:
    """Decides visits and feeds lanes. All calls come from one thread, which alone makes visits and chains."""

    def __init__(
        self,
        spec: CampaignSpec,
        book: Book,
        lanes: Sequence[Assignee],
        *,
        stop: Callable[[], StoppedBy | None],
        estimate: Estimator,
        halted: Callable[[], bool] = lambda: False,
        advisor: Advisor | None = None,
        sleeps: bool = False,
        checks: bool = False,
    ) -> None:
        self.spec, self._book = spec, book
        steerer = find_steerer(spec.steering.steerer)
        self._plan = VisitPlan(
            spec=spec,
            steerers={system: steerer.make(spec.scan(system)) for system in spec.theory.systems},
            sleep=partial(reason_to_sleep, book, spec) if sleeps else None,
            bits={who.substrate: who.bits for who in lanes},
            lengths=None if advisor is None else CheapLengths(spec.warmup.cheap, advisor),
        )
        self._priors = PeakPriors(spec, advisor)
        self.lanes = [ProducerLane(who, place, spec.theory.wide.least) for place, who in enumerate(lanes)]
        self._by_name = {lane.who.substrate: lane for lane in self.lanes}
        # With a thousand lanes, to look at each for every block would take longer than to write it.
        self._hungry = set(range(len(self.lanes)))
        """Lanes that may have room for orders: those that were not found full since they were last answered."""
        self._stocked: set[int] = set()
        """Lanes that may have orders that can be sent now."""
        self._stop, self._halted, self._estimate = stop, halted, estimate
        self._checks = checks
        self._held: dict[str, ProducerLane] = {}
        """Which producer has which chain."""
        self._moving: dict[str, list[tuple[int, ProducerLane]]] = {}
        """Chains that another producer was asked to release, with the orders that wait for them."""
        self.stopped_by: StoppedBy | None = None
        self._news = False
        """Whether a visit was completed since the last estimate."""
        self.lost: dict[str, str] = {}
        """A lane whose silicon is gone, and why: what runs here ends, to begin again without it."""

    @property
    def state(self) -> CampaignState:
        """The state of the campaign, as a fold of its journal."""
        return self._book.state

    # -- the two calls of the steering stage ------------------------------------------------------------------------

    def begin(self) -> list[Volley]:
        """Return the first orders: visits that were begun before, then new ones."""
        for chain in self.state.chains.values():
            self._tell(chain)
        for visit in self._open():
            self._give(visit)
        for visit in self._lacking():
            self._give(visit)
        for lane in self.lanes:
            for number in lane.waiting:
                self._order(number, lane)
        self._check_again()
        if self.spec.running.deterministic:
            if not any(lane.waiting for lane in self.lanes):
                self._new_round()
        else:
            self._feed_all()
        return self._send()

    def take(self, answer: Answer) -> list[Volley]:
        """Return the orders that follow from an answer whose blocks have been written."""
        lane = self._by_name[answer.substrate]
        lane.flying -= 1
        self._stocked.add(lane.place)
        if answer.lost and not self.lost:
            self.lost[answer.substrate] = answer.lost
        if self.lost:
            return []  # the campaign begins again without it
        deterministic = self.spec.running.deterministic
        if lane.wide and not deterministic:
            lane.pace(self.spec.theory.wide, answer.seconds)
        for block in answer.blocks:
            self._take(block, lane)
        if not (deterministic or self._halted()):
            if self._news:
                self._news = False
                self._estimate()
            self._feed_all()
        return self._send()

    def _send(self) -> list[Volley]:
        """Return what can be sent now: on a wide lane volleys wait for those before."""
        volleys = []
        for place in sorted(self._stocked):
            lane = self.lanes[place]
            while lane.outbox and not (lane.wide and lane.flying >= DEPTH):
                volleys.append(lane.next_volley(self.state.visits))
        self._stocked.clear()
        return volleys

    def _take(self, block: Block, lane: ProducerLane) -> None:
        """Order what follows from a block."""
        chain = self.state.chains[block.chain]
        if block.released or not (block.held or chain.abandoned):
            if self._halted():
                return
            self._held.pop(block.chain, None)
            if block.released:
                self._released(chain, lane)
            else:
                self._order(block.visit, lane)
            return
        lane.waiting.remove(block.visit)
        self._hungry.add(lane.place)
        if block.fault and not chain.abandoned:
            self._held.pop(block.chain, None)
            given = Decided(what="abandoned", chain=chain.id, step=chain.step, by="validator", reason=block.fault)
            self._book.write(given)
            self._end_if_all_fail(block.fault)
        if not chain.abandoned:
            self._judge(block, lane)
        if block.done:
            self._tell(chain)
            self._news = True
        if over := block.done or chain.abandoned:
            lane.visits.pop(block.visit, None)
        if self._halted():
            return
        if self.spec.running.deterministic:
            self._in_round(lane, block, over=over)
        elif not (over or any(block.visit in other.waiting for other in self.lanes) or self._stops()):
            # Its warm-up was longer than expected: the visit goes on before anything new.
            lane.waiting.append(block.visit)
            self._order(block.visit, lane)

    def _end_if_all_fail(self, fault: str) -> None:
        """Raise where chain after chain fails before it has a row, which no budget would end."""
        tried = [chain for chain in self.state.chains.values() if chain.abandoned or chain.rows]
        if len(tried) >= MOST_FAILED and not any(chain.rows for chain in tried[-MOST_FAILED:]):
            raise SpecError(
                f"the last {MOST_FAILED} chains failed before they had a row, this one because {fault}\n"
                f"hint: `[{self.spec.theory.table()}]` with these values gives no sound update"
            )

    def _judge(self, block: Block, lane: ProducerLane) -> None:
        """Give a chain up whose trajectories are refused, and begin again with finer steps."""
        if not self.spec.theory.tuned or not self.spec.running.rewire:
            return
        if (decided := refusal(self.state.chains[block.chain])) is None:
            return
        self._book.write(decided)
        self._put(lane, Order(visit=block.visit, chain=block.chain, release=True))
        if not self._stops():
            for new in self._lacking():
                self._order(new.visit, self._give(new))

    def _lacking(self) -> list[Assigned]:
        """Write and return visits of new chains in the place of those whose trajectories were refused."""
        state = self.state
        replaced = {visit.instead_of for visit in state.visits}
        made = []
        for visit in {v.chain: v for v in state.visits}.values():  # the last of every chain
            chain = state.chains[visit.chain]
            if chain.id in replaced or not any(d.by == ACCEPTANCE for d in chain.decisions if d.what == "abandoned"):
                continue
            lane = self._lane(visit.substrate, visit.system)
            wanted = self._plan.usual(lane.who)
            updates = self._plan.affordable(state, self._open(), fresh=True, wanted=wanted)
            if updates is None:
                continue
            new = in_place_of(visit, state, updates)
            self._book.write(new)
            made.append(new)
        return made

    def _check_again(self) -> None:
        """Order, without moving them, chains that lack checks and have no visit: checks are made on the way."""
        chains = self.state.chains.values() if self._checks else ()
        for chain in [chain for chain in chains if chain.unchecked and not chain.abandoned]:
            if (visit := chain.visits[-1]) not in self.state.open_visits:
                lane = self._lane(chain.substrate, chain.system)
                lane.waiting.append(visit)
                self._order(visit, lane)

    # -- as fast as it goes -----------------------------------------------------------------------------------------

    def _feed_all(self) -> None:
        self._feed()
        # A visit under way may have a shorter warm-up than was reserved for it: the campaign does not end before it.
        if not self.state.open_visits and self._goes_on():
            self._feed(woken=True)

    def _feed(self, *, woken: bool = False) -> None:
        for place in sorted(self._hungry):
            lane = self.lanes[place]
            while (
                (room := self._depth(lane) < DEPTH) and not self._stops() and (layer := self._layer(lane, woken=woken))
            ):
                lane.waiting.extend(visit.visit for visit in layer)
                for visit in layer:
                    self._order(visit.visit, lane)
            if not room:
                self._hungry.remove(place)

    def _depth(self, lane: ProducerLane) -> float:
        """Return how often over the orders that wait would keep a lane busy."""
        return lane.load(self.state.visits[visit] for visit in lane.waiting)

    def _layer(self, lane: ProducerLane, *, woken: bool) -> list[Assigned]:
        """Return the visits that get an order now: one, or as many as keep a wide lane busy."""
        lane.visits = {n: visit for n, visit in lane.visits.items() if not self._fed(lane, visit)}
        if lane.load(lane.visits.values()) < 1:
            over = len(self.state.visits) - len(self.state.open_visits)
            found = self._taken_over(lane)
            if not found and (woken or lane.asked_after != over):
                self._expect()
                found = self._decide(lane, woken=woken)
                lane.asked_after = -1 if lane.nothing.ends is None else over
            lane.visits.update((visit.visit, visit) for visit in found)
        return list(lane.visits.values()) if lane.wide else list(lane.visits.values())[:1]

    def _fed(self, lane: ProducerLane, visit: Assigned) -> bool:
        """Return whether the orders that wait will complete the visit."""
        chain = self.state.chains[visit.chain]
        remaining = complete_at(visit, self.state) - chain.measured
        return lane.waiting.count(visit.visit) * lane.updates_of(self.spec.running.block) >= remaining

    def _decide(
        self, lane: ProducerLane, planned: Sequence[Assigned] | None = None, *, rounds: int = 0, woken: bool
    ) -> list[Assigned]:
        """Decide visits for a lane, until it is busy or there is nothing to do.

        They are written at once, but those of a round, of which `planned` are there so far.
        """
        made: list[Assigned] = []
        load = lane.load(lane.visits.values())
        smallest = min(lane.who.share(system) for system in lane.who.systems)
        # As many points as the lane has room for are asked for together, so that they are spread.
        ahead = AskAhead(max(ceil((1 - load) / smallest), 1))
        lane.nothing = Nothing()
        while lane.load([*lane.visits.values(), *made]) < 1:
            state = self.state
            pending = self._open() if planned is None else [*planned, *made]
            number = len(state.visits) + (0 if planned is None else len(pending))
            found = self._plan.next(lane.who, state, pending, rounds=rounds, number=number, ahead=ahead, woken=woken)
            if isinstance(found, Nothing):
                lane.nothing = found
                break
            if planned is None:
                self._book.write(*self._plan.records(found))
            made.append(found)
        return made

    def _taken_over(self, lane: ProducerLane) -> list[Assigned]:
        """Return a visit that waits on another lane behind what keeps that busy, where this one may run it."""
        if not self.spec.running.rewire:
            return []
        busy = [other for other in self.lanes if len(other.visits) > 1 and other.load(other.visits.values()) > 1]
        for other in sorted(busy, key=self._depth, reverse=True):
            left = [visit for visit in other.visits.values() if not self._fed(other, visit)]
            if other is lane or other.who.bits != lane.who.bits or lane.who.follows is not None:
                continue
            for visit in reversed(left):
                rest = [one for one in left if one is not visit]
                behind = other.load(rest) >= 1 and other.waiting and other.waiting[0] != visit.visit
                if behind and visit.system in lane.who.systems and visit.chain not in self._moving:
                    del other.visits[visit.visit]
                    source, target = other.who.substrate, lane.who.substrate
                    decided = Decided(
                        what="rewired",
                        chain=visit.chain,
                        step=self.state.chains[visit.chain].step,
                        by=QUEUE,
                        reason=f"{source} has {len(rest)} more visits under way, {target} has none",
                        value=float(len(rest) + 1),
                        done=f"visit {visit.visit} goes on on {target}",
                    )
                    self._book.write(decided)
                    return [visit]
        return []

    # -- round by round ---------------------------------------------------------------------------------------------

    def _in_round(self, lane: ProducerLane, block: Block, *, over: bool) -> None:
        if not over:
            lane.waiting.append(block.visit)
            self._order(block.visit, lane)
        elif not any(other.waiting for other in self.lanes):
            self._new_round()

    def _new_round(self) -> None:
        self._estimate()
        if self._stops():
            return
        self._expect()
        number = max((visit.round for visit in self.state.visits), default=-1) + 1
        planned = self._round(number)
        # While others have visits there is no end: who resumes in such a round would not know of it.
        if not planned and self._goes_on():
            planned = self._round(number, woken=True)
        # In one line of the journal: after a kill the round is there, or is planned again and comes out the same.
        self._book.write(*(record for visit in planned for record in self._plan.records(visit)))
        for visit in planned:
            self._order(visit.visit, self._give(visit))

    def _round(self, number: int, *, woken: bool = False) -> list[Assigned]:
        """Return the visits of a round, as decided from what came before it."""
        planned: list[Assigned] = []
        for lane in self.lanes:
            planned += self._decide(lane, planned, rounds=number, woken=woken)
        return planned

    def _expect(self) -> None:
        """Write where peaks are expected, before visits are placed by it."""
        leads = (lane.who for lane in self.lanes if lane.who.follows is None)
        for system in dict.fromkeys(system for who in leads for system in who.systems):
            if (news := self._priors.news(self.state, system)) is not None:
                self._book.write(news)

    # -- small parts ------------------------------------------------------------------------------------------------

    def _open(self) -> list[Assigned]:
        state = self.state
        return [state.visits[number] for number in sorted(state.open_visits)]

    def _give(self, visit: Assigned) -> ProducerLane:
        """Put a visit on its lane; where its substrate is gone, on one that may run its volume."""
        lane = self._lane(visit.substrate, visit.system)
        lane.visits[visit.visit] = visit
        lane.waiting.append(visit.visit)
        return lane

    def _lane(self, substrate: str, system: System) -> ProducerLane:
        if substrate in self._by_name:
            return self._by_name[substrate]
        able = [lane for lane in self.lanes if system in lane.who.systems] or self.lanes
        return min(able, key=lambda lane: len(lane.waiting) * lane.who.share(system))

    def _put(self, lane: ProducerLane, order: Order) -> None:
        lane.outbox.append(order)
        self._stocked.add(lane.place)

    def _order(self, visit: int, lane: ProducerLane) -> None:
        """Order more of a visit, with the chain for a producer that does not hold it.

        Where another one does, it is asked to release it, and the order waits for that.
        """
        assigned = self.state.visits[visit]
        chain = assigned.chain
        holder = self._held.get(chain)
        if chain in self._moving:
            self._moving[chain].append((visit, lane))
        elif holder is not None and holder is not lane:
            self._moving[chain] = [(visit, lane)]
            self._put(holder, Order(visit=visit, chain=chain, release=True))
        else:
            known = None
            if holder is None:
                with self._book.reading() as state:
                    known = state.chains[chain].snapshot()
                self._held[chain] = lane
            updates = lane.updates_of(self.spec.running.block)
            until = complete_at(assigned, self.state)
            self._put(lane, Order(visit=visit, chain=chain, updates=updates, until=until, known=known))

    def _released(self, chain: ChainLog, source: ProducerLane) -> None:
        """Send the orders that waited for a chain which another producer held."""
        moved = self._moving.pop(chain.id, [])
        if chain.abandoned:
            for visit, to in moved:
                to.visits.pop(visit, None)
                to.waiting.remove(visit)
                self._hungry.add(to.place)
        elif moved:
            target = moved[0][1].who.substrate
            self._book.write(Migrated(chain=chain.id, step=chain.step, source=source.who.substrate, target=target))
            for visit, to in moved:
                self._order(visit, to)

    def _tell(self, chain: ChainLog) -> None:
        """Tell the volume's steerer what a chain has measured in its complete visits."""
        known = chain.system in self._plan.steerers and self.spec.covers(chain.coordinate)
        if not chain.complete or chain.abandoned or not known:
            return
        with self._book.reading():
            observed = self.spec.theory.analysis.observer(self.spec, chain)
        if (seen := observed()) is not None:
            self._plan.steerers[chain.system].tell([seen])

    def _goes_on(self) -> bool:
        """Return whether producers are woken; otherwise note what the campaign ends by, if it ends.

        It is for the moment when no visit is under way and none was found. While producers sleep, an estimate is made
        from everything that was measured.
        """
        ends = [lane.nothing for lane in self.lanes if lane.nothing.ends is not None]
        if not ends or self._stops():
            return False
        asleep = next((found for found in ends if found.ends == "asleep"), None)
        if asleep is None:
            self.stopped_by = ends[0].ends
            return False
        self._book.write(Decided(what="sleep", by="variance", reason=asleep.reason, system=asleep.system))
        self._estimate.now()
        if self._stops():
            return False
        if (why := reason_to_wake(self.state, asleep.system)) is None:
            self.stopped_by = "asleep"
            return False
        self._book.write(Decided(what="wake", by="estimate", reason=why, system=asleep.system))
        return True

    def _stops(self) -> bool:
        if self.stopped_by is None:
            self.stopped_by = self._stop()
        return self.stopped_by is not None
