"""The life of one stage, as a generator that yields the queue it waits on.

A worker never blocks by itself: where it has to wait, it yields a queue and is sent what came out of it. A thread that
calls `queue.get()` runs one worker for real; a loop that looks for non-empty queues runs all of them on one thread, in
any order it likes. Both runtimes run this very code, so results of many seeded schedules hold for the threads.

A border is where a worker can be paused: between items, or with outputs in `outbox` for which there was no room yet.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .errors import PipelineError, failure_of
from .graph import StageSpec
from .hosts import Host, LocalHost
from .items import Emit, Item, ItemId, payload_bytes
from .lanes import END, NUDGE, BoundedLane, Inbox, Lane, Ring, Word
from .metrics import StageMeter, Throttle
from .stages import Source

if TYPE_CHECKING:
    from .run import RunCore


class Stopped(Exception):  # noqa: N818 - a signal between worker and driver
    """The run is being stopped: the worker ends without ceremony."""


class Timer:
    """A queue that has something when its time has come, or when the worker is nudged."""

    def __init__(self, due_ns: int, clock_ns: Callable[[], int], wakeup: Inbox) -> None:
        self.due_ns, self._clock_ns, self._wakeup = due_ns, clock_ns, wakeup

    def qsize(self) -> int:
        """Whether it is time."""
        return int(self._clock_ns() >= self.due_ns or self._wakeup.qsize() > 0)

    def get(self) -> None:
        """Wait until it is time."""
        left = (self.due_ns - self._clock_ns()) * 1e-9
        if left > 0:
            with suppress(Empty):
                self._wakeup.get(True, left)


TICK: Final = Timer(0, lambda: 0, SimpleQueue())
"""Always has something: a place where another worker may go first."""
Waits: TypeAlias = Generator[Any, Any, None]


class StageWorker:
    """One stage of a run: its inbox, its lanes, its host, and where it is in its life."""

    def __init__(self, spec: StageSpec, run: "RunCore", host: Host) -> None:
        self.name, self.spec, self.config, self.run, self.host = spec.name, spec, spec.config, run, host
        self.inbox: Inbox = SimpleQueue()
        self.wakeup: Inbox = SimpleQueue()
        self.in_lanes: list[Lane] = []
        self.out_lanes: list[Lane] = []
        self.outbox: deque[tuple[Lane, Item]] = deque()
        self.orders: deque[Callable[[], None]] = deque()
        self.sequence: dict[str, int] = {}
        self.meter = StageMeter(run.clock_ns())
        self.is_source = isinstance(spec.stage, Source)
        self.exhausted = not self.is_source
        """No source, or one that will produce nothing more."""
        self.gate = self.parked = self.closing = self.finished = self.ended = self.opened = False
        self.draining = self.finish_asked = False
        self.abandoned = False
        """Left behind in a step that did not come back."""
        self.bond: Literal["attached", "leaving", "told", "detached"] = "attached"
        """In the graph; processing what is queued from it; told to close its edges; idle without edges."""
        self.past: Counter[str] = Counter()
        """What edges that have ended had lost."""
        self.waiting: Any = None
        """The queue this worker waits on; None while it works."""
        self.active = False
        self.throttle: Throttle | None = None
        self.ended_ns = 0
        self._skips = 0
        self._stayed = 0
        """How many outputs of the present item stay in a ring with tokens."""
        self.stream: Iterator[Any] | None = None
        """What is left of the generator whose outputs are being sent."""

    def is_blocked(self) -> bool:
        """Whether this worker waits for something that only another could give."""
        waiting = self.waiting
        if waiting is None or waiting is self.wakeup or self.gate:
            return False
        return hasattr(waiting, "put") and not waiting.qsize()

    def is_overdue(self, slack_s: float) -> bool:
        """Whether a step in a thread is past its timeout by more than `slack_s`."""
        if self.ended or self.abandoned or not isinstance(self.host, LocalHost):
            return False
        deadline_ns = self.host.context.deadline_ns
        return deadline_ns is not None and self.run.clock_ns() > deadline_ns + int(slack_s * 1e9)

    def why_waiting(self) -> str:
        """Return what this worker waits for, in words."""
        waiting = self.waiting
        if self.ended:
            return "ended"
        if waiting is None:
            return "working"
        if waiting is self.inbox:
            return f"waits for an item from {', '.join(lane.source for lane in self.in_lanes) or 'nothing'}"
        if waiting is self.wakeup:
            return "paused"
        for lane in self.out_lanes:
            if waiting is lane.credits or waiting is lane.space:
                return f"waits for room on {lane.edge} ({lane.queued} queued): waits for {lane.target}"
        for ring in set(self.run.ring_of.values()):
            if waiting is ring.tokens:
                return f"waits for a token of the cycle {', '.join(sorted(ring.members))}"
        return "waits for its time"

    # -- the life -------------------------------------------------------------------------------------------------

    def life(self) -> Waits:
        """Run the stage from open to close; yields the queues it waits on."""
        clock_ns, meter, inbox, run = self.run.clock_ns, self.meter, self.inbox, self.run
        meter.started_ns, self.throttle = clock_ns(), run.readings.throttle_of(self)
        if run.aborting:
            raise Stopped
        self.host.open()
        self.opened = True
        while True:
            if self.gate or self.orders or run.aborting:
                yield from self._attend()
            if not self.exhausted and self.bond == "attached":
                if run.explore:
                    yield TICK
                if self.draining:
                    self._exhaust()
                elif not inbox.qsize() and self._may_produce():
                    yield from self._work(lambda: self.host.produce())
                    continue
            if self.closing and not inbox.qsize():
                run.settle(self)
            began = meter.since_ns = clock_ns()
            message = yield inbox
            now = clock_ns()
            meter.since_ns = 0
            meter.get_ns += now - began
            if message is NUDGE:
                continue
            lane, body = message
            if body is Word.CLOSE:
                for out in self.out_lanes:
                    out.close()
                return
            if body is Word.DETACH:
                self._detach()
            elif body is Word.FINISH:
                yield from self._finish()
            elif body is END:
                lane.ended = True
                run.lane_ended(self, lane)
            else:
                item = lane.take(body)
                item.received = now
                yield from self._work(partial(self._step, item), item, lane)

    def _attend(self) -> Waits:
        """Stop, take orders, or wait at the gate."""
        while True:
            if self.run.aborting:
                raise Stopped
            while self.orders:
                self.complete()
                self.orders.popleft()()
            if not self.gate:
                return
            self.parked = True
            self.run.notify()
            yield self.wakeup
            self.parked = False

    def _detach(self) -> None:
        """Close the edges out of a stage that left the graph; it waits, with its state and counters, to be attached."""
        with self.run.lock:
            for out in self.out_lanes:
                out.close()
            self.out_lanes.clear()
            if self.bond == "told":  # not where the run has ended meanwhile
                self.bond = "detached"
        self.run.notify()

    def _finish(self) -> Waits:
        """Send the last outputs, now that all input has ended."""
        began = self.run.clock_ns()
        outputs = yield from self._attempt(None, self.host.finish)
        self.meter.busy_ns += self.run.clock_ns() - began
        if outputs:
            if not self._may_produce():
                raise PipelineError(f"stage `{self.name}` has last outputs and its cycle has no token left")
            yield from self._deliver(outputs, None, self.host.finish)
            self._return_token()
        self.finished = True
        self.run.settle(self)

    # -- work -----------------------------------------------------------------------------------------------------

    def _work(self, work: Callable[[], Any], item: Item | None = None, lane: Lane | None = None) -> Waits:
        """Process one item, or produce without one; send what comes of it and count it."""
        clock_ns, meter = self.run.clock_ns, self.meter
        began = meter.since_ns = clock_ns()
        try:
            outputs: Any = work()
        except Exception as error:
            outputs = yield from self._attempt(item, work, error)
        else:
            self._skips = 0
        ended = clock_ns()
        meter.since_ns = 0
        meter.busy_ns += ended - began
        if item is not None:
            item.started, item.ended = began, ended
        if outputs:
            yield from self._deliver(outputs, item, work)
        if self.run.ring_of:
            self._return_token()
        if outputs is None:  # the end of a source
            self._exhaust()
            return
        meter.items += 1
        if lane is None or item is None:
            meter.latency.add(ended - began)
        else:
            meter.latency.add(item.ended - item.started)
            if self.run.events is not None:
                self.run.events.item(self.name, item)
            lane.done += 1
        if self.throttle is not None and (rest_s := self.throttle.rest_s()) > 0:
            began = clock_ns()
            yield Timer(began + int(rest_s * 1e9), clock_ns, self.wakeup)
            meter.throttled_ns += clock_ns() - began

    def _step(self, item: Item) -> Any:
        return self.host.step(item)  # the host of the moment: a stage may move between two attempts

    def _return_token(self) -> None:
        """Give the token of the item just processed back, unless it went on around the ring."""
        ring = self.run.ring_of.get(self.name)
        if ring is not None and not self._stayed:
            ring.leave()
        self._stayed = 0

    def _may_produce(self) -> bool:
        ring = self.run.ring_of.get(self.name)
        return ring is None or ring.enter()

    def _exhaust(self) -> None:
        self.exhausted = True
        self.run.settle(self)

    def _attempt(self, item: Item | None, work: Callable[[], Any], error: Exception | None = None) -> Any:
        """Do `work` by the stage's error policy; returns its outputs, or nothing when the item was skipped.

        With an `error`, the first attempt was made already and raised that.
        """
        config, clock_ns = self.config, self.run.clock_ns
        attempts = 0
        while True:
            attempts += 1
            if error is None:
                try:
                    outputs = work()
                    self._skips = 0
                    return outputs
                except Exception as raised:
                    error = raised
            if self.run.aborting:
                raise Stopped
            if config.on_error != "retry" or attempts > config.retries:
                break
            self.meter.retries += 1
            if config.backoff_s:
                due_ns = clock_ns() + int(config.backoff_s * 2 ** (attempts - 1) * 1e9)
                yield Timer(due_ns, clock_ns, self.wakeup)
            elif self.run.explore:
                yield TICK
            if self.run.aborting:
                raise Stopped
            error = None
        action = config.after_retries if config.on_error == "retry" else config.on_error
        self._skips += item is None
        if item is None and self._skips > config.retries:  # a source that only fails has nothing to skip to
            action = "stop"
        self.meter.failed += 1
        self.run.report(failure_of(self.name, item, error, attempts=attempts, action=action), error)
        if action == "stop":
            raise Stopped
        return []

    # -- delivery -------------------------------------------------------------------------------------------------

    def _deliver(self, outputs: Any, parent: Item | None, again: Callable[[], Any]) -> Waits:
        """Send what a step made, one output after the other; `again` repeats a step whose generator raises."""
        if type(outputs) is list:
            yield from self._send(outputs, parent)
            return
        clock_ns, sent = self.run.clock_ns, 0
        self.stream = outputs

        def repeated() -> tuple[Iterator[Any], Any]:
            stream = iter(again())
            for _ in range(sent):  # what went out already
                next(stream, None)
            return stream, next(stream, END)

        while True:
            began = clock_ns()
            try:
                output = next(self.stream, END)
            except Exception as error:
                made = yield from self._attempt(parent, repeated, error)
                if not made:  # skipped
                    break
                self.stream, output = made
            self.meter.busy_ns += clock_ns() - began
            if output is END:
                break
            sent += 1
            yield from self._send([output], parent)
        self.stream = None
        if parent is not None:
            parent.ended = clock_ns()

    def complete(self) -> None:
        """Take what is left of a generator at once: the state that is kept at its end is about to be looked at."""
        if self.stream is not None:
            rest: list[Any] = []
            try:
                rest.extend(self.stream)
                self.stream = iter(rest)
            except Exception as error:
                self.stream = _then_raise(rest, error)

    def _send(self, outputs: list[Any], parent: Item | None) -> Waits:
        """Put outputs into envelopes, and these into the lanes that want them; waits wherever there is no room."""
        for output in outputs:
            to = header = None
            chain, payload = self.name if parent is None else parent.id.chain, output
            if type(output) is Emit:
                payload, header, chain_of_emit, to = output
                chain = chain if chain_of_emit is None else chain_of_emit
            sequence = self.sequence.get(chain, 0)
            self.sequence[chain] = sequence + 1
            parents = () if parent is None else (parent.id,)
            identity, now_ns = ItemId(self.name, chain, sequence), self.run.clock_ns()
            item = Item(identity, payload, parents, header, now_ns, payload_bytes(payload))
            self.meter.outputs += 1
            lanes = self.out_lanes
            if not lanes:
                self.meter.discarded += 1
            elif to is not None:
                lanes = yield from self._attempt(item, partial(self._lanes_to, to))
            used = False
            for lane in lanes:
                try:
                    wanted = lane.wants(item)
                except PipelineError as error:
                    wanted = yield from self._attempt(item, partial(lane.wants, item), error)
                if wanted:
                    self.outbox.append((lane, item.twin() if used else item))
                    used = True
        if self.run.ring_of and (ring := self.run.ring_of.get(self.name)) is not None:
            self._stayed = ring.check(self.name, self._stayed, [lane for lane, _ in self.outbox])
        if self.outbox:
            yield from self._flush()

    def _lanes_to(self, stage: str) -> list[Lane]:
        """Return the lane to one stage."""
        if lanes := [lane for lane in self.out_lanes if lane.target == stage]:
            return lanes
        there = ", ".join(f"`{lane.target}`" for lane in self.out_lanes)
        raise PipelineError(f"stage `{self.name}` sends to `{stage}`, where it has no edge; it has edges to {there}")

    def _flush(self) -> Waits:
        """Send everything in the outbox; wherever there is no room, wait for it."""
        outbox, run, clock_ns = self.outbox, self.run, self.run.clock_ns
        while outbox:
            if run.explore:
                yield TICK
            if self.gate or self.orders or run.aborting:
                yield from self._attend()  # the graph, and with it the outbox, may be another one afterwards
                continue
            lane, item = outbox[0]
            ring = run.ring_of.get(lane.target) if run.ring_of else None
            if ring is not None and not ring.inside(lane):
                wait_for = self._way_in(ring, lane, item)
            elif lane.offer(item):
                wait_for = None
            elif self.gate or self.orders or run.aborting:
                continue  # the offer may have swallowed the nudge that announced it
            else:
                wait_for = lane.space if lane.space is not None and not lane.fits(item.bytes) else lane.credits
            if wait_for is not None:
                began = self.meter.since_ns = clock_ns()
                got = yield wait_for
                self.meter.since_ns = 0
                self.meter.put_ns += clock_ns() - began
                if got is NUDGE or wait_for is lane.space:
                    continue
                if ring is not None and not ring.inside(lane):
                    wait_for.put(got)  # seen, not taken: token and room are taken together
                    continue
                lane.push(item)
            outbox.popleft()

    def _way_in(self, ring: Ring, lane: Lane, item: Item) -> Inbox | None:
        """Send an item into a ring if there is a token and room; else return what to wait for."""
        if isinstance(lane, BoundedLane) and not lane.credits.qsize():
            return lane.credits
        if not ring.enter():
            return ring.tokens
        if not lane.offer(item):
            ring.leave()
            return lane.credits
        return None


def _then_raise(values: list[Any], error: Exception) -> Iterator[Any]:
    yield from values
    raise error
