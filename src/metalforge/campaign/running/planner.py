"""Who measures what next: lanes are fed with orders, visits are decided by the steerers and written before they begin.

A visit is a decision (a volume, a beta, so many measured updates); an order is one block of it. Two orders wait on
every lane, so that no producer stands still while the next visit is decided. In a deterministic campaign there is one
order at a time and visits are decided in rounds: all of a round are over before the next is planned, so that decisions
depend on what was measured and not on which chain was faster.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from metalforge.campaign.physics.observation import observe
from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.campaign.store.records import Assigned, Decided, StoppedBy
from metalforge.conductor.heuristics import quenched_length
from metalforge.core.errors import SpecError
from metalforge.core.steering import Steerer, Suggestion

from .book import Book
from .orders import Block, Order

__all__ = ["Lane", "Planner", "Sleep"]

DEPTH = 2
"""Orders on a lane: one that runs and one that waits."""
SNAP = 0.01
"""Part of the range within which a suggestion continues a chain that is there: a new one would have to warm up, and
reweighting makes no difference between the two."""

Sleep = Callable[[Dims], str | None]
"""Whether a volume is known well enough to let the producers sleep, and why."""


@dataclass(slots=True)
class Lane:
    """One producer: where it runs, the volumes it may run, and what it has been ordered to do.

    `follows` makes it run only at beta that chains of another volume have flagged.
    """

    substrate: str
    volumes: tuple[Dims, ...]
    follows: Dims | None = None
    waiting: deque[int] = field(default_factory=deque)
    """Visits of the orders that have not been answered."""
    visit: Assigned | None = None


class Planner:
    """Decides visits and feeds lanes. All calls come from one thread."""

    def __init__(
        self,
        spec: CampaignSpec,
        book: Book,
        lanes: Sequence[Lane],
        steerers: Mapping[Dims, Steerer],
        *,
        stop: Callable[[], StoppedBy | None],
        halted: Callable[[], bool],
        estimate: Callable[[], None],
        sleep: Sleep | None = None,
    ) -> None:
        self.spec, self._book, self.lanes, self._steerers = spec, book, list(lanes), steerers
        self._stop, self._halted, self._estimate, self._sleep = stop, halted, estimate, sleep
        self._until: dict[int, int] = {}
        self._flagged: dict[Dims, set[float]] = {}
        self.stopped_by: StoppedBy | None = None

    @property
    def state(self) -> CampaignState:
        """What the journal says; read by this thread only while it decides."""
        return self._book.state

    # -- the two calls of the steering stage ------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        """Return the first orders: visits that were begun before, then new ones."""
        for chain in self.state.chains.values():
            self._tell(chain)
        for visit in self._open(self.state):
            lane = self._lane(visit.substrate, visit.dims)
            self._remember(visit)
            lane.visit = visit
            lane.waiting.append(visit.visit)
        orders = [self._order(v, lane) for lane in self.lanes for v in lane.waiting]
        if self.spec.running.deterministic:
            return self._begin_round(orders)
        return orders + self._feed_all()

    def take(self, block: Block) -> list[Order]:
        """Return the orders that follow from a block that has been written."""
        lane = next(lane for lane in self.lanes if lane.substrate == block.substrate)
        lane.waiting.remove(block.visit)
        if block.chi >= self.spec.screening.chi:
            self._flagged.setdefault(block.dims, set()).add(block.beta)
        if block.fault:
            self._abandon(block)
        if block.done:
            self._tell(self.state.chains[block.chain])
            if lane.visit is not None and lane.visit.visit == block.visit:
                lane.visit = None
        if self._halted():
            return []
        if self.spec.running.deterministic:
            return self._in_round(lane, block)
        if block.done:
            self._estimate()
        orders = []
        if not block.done and block.visit not in lane.waiting and not self._stops():
            # Its warm-up was longer than expected: the visit goes on before anything new.
            lane.waiting.append(block.visit)
            orders.append(self._order(block.visit, lane))
        return orders + self._feed_all()

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
                orders.append(self._order(lane.visit.visit, lane))
        return orders

    def _fed(self, lane: Lane, visit: Assigned) -> bool:
        """Return whether the orders that wait will complete the visit."""
        chain = self.state.chains[visit.chain]
        remaining = self._until[visit.visit] - chain.measured
        return lane.waiting.count(visit.visit) * self.spec.running.block >= remaining

    def _decide(self, lane: Lane) -> Assigned | None:
        """Decide one visit for a lane and write it; None where there is nothing to do."""
        # Visits are decided and chains made by this thread alone, so nothing has to stand still while a steerer thinks.
        state = self.state
        visit = self._plan(lane, state, self._open(state), rounds=0, number=len(state.visits))
        if visit is not None:
            self._book.write(visit)
            self._remember(visit)
        return visit

    # -- round by round ---------------------------------------------------------------------------------------------

    def _begin_round(self, orders: list[Order]) -> list[Order]:
        """Go on with the last round; one that was written in part and not begun is planned again and completed."""
        state = self.state
        if not orders:
            return self._new_round()
        last = max(visit.round for visit in state.visits)
        current = [visit for visit in state.visits if visit.round == last]
        begun = any(state.chains[v.chain].rows > state.open_visits.get(v.visit, -1) for v in current)
        if begun:
            return orders
        planned = self._plan_round(last, without=current)
        for known, again in zip(current, planned, strict=False):
            if (known.chain, known.beta, known.updates) != (again.chain, again.beta, again.updates):
                raise SpecError(
                    f"the campaign cannot be continued as it began: visit {known.visit} was at beta {known.beta:g}, "
                    f"and would be at {again.beta:g} now\nhint: resume with the version that wrote it"
                )
        return orders + self._write_round(planned[len(current) :])

    def _in_round(self, lane: Lane, block: Block) -> list[Order]:
        if not block.done:
            lane.waiting.append(block.visit)
            return [self._order(block.visit, lane)]
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
        state = self.state
        skip = {visit.visit for visit in without}
        planned: list[Assigned] = []
        first = len(state.visits) - len(without)
        for lane in self.lanes:
            visit = self._plan(lane, state, planned, rounds=number, number=first + len(planned), skip=skip)
            if visit is not None:
                planned.append(visit)
        return planned

    def _write_round(self, planned: Sequence[Assigned]) -> list[Order]:
        orders = []
        for visit in planned:
            self._book.write(visit)
        for visit in planned:
            lane = self._lane(visit.substrate, visit.dims)
            self._remember(visit)
            lane.visit = visit
            lane.waiting.append(visit.visit)
            orders.append(self._order(visit.visit, lane))
        return orders

    # -- one visit --------------------------------------------------------------------------------------------------

    def _plan(
        self,
        lane: Lane,
        state: CampaignState,
        pending: Sequence[Assigned],
        *,
        rounds: int,
        number: int,
        skip: set[int] = frozenset(),  # type: ignore[assignment]  # read only
    ) -> Assigned | None:
        """Return the next visit of a lane; `pending` visits are under way, `skip` ones do not count as there."""
        chains = [c for c in state.chains.values() if not c.abandoned and not (c.visits and c.visits[0] in skip)]
        order = self._volumes_by_need(lane, state, pending)
        for dims in order:
            here = [c for c in chains if c.dims == dims]
            waiting = [visit for visit in pending if visit.dims == dims]
            suggestion = self._suggest(lane, dims, here, waiting)
            if suggestion is None:
                continue
            busy = {visit.chain for visit in pending}
            chain = self._chain_for(suggestion.beta, here, busy)
            born = {c.id for c in state.chains.values() if not (c.visits and c.visits[0] in skip)}
            new = len(born) + sum(visit.fresh and visit.chain not in born for visit in pending)
            name, stream = (chain.id, chain.stream) if chain is not None else (f"c{new:04d}", new)
            beta = suggestion.beta if chain is None else chain.beta
            updates = self._affordable(state, pending, fresh=chain is None, skip=skip)
            if updates is None:
                self.stopped_by = self.stopped_by or "trajectories"
                return None
            reason = suggestion.reason
            if chain is not None and abs(suggestion.beta - chain.beta) > 1e-12:
                reason += f"; asked for {suggestion.beta:.5g}, {chain.id} is near enough"
            return Assigned(
                at=self._book.clock(),
                visit=number,
                round=rounds,
                chain=name,
                stream=stream,
                dims=dims,
                beta=beta,
                updates=updates,
                fresh=chain is None,
                substrate=lane.substrate,
                by="follow" if lane.follows is not None else self._steerers[dims].name,
                reason=reason,
                score=suggestion.score,
                quenched=self._quenched_length(state, dims, beta) if chain is None else 0,
            )
        return None

    def _quenched_length(self, state: CampaignState, dims: Dims, beta: float) -> int:
        """Return how long a new dynamical chain runs without its sea quarks: longest near the transition, if known."""
        longest = self.spec.warmup.quenched
        if not longest or not self.spec.lattice.flavors:
            return 0
        latest = state.latest(dims)
        return min(longest, quenched_length(beta, dims[0], None if latest is None else latest.beta_c))

    def _suggest(
        self, lane: Lane, dims: Dims, here: Sequence[ChainLog], pending: Sequence[Assigned]
    ) -> Suggestion | None:
        if lane.follows is not None:
            return self._follow(lane.follows, here, pending)
        if self._sleep is not None and (why := self._sleep(dims)) is not None:
            self.stopped_by = "asleep"
            self._book.write(Decided(at=self._book.clock(), what="sleep", by="variance", reason=why))
            return None
        # With too few observations for a curve a steerer counts chains under way as pending, and so do we.
        asked = self._steerers[dims].ask(1, [visit.beta for visit in pending])
        if asked:
            return asked[0]
        known = [c for c in here if c.id not in {visit.chain for visit in pending}]
        if not known:
            return None
        least = min(known, key=lambda c: (c.complete, c.id))
        return Suggestion(beta=least.beta, reason="the steerer has no wish: more for the chain that has least")

    def _follow(self, scout: Dims, here: Sequence[ChainLog], pending: Sequence[Assigned]) -> Suggestion | None:
        """Return a flagged beta: one that was not visited yet, else the one with the least updates."""
        flagged = sorted(self._flagged.get(scout, ()))
        under_way = [visit.beta for visit in pending]
        free = [beta for beta in flagged if not self._near(beta, under_way)]
        fresh = [beta for beta in free if not self._near(beta, [c.beta for c in here])]
        if fresh:
            return Suggestion(beta=fresh[0], reason=f"flagged by the scout on {scout}")
        chains = [c for c in here if self._near(c.beta, free)]
        if not chains:
            return None
        least = min(chains, key=lambda c: (c.complete, c.id))
        return Suggestion(beta=least.beta, reason=f"flagged by the scout on {scout}, more statistics")

    def _chain_for(self, beta: float, here: Sequence[ChainLog], busy: set[str]) -> ChainLog | None:
        """Return an idle chain that a visit at this beta continues; None where it wants a new one."""
        idle = [c for c in here if c.id not in busy]
        if not idle:
            return None
        nearest = min(idle, key=lambda c: (abs(c.beta - beta), c.id))
        full = len(here) >= self.spec.steering.most
        return nearest if full or self._near(beta, [nearest.beta]) else None

    def _near(self, beta: float, others: Sequence[float]) -> bool:
        lattice = self.spec.lattice
        width = lattice.beta_max - lattice.beta_min
        return any(abs(beta - other) <= SNAP * width for other in others)

    def _volumes_by_need(self, lane: Lane, state: CampaignState, pending: Sequence[Assigned]) -> list[Dims]:
        """Return a lane's volumes, the one in greatest need first: few points, then the largest error on beta_c."""

        def need(dims: Dims) -> tuple[bool, float, int]:
            visits = sum(v.dims == dims for v in state.visits) + sum(v.dims == dims for v in pending)
            latest = state.latest(dims)
            error = float("inf") if latest is None or latest.error is None else latest.error
            return visits >= self.spec.steering.initial, -error, visits

        return sorted(lane.volumes, key=need)

    def _affordable(
        self, state: CampaignState, pending: Sequence[Assigned], *, fresh: bool, skip: set[int]
    ) -> int | None:
        """Return the updates of the next visit within the budget; None where it is spent."""
        wanted = self.spec.steering.visit
        budget = self.spec.budget.trajectories
        if budget is None:
            return wanted
        policy = self.spec.warmup
        warmup = policy.longest + policy.quenched
        used = sum(chain.complete for chain in state.chains.values())
        promised = 0
        for visit in pending:
            promised += visit.updates + (warmup if visit.fresh else 0)
        left = budget - used - promised - (warmup if fresh else 0)
        # A visit much shorter than the others would be too short to say anything.
        return None if left < max(wanted // 4, 10) else min(wanted, left)

    def _open(self, state: CampaignState) -> list[Assigned]:
        return [visit for visit in state.visits if visit.visit in state.open_visits]

    def _remember(self, visit: Assigned) -> None:
        """Note at which measured update a visit is complete."""
        chain = self.state.chains[visit.chain]
        began = self.state.open_visits[visit.visit]
        self._until[visit.visit] = max(began - chain.warmup, 0) + visit.updates if began else visit.updates

    def _order(self, visit: int, lane: Lane) -> Order:
        assigned = self.state.visits[visit]
        return Order(
            visit=visit,
            chain=assigned.chain,
            updates=self.spec.running.block,
            until=self._until[visit],
            substrate=lane.substrate,
        )

    def _lane(self, substrate: str, dims: Dims) -> Lane:
        """Return the lane of a visit; one whose substrate is gone goes to a lane that may run its volume."""
        for lane in self.lanes:
            if lane.substrate == substrate:
                return lane
        able = [lane for lane in self.lanes if dims in lane.volumes] or self.lanes
        return min(able, key=lambda lane: len(lane.waiting))

    def _tell(self, chain: ChainLog) -> None:
        """Tell the volume's steerer what a chain has measured in its complete visits."""
        if not chain.complete or chain.abandoned or chain.dims not in self._steerers:
            return
        with self._book.reading():
            series = chain.series(complete=True)
        seen = observe(series, id=chain.id, cost=float(chain.complete))
        if seen is not None:
            self._steerers[chain.dims].tell([seen])

    def _abandon(self, block: Block) -> None:
        self._book.write(
            Decided(
                at=self._book.clock(),
                what="abandoned",
                chain=block.chain,
                step=block.step,
                by="validator",
                reason=block.fault,
            )
        )

    def _stops(self) -> bool:
        if self.stopped_by is None:
            self.stopped_by = self._stop()
        return self.stopped_by is not None
