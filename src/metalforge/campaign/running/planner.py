"""Lanes fed with orders: visits are decided, written before they begin, and handed to producers block by block.

A visit is a decision (a system, a coordinate, so many updates); an order is one block of it. Two orders wait on
every lane, so that no producer stands still while the next visit is decided; where a producer runs many chains at once
these are two volleys of orders, one for each of its visits. In a deterministic campaign there is one order of a visit
at a time and visits are decided in rounds: all of a round are over before the next is planned, so that decisions
depend on what was measured and not on which chain was faster.
"""

from collections.abc import Callable, Sequence
from math import ceil

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.store.records import Assigned, Decided, Migrated, StoppedBy
from metalforge.campaign.theory import System
from metalforge.core import Advisor, InternalError, SpecError

from .book import Book
from .expecting import PeakPriors
from .lengths import Lengths
from .orders import Block, Order, Volley
from .producer_lane import DEPTH, ProducerLane
from .rewiring import ACCEPTANCE, in_place_of, refusals, taken_over
from .sleeping import make_sleep, reason_to_wake
from .suggestions import AskAhead
from .visits import Nothing, VisitPlan, complete_at

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
        estimate: Callable[[], None],
        estimate_now: Callable[[], None] | None = None,
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
            sleep=make_sleep(book, spec) if sleeps else None,
            bits={who.substrate: who.bits for who in lanes},
            lengths=None if advisor is None else Lengths(spec.warmup.cheap, advisor),
        )
        self._priors = PeakPriors(spec, advisor)
        self.lanes = [ProducerLane(who, block=spec.theory.wide.least, place=place) for place, who in enumerate(lanes)]
        self._by_name = {lane.who.substrate: lane for lane in self.lanes}
        # With a thousand lanes, to look at each for every block would take longer than to write it.
        self._hungry = set(range(len(self.lanes)))
        """Lanes that may have room for orders: those that were not found full since they were last answered."""
        self._stop, self._halted, self._estimate = stop, halted, estimate
        self._estimate_now = estimate_now or estimate
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
        """What the journal says."""
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
        orders = [order for lane in self.lanes for v in lane.waiting for order in self._order(v, lane)]
        orders += self._check_again()
        if self.spec.running.deterministic:
            return self._send(self._begin_round(orders))
        return self._send(orders + self._feed_all())

    def take(self, block: Block) -> list[Volley]:
        """Return the orders that follow from a block that has been written."""
        lane = self._by_name[block.substrate]
        lane.took += block.seconds
        if not block.more:
            lane.flying -= 1
            if lane.wide and not self.spec.running.deterministic:
                lane.pace(self.spec.theory.wide)
        orders = self._after(block, lane)
        # Orders that follow from the other blocks of a volley go with those that follow from the last one.
        return self._send(orders, answered=lane, held=block.more > 0)

    def _send(
        self, orders: Sequence[Order], answered: ProducerLane | None = None, *, held: bool = False
    ) -> list[Volley]:
        """Return what can be sent now: on a wide lane orders wait for each other, and volleys for those before."""
        stocked = set() if answered is None else {answered.place}
        for order in orders:
            lane = self._by_name[order.substrate]
            lane.outbox.append(order)
            stocked.add(lane.place)
        volleys = []
        for place in sorted(stocked):
            lane = self.lanes[place]
            while lane.outbox and not (lane.wide and ((held and lane is answered) or lane.flying >= DEPTH)):
                volleys.append(lane.next_volley(self.state.visits))
        return volleys

    def _after(self, block: Block, lane: ProducerLane) -> list[Order]:
        if block.lost and not self.lost:
            self.lost[lane.who.substrate] = block.lost
        if self.lost:
            return []  # the campaign begins again without it
        given_up = self.state.chains[block.chain].abandoned
        if block.released or (block.missing and not given_up):
            if self._halted():
                return []
            self._held.pop(block.chain, None)
            return self._released(block) if block.released else self._order(block.visit, lane)
        lane.waiting.remove(block.visit)
        self._hungry.add(lane.place)
        if block.fault and not given_up:
            self._held.pop(block.chain, None)
            given = Decided(what="abandoned", chain=block.chain, step=block.step, by="validator", reason=block.fault)
            self._book.write(given)
            self._end_if_all_fail(block.fault)
        orders = [] if self.state.chains[block.chain].abandoned else self._judge(block, lane)
        if block.done:
            self._tell(self.state.chains[block.chain])
            self._news = True
        if over := block.done or self.state.chains[block.chain].abandoned:
            lane.visits.pop(block.visit, None)
        if self._halted():
            return []
        if self.spec.running.deterministic:
            return orders + self._in_round(lane, block, over=over)
        if self._news and not block.more:
            self._news = False
            self._estimate()
        waits = block.visit in lane.waiting or any(block.visit in other.waiting for other in self.lanes)
        if not (over or waits or self._stops()):
            # Its warm-up was longer than expected: the visit goes on before anything new.
            lane.waiting.append(block.visit)
            orders += self._order(block.visit, lane)
        return orders if block.more else orders + self._feed_all()

    def _end_if_all_fail(self, fault: str) -> None:
        """Raise where chain after chain fails before it has a row, which no budget would end."""
        tried = [chain for chain in self.state.chains.values() if chain.abandoned or chain.rows]
        if len(tried) >= MOST_FAILED and not any(chain.rows for chain in tried[-MOST_FAILED:]):
            raise SpecError(
                f"the last {MOST_FAILED} chains failed before they had a row, this one because {fault}\n"
                f"hint: `[{self.spec.theory.table()}]` with these values gives no sound update"
            )

    def _judge(self, block: Block, lane: ProducerLane) -> list[Order]:
        """Give a chain up whose trajectories are refused, and begin again with finer steps; return what follows."""
        if not self.spec.theory.tuned or not self.spec.running.rewire:
            return []
        if not (decided := refusals([self.state.chains[block.chain]], block.step)):
            return []
        self._book.write(*decided)
        substrate = lane.who.substrate
        released = Order(visit=block.visit, chain=block.chain, updates=0, until=0, substrate=substrate, release=True)
        if self._stops():
            return [released]
        return [released, *(order for new in self._lacking() for order in self._order(new.visit, self._give(new)))]

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

    def _check_again(self) -> list[Order]:
        """Return orders that move nothing, for chains that lack checks and have no visit: they are made on the way."""
        chains = self.state.chains.values() if self._checks else ()
        lacking = [chain for chain in chains if chain.unchecked and not chain.abandoned]
        orders = []
        for chain in lacking:
            if (visit := chain.visits[-1]) not in self.state.open_visits:
                lane = self._lane(chain.substrate, chain.system)
                lane.waiting.append(visit)
                orders += self._order(visit, lane)
        return orders

    # -- as fast as it goes -----------------------------------------------------------------------------------------

    def _feed_all(self) -> list[Order]:
        orders = self._feed()
        # A visit under way may have a shorter warm-up than was reserved for it: the campaign does not end before it.
        if not self.state.open_visits and self._goes_on([lane.nothing for lane in self.lanes]):
            orders += self._feed(woken=True)
        return orders

    def _feed(self, *, woken: bool = False) -> list[Order]:
        orders: list[Order] = []
        for place in sorted(self._hungry):
            lane = self.lanes[place]
            while (
                (room := self._depth(lane) < DEPTH) and not self._stops() and (layer := self._layer(lane, woken=woken))
            ):
                lane.waiting.extend(visit.visit for visit in layer)
                orders += [order for visit in layer for order in self._order(visit.visit, lane)]
            if not room:
                self._hungry.remove(place)
        return orders

    def _depth(self, lane: ProducerLane) -> float:
        """Return how often over the orders that wait would keep a lane busy."""
        return lane.load(self.state.visits[visit] for visit in lane.waiting)

    def _layer(self, lane: ProducerLane, *, woken: bool) -> list[Assigned]:
        """Return the visits that get an order now: one, or as many as keep a wide lane busy."""
        lane.visits = {n: visit for n, visit in lane.visits.items() if not self._fed(lane, visit)}
        if lane.load(lane.visits.values()) < 1:
            for visit in self._taken_over(lane) or self._decide(lane, woken=woken):
                lane.visits[visit.visit] = visit
        return list(lane.visits.values()) if lane.wide else list(lane.visits.values())[:1]

    def _fed(self, lane: ProducerLane, visit: Assigned) -> bool:
        """Return whether the orders that wait will complete the visit."""
        chain = self.state.chains[visit.chain]
        remaining = complete_at(visit, self.state) - chain.measured
        return lane.waiting.count(visit.visit) * lane.updates_of(visit, self.spec.running.block) >= remaining

    def _decide(self, lane: ProducerLane, *, woken: bool) -> list[Assigned]:
        """Decide visits for a lane and write them, until it is busy or there is nothing to do."""
        over = len(self.state.visits) - len(self.state.open_visits)
        if lane.asked_after == over and not woken:
            return []
        self._expect()
        made: list[Assigned] = []
        ahead = self._ahead(lane, lane.load(lane.visits.values()))
        lane.nothing, lane.asked_after = Nothing(), -1
        while lane.load([*lane.visits.values(), *made]) < 1:
            state = self.state
            found = self._plan.next(
                lane.who, state, self._open(), rounds=0, number=len(state.visits), ahead=ahead, woken=woken
            )
            if isinstance(found, Nothing):
                lane.nothing, lane.asked_after = found, -1 if found.ends is None else over
                break
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
                    step = self.state.chains[visit.chain].step
                    self._book.write(taken_over(visit, step, other.who.substrate, lane.who.substrate, len(rest)))
                    return [visit]
        return []

    def _ahead(self, lane: ProducerLane, load: float = 0.0) -> AskAhead:
        """Return what asks for as many points as a lane has room for, at least one."""
        smallest = min(lane.who.share(system) for system in lane.who.systems)
        return AskAhead(max(ceil((1 - load) / smallest), 1))

    # -- round by round ---------------------------------------------------------------------------------------------

    def _begin_round(self, orders: list[Order]) -> list[Order]:
        """Go on with the last round; one that was written in part and not begun is planned again and completed."""
        state = self.state
        if not orders:
            return self._new_round()
        last = max(visit.round for visit in state.visits)
        current = [visit for visit in state.visits if visit.round == last]
        if any(state.chains[v.chain].rows > state.open_visits.get(v.visit, -1) for v in current):
            return orders
        if current[-1].visit < state.extended_at:
            # It was planned for another spec: it is not completed, but what was written of it is run.
            return orders
        planned = self._plan_round(last, without=current)
        for known, again in zip(current, planned, strict=False):
            if (known.chain, known.coordinate, known.updates) != (again.chain, again.coordinate, again.updates):
                raise InternalError(
                    f"visit {known.visit} was planned at {known.coordinate:g}, and is planned at {again.coordinate:g} "
                    "when it is planned again\nhint: nothing was changed; resume with the metalforge that began it"
                )
        return orders + self._write_round(planned[len(current) :])

    def _in_round(self, lane: ProducerLane, block: Block, *, over: bool) -> list[Order]:
        if not over:
            lane.waiting.append(block.visit)
            return self._order(block.visit, lane)
        if any(other.waiting for other in self.lanes):
            return []
        return self._new_round()

    def _new_round(self) -> list[Order]:
        self._estimate()
        if self._stops():
            return []
        self._expect()
        number = max((visit.round for visit in self.state.visits), default=-1) + 1
        return self._write_round(self._plan_round(number, without=[]))

    def _plan_round(self, number: int, *, without: Sequence[Assigned]) -> list[Assigned]:
        """Return the visits of a round, as decided from what came before it."""
        planned, nothing = self._planned(number, without)
        # While others have visits there is no end: who resumes in such a round would not know of it.
        if not planned and self._goes_on(nothing):
            planned, _ = self._planned(number, without, woken=True)
        return planned

    def _planned(
        self, number: int, without: Sequence[Assigned], *, woken: bool = False
    ) -> tuple[list[Assigned], list[Nothing]]:
        """Return the visits of a round, and why lanes have none."""
        skip = {visit.visit for visit in without}
        planned: list[Assigned] = []
        nothing: list[Nothing] = []
        first = len(self.state.visits) - len(without)
        for lane in self.lanes:
            ahead, mine = self._ahead(lane), len(planned)
            while lane.load(planned[mine:]) < 1:
                at = first + len(planned)
                found = self._plan.next(
                    lane.who, self.state, planned, rounds=number, number=at, skip=skip, ahead=ahead, woken=woken
                )
                if isinstance(found, Nothing):
                    nothing.append(found)
                    break
                planned.append(found)
        return planned, nothing

    def _write_round(self, planned: Sequence[Assigned]) -> list[Order]:
        # All are written before the first begins: a round without rows may have been written in part.
        for visit in planned:
            self._book.write(*self._plan.records(visit))
        return [order for visit in planned for order in self._order(visit.visit, self._give(visit))]

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

    def _order(self, visit: int, lane: ProducerLane) -> list[Order]:
        """Return the next order of a visit, with the chain for a producer that does not hold it.

        Where another one does, it is asked to release it, and the order waits for that.
        """
        chain = self.state.visits[visit].chain
        if chain in self._moving:
            self._moving[chain].append((visit, lane))
            return []
        holder = self._held.get(chain)
        if holder is not None and holder is not lane:
            self._moving[chain] = [(visit, lane)]
            return [Order(visit=visit, chain=chain, updates=0, until=0, substrate=holder.who.substrate, release=True)]
        known: tuple[ChainLog, ...] = ()
        if holder is None:
            with self._book.reading() as state:
                known = (state.chains[chain].snapshot(),)
            self._held[chain] = lane
        assigned = self.state.visits[visit]
        return [
            Order(
                visit=visit,
                chain=chain,
                updates=lane.updates_of(assigned, self.spec.running.block),
                until=complete_at(assigned, self.state),
                substrate=lane.who.substrate,
                known=known,
            )
        ]

    def _released(self, block: Block) -> list[Order]:
        """Return the orders that waited for a chain which another producer held."""
        moved = self._moving.pop(block.chain, [])
        if self.state.chains[block.chain].abandoned:
            for visit, to in moved:
                to.visits.pop(visit, None)
                to.waiting.remove(visit)
                self._hungry.add(to.place)
            return [] if block.more or self.spec.running.deterministic else self._feed_all()
        if not moved:
            return []
        source, target = block.substrate, moved[0][1].who.substrate
        self._book.write(Migrated(chain=block.chain, step=block.step, source=source, target=target))
        return [order for visit, to in moved for order in self._order(visit, to)]

    def _tell(self, chain: ChainLog) -> None:
        """Tell the volume's steerer what a chain has measured in its complete visits."""
        known = chain.system in self._plan.steerers and self.spec.covers(chain.coordinate)
        if not chain.complete or chain.abandoned or not known:
            return
        with self._book.reading():
            observed = self.spec.theory.analysis.observer(self.spec, chain)
        if (seen := observed()) is not None:
            self._plan.steerers[chain.system].tell([seen])

    def _goes_on(self, nothing: Sequence[Nothing]) -> bool:
        """Return whether producers are woken; otherwise note what the campaign ends by, if it ends.

        It is for the moment when no visit is under way and none was found. While producers sleep, an estimate is made
        from everything that was measured.
        """
        ends = [found for found in nothing if found.ends is not None]
        if not ends or self._stops():
            return False
        asleep = next((found for found in ends if found.ends == "asleep"), None)
        if asleep is None:
            self.stopped_by = ends[0].ends
            return False
        self._book.write(Decided(what="sleep", by="variance", reason=asleep.reason, system=asleep.system))
        self._estimate_now()
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
