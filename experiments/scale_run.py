"""A campaign on simulated lanes: the planner, steerers, estimator, journal and fold of a real one, in virtual time.

Blocks come to one supervisor, which writes and answers them one after another, as the host of a campaign does; the
processor time that this really takes here is the time that it takes in the simulation, so that lanes wait where it is
late. Estimates run beside it, on a core of their own, as they do in a campaign; how long they keep the state to
themselves is the supervisor's time. Rows cost nothing when a lane has made them.

A lane that fails is replaced after `REPAIR_S`: the new one holds no chain, says so of every order, and takes chains up
from their last checkpoint, as a producer in a process of its own does.
"""

import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from metalforge.campaign.findings import target_met
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.running.book import Book
from metalforge.campaign.running.equipment import steerer_of
from metalforge.campaign.running.estimator import Estimator
from metalforge.campaign.running.graph import Recorder, Steer
from metalforge.campaign.running.orders import Block, Order, Volley
from metalforge.campaign.running.planner import Planner
from metalforge.campaign.running.planning import planner_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, Fold, fold
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Record, StoppedBy
from metalforge.campaign.theory import System
from metalforge.core.rows import Phase
from metalforge.core.steering import Steerer, Suggestion

from .chains import LOOP
from .rehearsal import opening, segment_of
from .scale_model import BUSY_SITES, JITTER, REPAIR_S, Machine, RowSource, SimulatedLattice

LINK_BYTES = 576
"""Of a site, in double precision."""
CHECKPOINT_BYTES_PER_S = 1e9
"""That a lane writes to its own disk; it makes no updates meanwhile."""


Two: TypeAlias = tuple[float, float]
"""The median and the 99th percentile."""


class Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of a run, in virtual seconds and real bytes."""

    lanes: int
    seconds: float
    busy: float
    """Share of the lanes' time in which they made updates that are kept."""
    supervisor: float
    """Share of the time in which the supervisor was busy."""
    began_s: float
    """Until the first orders were sent."""
    rows: int
    blocks: int
    journal_bytes: int
    ask_s: Two
    """Of every ask, for as many points as it was for."""
    known_s: Two
    """Of every ask: how long ago the newest block was made that it knew."""
    begun_s: Two
    """Of every visit: from its decision to its first update."""
    estimates: int
    estimate_s: Two
    failures: int
    repeated_s: float
    """Lane seconds of work that was done again."""
    down_s: float
    """Lane seconds without a GPU."""
    looks: tuple[Two, ...]
    """The last three estimates: when they were made, and their errors."""


def _two(values: Sequence[float]) -> Two:
    return (float(np.quantile(values, 0.5)), float(np.quantile(values, 0.99))) if values else (0.0, 0.0)


@dataclass(slots=True)
class _Chain:
    """Where a chain is, and what of it a new holder would have to make again."""

    warmup: int
    rows: int = 0
    measured: int = 0
    since: int = 0
    """Rows since its last checkpoint."""
    saved_at: float = 0.0


@dataclass(slots=True, eq=False)
class _Lane:
    who: Assignee
    speed: float
    queue: deque[Volley] = field(default_factory=deque)
    held: set[str] = field(default_factory=set)
    running: Volley | None = None
    began: float = 0.0
    life: int = 0
    """Counts its failures: work of an earlier GPU is dropped."""
    down: bool = False
    ordered: float = 0.0
    answered: float = 0.0
    """When its last message came in, either way."""
    useful: float = 0.0
    """Of what it is doing, seconds that will be kept."""


class _Work(NamedTuple):
    """What a volley came to: answers, and how long updates, repeated ones and checkpoints took."""

    answers: list[tuple[Order, int, bool]]
    """Orders, rows of each, and whether a checkpoint was written."""
    useful: float
    repeated: float
    saving: float


class _Beside(Estimator):
    """Estimates on a core of their own: their processor time is not the supervisor's, but for what they lock."""

    def __init__(self, spec: CampaignSpec, book: "_TimedBook", run: "SimulatedCampaign") -> None:
        super().__init__(spec, book, clock=run.now)
        self._run, self._timed = run, book
        self.took: list[float] = []

    def __call__(self) -> None:
        """Estimate if it is due and none is being made."""
        if self._clock() >= self._ended:
            super().__call__()

    def _begin(self) -> None:
        began, held = time.thread_time(), self._timed.held
        self._try()
        spent = time.thread_time() - began
        self._run.excuse(spent - (self._timed.held - held))
        self._cost, self._ended = spent, self._run.now() + spent
        self.took.append(spent)


