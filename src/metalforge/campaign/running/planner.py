"""Lanes fed with orders: visits are decided, written before they begin, and handed to producers block by block.

A visit is a decision (a volume, a beta, so many measured updates); an order is one block of it. Two orders wait on
every lane, so that no producer stands still while the next visit is decided. In a deterministic campaign there is one
order at a time and visits are decided in rounds: all of a round are over before the next is planned, so that decisions
depend on what was measured and not on which chain was faster.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from metalforge.campaign.orderings import Assignee
from metalforge.campaign.physics.selection import observe
from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import Assigned, Decided, Migrated, StoppedBy
from metalforge.conductor.features import MetaRow
from metalforge.core.errors import SpecError

from .book import Book
from .orders import Block, Brief, Order
from .visits import Nothing, VisitPlan

DEPTH = 2
"""Orders on a lane: one that runs and one that waits."""


@dataclass(slots=True)
class ProducerLane:
    """One producer, and what it has been ordered to do."""

    who: Assignee
    waiting: deque[int] = field(default_factory=deque)
    """Visits of the orders that have not been answered."""
    visit: Assigned | None = None


class Planner:
    """Decides visits and feeds lanes. All calls come from one thread, which alone makes visits and chains."""

    def __init__(
        self,
        spec: CampaignSpec,
        book: Book,
        lanes: Sequence[Assignee],
        plan: VisitPlan,
        *,
        stop: Callable[[], StoppedBy | None],
        halted: Callable[[], bool],
        estimate: Callable[[], None],
        beside: Callable[[CampaignState, ChainLog], Sequence[MetaRow]] = lambda state, log: (),
        checks: bool = False,
    ) -> None:
        self.spec, self._book, self._plan = spec, book, plan
        self.lanes = [ProducerLane(who) for who in lanes]
        self._stop, self._halted, self._estimate = stop, halted, estimate
        self._beside, self._checks = beside, checks
        self._until: dict[int, int] = {}
        self._held: dict[str, ProducerLane] = {}
        """Which producer has which chain."""
        self._moving: dict[str, list[tuple[int, ProducerLane]]] = {}
        """Chains that another producer was asked to release, with the orders that wait for them."""
        self.stopped_by: StoppedBy | None = None

    @property
    def state(self) -> CampaignState:
        """What the journal says."""
        return self._book.state

    # -- the two calls of the steering stage ------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        """Return the first orders: visits that were begun before, then new ones."""
        for chain in self.state.chains.values():
            self._tell(chain)
        for visit in self._open():
            self._give(visit)
        orders = [order for lane in self.lanes for v in lane.waiting for order in self._order(v, lane)]
        again = self._check_again()
        if self.spec.running.deterministic:
            return again + self._begin_round(orders)
        return again + orders + self._feed_all()

    def take(self, block: Block) -> list[Order]:
        """Return the orders that follow from a block that has been written."""
        if block.rung:
            return []  # the first chain of a ladder, whose block comes last, speaks for all of them
        lane = next(lane for lane in self.lanes if lane.who.substrate == block.substrate)
        given_up = self.state.chains[block.chain].abandoned
        if block.released or (block.missing and not given_up):
            return [] if self._halted() else self._again(block, lane)
        lane.waiting.remove(block.visit)
        if block.fault and not given_up:
            self._held.pop(block.chain, None)
            for chain in self.state.together(block.chain):
                self._book.write(
                    Decided(what="abandoned", chain=chain.id, step=block.step, by="validator", reason=block.fault)
                )
        if block.done:
            for chain in self.state.together(block.chain):
                self._tell(chain)
            if lane.visit is not None and lane.visit.visit == block.visit:
                lane.visit = None
        if self._halted():
            return []
        if self.spec.running.deterministic:
            return self._in_round(lane, block)
        if block.done:
            self._estimate()
        orders: list[Order] = []
        if not (block.done or given_up or block.visit in lane.waiting or self._stops()):
            # Its warm-up was longer than expected: the visit goes on before anything new.
            lane.waiting.append(block.visit)
            orders += self._order(block.visit, lane)
        return orders + self._feed_all()

    def _check_again(self) -> list[Order]:
        """Return orders that move nothing, for chains that lack checks and have no visit: they are made on the way."""
        if not self._checks:
            return []
        lacking = [chain for chain in self.state.chains.values() if chain.unchecked and not chain.abandoned]
        orders = []
        # Chains of a ladder share their visits, and one order moves them all.
        for visit, chain in {chain.visits[-1]: chain for chain in lacking}.items():
            if visit not in self.state.open_visits:
                lane = self._lane(chain.substrate, chain.dims)
                self._until[visit] = chain.measured
                lane.waiting.append(visit)
                orders += self._order(visit, lane)
        return orders

    # -- as fast as it goes -----------------------------------------------------------------------------------------

    def _feed_all(self) -> list[Order]:
        orders: list[Order] = []
        for lane in self.lanes:
            while len(lane.waiting) < DEPTH and not self._stops():
                if lane.visit is None or self._fed(lane, lane.visit):
                    visit = self._decide(lane)
                    if visit is None:
                        break
                    lane.visit = visit
                lane.waiting.append(lane.visit.visit)
                orders += self._order(lane.visit.visit, lane)
        return orders

    def _fed(self, lane: ProducerLane, visit: Assigned) -> bool:
        """Return whether the orders that wait will complete the visit."""
        chain = self.state.chains[visit.chain]
        remaining = self._until[visit.visit] - chain.measured
        return lane.waiting.count(visit.visit) * self._block(visit) >= remaining

    def _block(self, visit: Assigned) -> int:
        """Return the updates of one order: those of a ladder are shared by its replicas."""
        return max(1, self.spec.running.block // max(len(visit.betas), 1))

    def _decide(self, lane: ProducerLane) -> Assigned | None:
        """Decide one visit for a lane and write it; None where there is nothing to do."""
        found = self._plan.next(lane.who, self.state, self._open(), rounds=0, number=len(self.state.visits))
        if isinstance(found, Nothing):
            self._note(found)
            return None
        self._book.write(found)
        self._remember(found)
        return found

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
            if (known.chain, known.beta, known.updates) != (again.chain, again.beta, again.updates):
                raise SpecError(
                    f"the campaign cannot be continued as it began: visit {known.visit} was at beta {known.beta:g}, "
                    f"and would be at {again.beta:g} now\nhint: resume with the version that wrote it"
                )
        return orders + self._write_round(planned[len(current) :])

    def _in_round(self, lane: ProducerLane, block: Block) -> list[Order]:
        if not block.done:
            lane.waiting.append(block.visit)
            return self._order(block.visit, lane)
        if any(other.waiting for other in self.lanes):
            return []
        return self._new_round()

    def _new_round(self) -> list[Order]:
        self._estimate()
        if self._stops():
            return []
        number = max((visit.round for visit in self.state.visits), default=-1) + 1
        return self._write_round(self._plan_round(number, without=[]))

    def _plan_round(self, number: int, *, without: Sequence[Assigned]) -> list[Assigned]:
        """Return the visits of a round, as decided from what came before it."""
        skip = {visit.visit for visit in without}
        planned: list[Assigned] = []
        first = len(self.state.visits) - len(without)
        for lane in self.lanes:
            at = first + len(planned)
            found = self._plan.next(lane.who, self.state, planned, rounds=number, number=at, skip=skip)
            if isinstance(found, Nothing):
                self._note(found)
            else:
                planned.append(found)
        return planned

    def _write_round(self, planned: Sequence[Assigned]) -> list[Order]:
        # All are written before the first begins: a round without rows may have been written in part.
        for visit in planned:
            self._book.write(visit)
        return [order for visit in planned for order in self._order(visit.visit, self._give(visit))]

    # -- small parts ------------------------------------------------------------------------------------------------

    def _open(self) -> list[Assigned]:
        state = self.state
        return [visit for visit in state.visits if visit.visit in state.open_visits]

    def _give(self, visit: Assigned) -> ProducerLane:
        """Put a visit on its lane; where its substrate is gone, on one that may run its volume."""
        self._remember(visit)
        lane = self._lane(visit.substrate, visit.dims)
        lane.visit = visit
        lane.waiting.append(visit.visit)
        return lane

    def _lane(self, substrate: str, dims: Dims) -> ProducerLane:
        for lane in self.lanes:
            if lane.who.substrate == substrate:
                return lane
        able = [lane for lane in self.lanes if dims in lane.who.volumes] or self.lanes
        return min(able, key=lambda lane: len(lane.waiting))

    def _remember(self, visit: Assigned) -> None:
        """Note at which measured update a visit is complete."""
        chain = self.state.chains[visit.chain]
        began = self.state.open_visits[visit.visit]
        self._until[visit.visit] = visit.updates + (max(began - chain.warmup, 0) if began else 0)

    def _order(self, visit: int, lane: ProducerLane) -> list[Order]:
        """Return the next order of a visit, with a brief for a producer that does not hold the chain.

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
        brief = None
        if holder is None:
            with self._book.reading() as state:
                engines = [f"cpu:{isa}" for isa in state.build_levels]
                first, *others = (Brief.of(c, self._beside(state, c), engines) for c in state.together(chain))
                brief = replace(first, others=others)
            self._held[chain] = lane
        updates = self._block(self.state.visits[visit])
        return [
            Order(
                visit=visit, chain=chain, updates=updates, until=self._until[visit], substrate=lane.who.substrate,
                brief=brief, settled=min(c.settled for c in self.state.together(chain)),
            )
        ]  # fmt: skip

    def _again(self, block: Block, lane: ProducerLane) -> list[Order]:
        """Return the orders that waited for a chain, or that came to a producer which does not hold it."""
        self._held.pop(block.chain, None)
        if block.missing:
            return self._order(block.visit, lane)
        moved = self._moving.pop(block.chain)
        source, target = block.substrate, moved[0][1].who.substrate
        self._book.write(Migrated(chain=block.chain, step=block.step, source=source, target=target))
        return [order for visit, to in moved for order in self._order(visit, to)]

    def _tell(self, chain: ChainLog) -> None:
        """Tell the volume's steerer what a chain has measured in its complete visits."""
        if not chain.complete or chain.abandoned or chain.dims not in self._plan.steerers:
            return
        with self._book.reading():
            series = chain.series(complete=True)
        seen = observe(series, id=chain.id, cost=float(chain.complete))
        if seen is not None:
            self._plan.steerers[chain.dims].tell([seen])

    def _note(self, nothing: Nothing) -> None:
        if nothing.ends is not None and self.stopped_by is None:
            self.stopped_by = nothing.ends
            if nothing.reason:
                self._book.write(Decided(what="sleep", by="variance", reason=nothing.reason))

    def _stops(self) -> bool:
        if self.stopped_by is None:
            self.stopped_by = self._stop()
        return self.stopped_by is not None
