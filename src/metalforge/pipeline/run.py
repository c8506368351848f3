"""The workers and lanes of one run, the threads that drive them, and what workers tell it: ends and failures.

Kernels release the interpreter lock, so stages compute at the same time; what does not can be given a process of its
own (`StageConfig(isolation="process")`). A waiting thread costs nothing: it sleeps in a C-level queue.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from .endings import Endings
from .errors import DeadlockError, Failure, PipelineError, StageTimeoutError
from .graph import PipelineGraph, StageSpec
from .hosts import Host, LocalHost
from .kinds import ChannelKind
from .lanes import NUDGE, Lane, Ring
from .metrics import Readings
from .stages import Context
from .worker import StageWorker, Stopped

if TYPE_CHECKING:
    from .events import EventLog
    from .inline import ManualClock

_POLL_S = 0.002
RunStatus = Literal["new", "running", "paused", "ended", "stopped", "failed"]


class RunCore:
    """A graph that runs, as its workers see it; `supervisor.Run` adds the verbs."""

    grace_s = 5.0
    """How long a failed run waits for steps that are under way, and an interrupted one drains while something moves."""
    patience_s = 1.0
    """How long an interrupted run waits for anything to move, and a step in a thread may be past its timeout."""
    hang_s: float | None = 60.0
    """How long verbs without a timeout wait for a step that does not return; leaving `with`: while nothing moves."""
    watch_s = 0.25
    """Between two looks for stages that all wait; a run in which two looks find the same fails."""
    explore = False
    """Whether workers stop at every place where another could go first."""

    def __init__(
        self,
        graph: PipelineGraph,
        *,
        clock: "ManualClock | None" = None,
        events: "EventLog | None" = None,
        host_of: "Callable[[StageSpec], Host | None]" = lambda spec: None,
    ) -> None:
        self.graph, self._host_of = graph.resolved(), host_of
        self.clock_ns: Callable[[], int] = time.perf_counter_ns if clock is None else clock.now_ns
        self.events = events
        self.lock = threading.RLock()
        self._changed, self._over = threading.Condition(), threading.Event()
        self._threads: list[tuple[StageWorker | None, threading.Thread]] = []
        self.workers: dict[str, StageWorker] = {}
        self.retired: list[StageWorker] = []
        """Workers of stages that were removed, until they have ended."""
        self.detached: dict[str, StageWorker] = {}
        """Workers of stages that a topology left out: they keep state and counters, and can come back."""
        self.endings = Endings(self)
        self.ring_of: dict[str, Ring] = {}
        """The tokens of the cycle that a stage is part of; such a cycle does not change while the run lasts."""
        self.aborting = False
        self.failures: list[Failure] = []
        self.error: BaseException | None = None
        """What the run failed of."""
        self.status: RunStatus = "new"
        self.started_ns = 0
        for spec in self.graph.stages.values():
            self.workers[spec.name] = StageWorker(spec, self, self.make_host(spec))
        for edge in self.graph.edges:
            assert edge.channel is not None
            self.connect(edge.source, edge.target, edge.channel)
        self.endings.regroup()
        for edge in self.graph.edges:
            if edge.tokens is not None:
                ring = Ring(frozenset(self.endings.part_of[edge.source].members), edge.tokens, self._wake_sources)
                self.ring_of |= dict.fromkeys(ring.members, ring)
        self.readings = Readings(self)

    # -- making ---------------------------------------------------------------------------------------------------

    def make_host(self, spec: StageSpec) -> Host:
        """Return the place where a stage's code runs: what `host_of` says, else a process or a thread here."""
        if (host := self._host_of(spec)) is not None:
            return host
        if spec.config.isolation == "process":
            from .processes import ProcessHost

            return ProcessHost(spec)
        return LocalHost(spec, Context(spec.name, spec.silicon, stopping=lambda: self.aborting, clock_ns=self.clock_ns))

    def connect(self, source: str, target: str, kind: ChannelKind) -> Lane:
        """Join two workers by a lane."""
        consumer = self.workers[target]
        lane = kind.open(source, target, consumer.inbox, droppable=consumer.config.droppable)
        consumer.in_lanes.append(lane)
        self.workers[source].out_lanes.append(lane)
        return lane

    def find(self, name: str) -> StageWorker:
        """Return a worker, also one that is detached, or was removed and is ending."""
        known = self.workers.get(name) or self.detached.get(name)
        return known or next(w for w in self.retired if w.name == name)

    def all_workers(self) -> list[StageWorker]:
        """Return every worker: of the graph, detached, and removed ones that are ending."""
        return [*self.workers.values(), *self.detached.values(), *self.retired]

    def _all_ended(self) -> bool:
        return all(w.ended for w in self.all_workers())

    def _wake_sources(self, members: frozenset[str]) -> None:
        for name in members:
            if self.workers[name].is_source:
                self.workers[name].inbox.put(NUDGE)

    # -- driving: a thread for each stage, and one that watches --------------------------------------------------------

    def launch(self, worker: StageWorker) -> None:
        """Begin to drive a worker: start its thread, and the one that watches with the first."""
        if not self._threads:
            self._begin("watchdog", None, self._watch)
        self._begin(worker.name, worker, partial(self._drive, worker))

    def _begin(self, name: str, worker: StageWorker | None, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"pipeline-{name}", daemon=True)
        self._threads.append((worker, thread))
        thread.start()

    def _drive(self, worker: StageWorker) -> None:
        """Run a worker: wait on the queue it yields, send it what came."""
        error: BaseException | None = None
        try:
            life = worker.life()
            queue = next(life)
            while True:
                worker.waiting = queue
                got = queue.get()
                worker.waiting = None
                queue = life.send(got)
        except StopIteration:
            pass
        except BaseException as raised:
            error = raised
        worker.waiting = None
        self.worker_ended(worker, error)

    def _watch(self) -> None:
        before: tuple[int, ...] | None = None
        while not self._over.wait(self.watch_s):
            for worker in self.all_workers():
                if worker.is_overdue(self.patience_s):
                    self.fail_late(worker)
            stuck = self.progress() if self.is_stuck() else None
            if stuck is not None and stuck == before:
                self.fail(self.deadlock())
                return
            before = stuck

    def notify(self) -> None:
        """Wake the threads that wait in `wait_until`."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, ready: Callable[[], bool], timeout: float | None = None, *, poll: bool = False) -> bool:
        """Wait until `ready()` holds; False when it cannot, or not within `timeout` seconds.

        Changes of a worker's life are announced; for anything else, such as counts of items, say `poll`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not ready():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(_POLL_S if poll and (left is None or left > _POLL_S) else left)
        return True

    def _release(self) -> None:
        """Give back what drives a run that has ended: no thread is left but those that were abandoned."""
        self._over.set()
        for worker, thread in self._threads:
            if thread is not threading.current_thread() and (worker is None or worker.ended or not worker.abandoned):
                thread.join()

    # -- reports of workers ---------------------------------------------------------------------------------------

    def lane_ended(self, worker: StageWorker, lane: Lane) -> None:
        """An edge has given its last item."""
        with self.lock:
            if lane in worker.in_lanes:
                worker.in_lanes.remove(lane)
                worker.past.update(dropped=lane.dropped, overwritten=lane.overwritten, filtered=lane.filtered)
                if worker in self.retired or worker.bond != "attached":
                    # One that was taken out of a cycle does not wait for its end; other parts may be ready, too.
                    self.endings.regroup()
                    self.endings.check_all()
            self.endings.check(worker.name)

    def settle(self, worker: StageWorker) -> None:
        """A worker has finished, a source is exhausted, or a worker of a part that is closing has nothing to do."""
        with self.lock:
            self.endings.check(worker.name)

    def note(self, event: str, name: str, **fields: Any) -> None:
        """Write a line of the event log, if there is one."""
        if self.events is not None:
            self.events.note(event, name, **fields)

    def report(self, failure: Failure, error: BaseException) -> None:
        """Take note of a failed item; a failure that stops fails the run."""
        with self.lock:
            self.failures.append(failure)
        self.note("failure", failure.stage, failure=failure)
        if failure.action == "stop":
            wrapped = PipelineError(str(failure), failure)
            wrapped.__cause__ = error
            self.fail(wrapped)

    def fail_late(self, worker: StageWorker) -> None:
        """Fail because a step in a thread did not come back from its timeout: nothing can end it but itself."""
        worker.abandoned = True
        self.note("stage.abandoned", worker.name)
        self.fail(
            StageTimeoutError(
                f"a step of stage `{worker.name}` did not come back within {self.patience_s} s of its timeout of "
                f"{worker.config.timeout_s} s: its thread is abandoned\n"
                'hint: look at ctx.cancelled() in long steps, or give the stage isolation="process", which is killed'
            )
        )

    def fail(self, error: BaseException) -> None:
        """Stop everything because of `error`; the first one counts."""
        with self.lock:
            if self.error is None and self.status not in ("ended", "stopped"):
                self.error = error
                self.status = "failed"
        self.abort()

    def abort(self) -> None:
        """Make every worker end at its next border."""
        self.aborting = True
        for worker in self.all_workers():
            self.nudge(worker)
        self.notify()

    def nudge(self, worker: StageWorker) -> None:
        """Make a waiting worker look at its orders."""
        worker.inbox.put(NUDGE)
        worker.wakeup.put(NUDGE)
        for lane in list(worker.out_lanes) + [lane for lane, _ in list(worker.outbox)]:
            lane.credits.put(NUDGE)
            if lane.space is not None:
                lane.space.put(NUDGE)
        for ring in set(self.ring_of.values()):
            ring.tokens.put(NUDGE)

    def worker_ended(self, worker: StageWorker, error: BaseException | None) -> None:
        """A worker's life is over, in order or by `error`; its driver calls this last."""
        if error is not None and not isinstance(error, Stopped):
            self.fail(error if isinstance(error, PipelineError) else _unexpected(worker, error))
        try:
            if worker.opened:
                worker.host.close()
        except Exception as closing:
            self.fail(_unexpected(worker, closing))
        with self.lock:
            worker.ended, worker.ended_ns = True, self.clock_ns()
            while worker.inbox.qsize():
                worker.inbox.get()
            if worker in self.retired:
                self.retired.remove(worker)
            if self.detached and all(w.ended for w in (*self.workers.values(), *self.retired)):
                self._end_detached()
            self.note("stage.ended", worker.name)
            if self._all_ended() and self.status in ("running", "paused"):
                self.status = "ended"
        self.notify()

    def _end_detached(self) -> None:
        """Let detached stages finish when all others have ended; their last outputs are counted as discarded."""
        waiting = [w for w in self.detached.values() if w.bond != "attached"]
        for worker in waiting:
            worker.bond, worker.draining = "attached", True
            self.nudge(worker)
        if waiting:
            self.endings.regroup()
            self.endings.check_all()

    def is_stuck(self) -> bool:
        """Whether every stage waits for something that only another stage could give."""
        alive = [w for w in self.all_workers() if not w.ended]
        return self.status == "running" and bool(alive) and all(w.is_blocked() for w in alive)

    def deadlock(self) -> DeadlockError:
        """Return the error of a run in which every stage waits."""
        lines = [f"  {w.name}: {w.why_waiting()}" for w in self.all_workers()]
        return DeadlockError("\n".join(["every stage waits for another:", *lines]))

    def progress(self) -> tuple[int, ...]:
        """Return counters of which one at least grows while anything moves."""
        workers = self.all_workers()
        lanes = [lane for w in workers for lane in list(w.out_lanes)]
        done = [n for w in workers for n in (w.meter.items, w.meter.outputs, w.meter.failed, w.meter.retries)]
        return (*done, *(n for lane in lanes for n in (lane.sent, lane.taken, lane.done)))


def _unexpected(worker: StageWorker, error: BaseException) -> PipelineError:
    wrapped = PipelineError(f"stage `{worker.name}` broke outside of a step: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