class _TimedBook(Book):
    """Knows how long its state was kept still."""

    held = 0.0

    @contextmanager
    def reading(self) -> Iterator[CampaignState]:
        """Give the state."""
        began = time.thread_time()
        with super().reading() as state:
            yield state
        self.held += time.thread_time() - began


class SimulatedCampaign:
    """A campaign of a spec with one volume on a machine of simulated lanes."""

    def __init__(
        self, spec: CampaignSpec, lattice: SimulatedLattice, machine: Machine, directory: Path, *, seed: int
    ) -> None:
        self.spec, self._lattice, self._machine, self._directory = spec, lattice, machine, directory
        self._rng = np.random.default_rng([seed, machine.lanes])
        self._source = RowSource(lattice, seed)
        speeds = machine.speeds_of(self._rng)
        sites = BUSY_SITES if machine.wide else 0
        names = [f"cuda:{i}" if machine.wide else f"cpu:{i}" for i in range(machine.lanes)]
        self.lanes = {
            name: _Lane(Assignee(name, spec.theory.systems, sites=sites, bits="fma"), float(speed))
            for name, speed in zip(names, speeds, strict=True)
        }
        self._chains: dict[str, _Chain] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbered = 0
        self._free = self._start = self._began = self._excused = 0.0
        self._handling = False
        self._spent = 0.0
        self._newest = 0.0
        self._useful = self._repeated = self._down = 0.0
        self._rows = self._blocks = self._failures = 0
        self._asks: list[float] = []
        self._known: list[float] = []
        self._visits_begun: dict[int, float] = {}
        self._end = inf

    # -- time -------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the virtual time of the supervisor."""
        return self._start + (time.thread_time() - self._began - self._excused if self._handling else 0.0)

    def excuse(self, seconds: float) -> None:
        """Do not charge so much of the processor time to the supervisor."""
        self._excused += seconds

    def _sync(self, file: int) -> None:
        """Wait for the disk, which is the supervisor's time, too."""
        began, spent = time.perf_counter(), time.thread_time()
        os.fsync(file)
        self._excused -= time.perf_counter() - began - (time.thread_time() - spent)

    def _at(self, when: float, what: Callable[[float], None]) -> None:
        self._numbered += 1
        heapq.heappush(self._events, (when, self._numbered, what))

    @contextmanager
    def _supervising(self, arrived: float) -> Iterator[None]:
        """Do the supervisor's work, as soon as it is free, in the time that it takes."""
        self._start, self._excused = max(arrived, self._free), 0.0
        self._began, self._handling = time.thread_time(), True
        yield
        end = self.now()
        self._handling = False
        self._spent += end - self._start
        self._start = self._free = end

    # -- the campaign -----------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> Figures:
        """Run for so many virtual seconds, or to the target."""
        spec, opened = self.spec, opening(self.spec)
        self._end = seconds
        path = self._directory / JOURNAL
        with Journal[Record].open(path, Record, mode="create", clock=self.now, sync=self._sync) as journal:
            journal.append(opened)
            book = _TimedBook(journal, fold([opened], self._directory))
            book.clock = self.now
            estimator = _Beside(spec, book, self)
            planner = self._planner(book, estimator, seconds)
            recorder, steer = Recorder(book), Steer(planner)
            with self._supervising(0.0):
                _, sent = steer.step(None, None)
            began_s = self._free
            self._send(sent)
            if self._machine.failures:
                for lane in self.lanes.values():
                    self._fails_some_time(lane, 0.0)
            self._recorder, self._steer = recorder, steer
            while self._events:
                when, _, what = heapq.heappop(self._events)
                if when > seconds:
                    break
                what(when)
            estimator.close()
            end = min(max(self._free, self._newest), seconds) if planner.stopped_by == "target" else seconds
            return self._figures(book.state, end, began_s, estimator, path)

    def _planner(self, book: Book, estimate: Callable[[], None], seconds: float) -> Planner:
        def stop() -> StoppedBy | None:
            if self.now() >= seconds:
                return "seconds"
            return "target" if target_met(book.state) else None

        def steer(spec: CampaignSpec, dims: System) -> Steerer:
            steerer = steerer_of(spec, dims)
            ask = steerer.ask

            def timed(n: int = 1, pending: Sequence[float] = ()) -> list[Suggestion]:
                began = time.thread_time()
                found = ask(n, pending)
                self._asked(time.thread_time() - began)
                return found

            steerer.ask = timed  # type: ignore[method-assign]
            return steerer

        lanes = [lane.who for lane in self.lanes.values()]
        return planner_of(self.spec, book, lanes, stop=stop, estimate=estimate, steer=steer)

    def resume(self) -> tuple[float, float]:
        """Return how long it takes to take the campaign up again: to fold its journal, and to its first orders."""
        began = time.thread_time()
        folding = Fold(self._directory)
        with Journal[Record].open(self._directory / JOURNAL, Record, mode="resume", take=folding) as journal:
            book = Book(journal, folding.state)
            folded = time.thread_time()
            self._planner(book, lambda: None, inf).begin()
            return folded - began, time.thread_time() - folded

    def _asked(self, seconds: float) -> None:
        self._asks.append(seconds)
        self._known.append(self.now() - self._newest)

    def _send(self, emitted: Sequence[Any]) -> None:
        for emit in emitted:
            volley: Volley = emit.payload
            lane = self.lanes[volley.orders[0].substrate]
            # Messages of one line do not overtake each other.
            lane.ordered = max(lane.ordered, self._free + self._machine.message(self._rng))
            self._at(lane.ordered, partial(self._ordered, volley, lane))

    def _arrived(self, at: float, blocks: list[Block], made: float) -> None:
        """Write the blocks of a volley and send what follows; what would be written after the end is not."""
        if max(at, self._free) > self._end:
            return
        with self._supervising(at):
            self._newest = max(self._newest, made)
            sent: list[Any] = []
            for block in blocks:
                _, handed = self._recorder.step(None, block)
                sent += self._steer.step(None, handed.payload)[1]
        self._blocks += len(blocks)
        self._rows += sum(block.rows for block in blocks)
        self._send(sent)

    # -- lanes ------------------------------------------------------------------------------------------------------

    def _ordered(self, volley: Volley, lane: _Lane, at: float) -> None:
        for order in volley.orders:
            if order.brief is not None:
                brief = order.brief
                self._source.open(brief.id, brief.coordinate, brief.start)
                self._chains.setdefault(brief.id, _Chain(self.spec.warmup.longest, saved_at=at))
        lane.queue.append(volley)
        self._begin(at, lane)

    def _begin(self, at: float, lane: _Lane) -> None:
        if lane.running is not None or lane.down or not lane.queue:
            return
        lane.running, lane.began = lane.queue.popleft(), at
        work = self._work(at, lane, lane.running)
        lane.useful = work.useful
        life, end = lane.life, at + work.useful + work.repeated + work.saving
        self._at(end, lambda when: self._made(when, lane, life, work))

    def _work(self, at: float, lane: _Lane, volley: Volley) -> _Work:
        """Return what a volley takes: chains that come together move together."""
        sites = prod(self._lattice.dims)
        answers, rows, again, saving = [], 0, 0, 0.0
        for order in volley.orders:
            chain = self._chains[order.chain]
            if order.brief is not None and order.chain not in lane.held:
                lane.held.add(order.chain)
                again += chain.since
            if order.release or order.chain not in lane.held:
                answers.append((order, 0, False))
                continue
            self._visits_begun.setdefault(order.visit, at)
            warming = max(chain.warmup - chain.rows, 0)
            count = min(order.updates, warming + order.until - chain.measured)
            cost = sites * LINK_BYTES / CHECKPOINT_BYTES_PER_S
            due = at - chain.saved_at >= max(self.spec.running.checkpoint_s, 20 * cost * len(volley.orders))
            saving += cost * due
            rows += count
            answers.append((order, count, due))
        moved = sum(count > 0 for _, count, _ in answers)
        # A GPU with few chains takes as long for an update.
        slower = max(BUSY_SITES / (moved * sites), 1.0) if self._machine.wide and moved else 1.0
        row = self._lattice.thinning * sites * slower / lane.speed * max(1 + JITTER * self._rng.normal(), 0.5)
        return _Work(answers, rows * row, again * row, saving)

    def _made(self, at: float, lane: _Lane, life: int, work: _Work) -> None:
        if life != lane.life:
            return
        self._useful += work.useful
        self._repeated += work.repeated
        blocks = [self._block(at, lane, order, count, due, work) for order, count, due in work.answers]
        last = len(blocks) - 1
        whole = [_with_more(block, last - i) for i, block in enumerate(blocks)]
        lane.answered = max(lane.answered, at + self._machine.message(self._rng))
        self._at(lane.answered, lambda when: self._arrived(when, whole, at))
        lane.running = None
        self._begin(at, lane)

    def _block(self, at: float, lane: _Lane, order: Order, count: int, due: bool, work: _Work) -> dict[str, Any]:
        """Return what an order gave, rows drawn now."""
        named = {"visit": order.visit, "chain": order.chain, "substrate": order.substrate}
        chain = self._chains[order.chain]
        if order.release:
            lane.held.discard(order.chain)
            chain.since = 0
            return named | {"released": True, "step": chain.rows}
        if order.chain not in lane.held:
            return named | {"missing": True}
        drawn = self._source.take(order.chain, count)
        warm = min(max(chain.warmup - chain.rows, 0), count)
        parts: tuple[tuple[Phase, int, int], ...] = (("warmup", 0, warm), ("measure", warm, count))
        segments = [
            segment_of(phase, chain.rows + begin, dict(zip(LOOP, drawn[:, begin:end], strict=True)))
            for phase, begin, end in parts
            if end > begin
        ]
        chain.rows += count
        chain.measured += count - warm
        chain.since = 0 if due else chain.since + count
        chain.saved_at = at if due else chain.saved_at
        done = chain.measured >= order.until
        return named | {
            "step": chain.rows,
            "segments": segments,
            "measured": chain.measured,
            "done": done,
            "digest": "0" * 64 if done else "",
            "seconds": work.useful / len(work.answers),
            "saved": due,
        }

    def _fails_some_time(self, lane: _Lane, at: float) -> None:
        self._at(at + self._rng.exponential(3600 / self._machine.failures), lambda when: self._fail(when, lane))

    def _fail(self, at: float, lane: _Lane) -> None:
        self._failures += 1
        lane.life += 1
        lane.down = True
        lane.held.clear()
        if lane.running is not None:
            self._repeated += at - lane.began
            lane.queue.appendleft(lane.running)
            lane.running = None
        self._down += REPAIR_S
        self._at(at + REPAIR_S, lambda when: self._back(when, lane))
        self._fails_some_time(lane, at + REPAIR_S)

    def _back(self, at: float, lane: _Lane) -> None:
        lane.down = False
        # Briefs were for the GPU before; chains go on from them all the same.
        self._begin(at, lane)

    # -- figures ----------------------------------------------------------------------------------------------------

    def _figures(self, state: CampaignState, end: float, began_s: float, estimator: _Beside, path: Path) -> Figures:
        decided = {visit.visit: visit.at for visit in state.visits}
        lanes = len(self.lanes)
        under_way = [lane for lane in self.lanes.values() if lane.running is not None]
        useful = self._useful + sum(min(end - lane.began, lane.useful) for lane in under_way)
        return Figures(
            lanes=lanes,
            seconds=end,
            busy=useful / (lanes * end),
            supervisor=self._spent / end,
            began_s=began_s,
            rows=self._rows,
            blocks=self._blocks,
            journal_bytes=path.stat().st_size,
            ask_s=_two(self._asks),
            known_s=_two(self._known),
            begun_s=_two([begun - decided[visit] for visit, begun in self._visits_begun.items()]),
            estimates=len(estimator.took),
            estimate_s=_two(estimator.took),
            failures=self._failures,
            repeated_s=self._repeated,
            down_s=self._down,
            looks=tuple((look.at, look.error) for look in state.estimates if look.error is not None)[-3:],
        )


def _with_more(block: dict[str, Any], more: int) -> Block:
    return Block(**block, more=more)
