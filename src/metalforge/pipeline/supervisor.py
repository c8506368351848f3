"""One run of a graph: its workers and lanes, how input ends, who failed, and the verbs start, pause, drain, stop.

The two runtimes (`threads`, `inline`) add only how a worker is driven and how one waits for something to become true.
"""

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from metalforge.core.errors import PlacementError, SpecError, UnknownNameError, find

from .checks import lacking
from .endings import Endings
from .errors import BrokenError, DeadlockError, Failure, GraphError, PipelineError, StageTimeoutError
from .graph import PipelineGraph, StageSpec
from .hosts import Host, LocalHost
from .kinds import ChannelKind
from .lanes import NUDGE, Lane, LaneStatistics, Ring
from .metrics import Readings, StageMetrics, StageTotals, totals_of
from .stages import Context, OnSubstrate, StageConfig
from .worker import StageWorker, Stopped, Timer

if TYPE_CHECKING:
    from .builder import Edits, Pipeline
    from .events import EventLog
    from .graph import Graph
    from .inline import ManualClock
    from .reconfigure import Migration, Receipt

_LOOK_S = 0.05  # how often a drain that must not hang looks whether anything moves

RunStatus = Literal["new", "running", "paused", "ended", "stopped", "failed"]


class Run(ABC):
    """A graph that runs. Made by `Pipeline.start`; use it in a `with`."""

    grace_s = 5.0
    """How long a failed run waits for steps that are under way, and an interrupted one drains while something moves."""
    patience_s = 1.0
    """How long an interrupted run waits for anything to move, and a step in a thread may be past its timeout."""
    hang_s: float | None = 60.0
    """How long verbs without a timeout wait for a step that does not return; leaving `with`: while nothing moves."""
    explore = False
    """Whether workers stop at every place where another could go first."""

    def __init__(
        self,
        graph: PipelineGraph,
        *,
        clock: "ManualClock | None" = None,
        events: "EventLog | None" = None,
    ) -> None:
        self.graph = graph.resolved()
        self.clock_ns: Callable[[], int] = time.perf_counter_ns if clock is None else clock.now_ns
        self.events = events
        self.lock = threading.RLock()
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
        self.given_up: tuple[str, ...] = ()
        """Stages that did not return from a step when the run stopped: threads abandoned, processes killed."""
        self.status: RunStatus = "new"
        self._admin = threading.RLock()
        self._started_ns = 0
        for spec in self.graph.stages.values():
            self.workers[spec.name] = self.make_worker(spec)
        for edge in self.graph.edges:
            assert edge.channel is not None
            self.connect(edge.source, edge.target, edge.channel)
        self._make_rings()
        self.readings = Readings(self)

    # -- making ---------------------------------------------------------------------------------------------------

    def make_worker(self, spec: StageSpec) -> StageWorker:
        """Return a worker for a stage, not yet started."""
        return StageWorker(spec, self, self.make_host(spec))

    def make_host(self, spec: StageSpec) -> Host:
        """Return the place where a stage's code runs."""
        context = Context(
            spec.name,
            spec.substrate if isinstance(spec.substrate, OnSubstrate) else None,
            stopping=lambda: self.aborting,
            clock_ns=self.clock_ns,
        )
        if spec.config.isolation == "process":
            from .processes import ProcessHost

            return ProcessHost(spec)
        return LocalHost(spec, context, self.clock_ns)

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

    def _make_rings(self) -> None:
        self.endings.regroup()
        for edge in self.graph.edges:
            if edge.tokens is not None:
                ring = Ring(frozenset(self.endings.part_of[edge.source].members), edge.tokens, self._wake_sources)
                self.ring_of |= dict.fromkeys(ring.members, ring)

    def _wake_sources(self, members: frozenset[str]) -> None:
        for name in members:
            if self.workers[name].is_source:
                self.workers[name].inbox.put(NUDGE)

    # -- what runtimes add ----------------------------------------------------------------------------------------

    @abstractmethod
    def launch(self, worker: StageWorker) -> None:
        """Begin to drive a worker."""

    @abstractmethod
    def wait_until(self, ready: Callable[[], bool], timeout: float | None = None, *, poll: bool = False) -> bool:
        """Wait until `ready()` holds; False when it cannot, or not within `timeout` seconds.

        Changes of a worker's life are announced; for anything else, such as counts of items, say `poll`.
        """

    @abstractmethod
    def notify(self) -> None:
        """Say that something changed that somebody may wait for."""

    def _release(self) -> None:  # noqa: B027 - nothing to give back by default
        """Give back what the runtime holds, when every worker has ended."""

    # -- words from workers ---------------------------------------------------------------------------------------

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
        self._abort()

    def _abort(self) -> None:
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

    # -- verbs ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every stage."""
        self.status = "running"
        self._started_ns = self.clock_ns()
        self.note("run.started", self.graph.name)
        for worker in list(self.workers.values()):
            self.prepare(worker)
            self.launch(worker)
        return self

    def prepare(self, worker: StageWorker) -> None:
        """Make a worker ready to be launched: its clock and its power budget start now."""
        worker.meter.started_ns = self.clock_ns()
        worker.throttle = self.readings.throttle_of(worker)

    def all_workers(self) -> list[StageWorker]:
        """Return every worker: of the graph, detached, and removed ones that are ending."""
        return [*self.workers.values(), *self.detached.values(), *self.retired]

    def _all_ended(self) -> bool:
        return all(w.ended for w in self.all_workers())

    def _is_done(self) -> bool:
        """Whether every stage has ended or was abandoned."""
        return all(w.ended or w.abandoned for w in self.all_workers())

    def is_over(self) -> bool:
        """Whether the run has ended, failed or is stopping."""
        return self.aborting or self._all_ended()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; True when it came within `timeout` seconds. Raises what the run failed of."""
        ended = self.wait_until(lambda: self.error is not None or self._is_done(), timeout)
        if self.error is not None:
            # A thread cannot be killed: a step that does not look at ctx.cancelled() must not keep the news back.
            if abandoned := self._wind_up(self.grace_s, self._is_done):
                self.error.add_note(abandoned)
            self._close()
            raise self.error
        if ended:
            self._close()
        return ended

    def _close(self) -> None:
        if self._is_done():
            self._release()
            self.note(f"run.{self.status}", self.graph.name)
            if self.events is not None:
                self.events.close()
                self.events = None

    def drain(self, timeout: float | None = None, *, patience_s: float | None = None) -> bool:
        """Let sources stop and everything in flight be processed; True when that ended within `timeout` seconds.

        With `patience_s` a graph in which nothing moved for so long (and for twice the longest step that its busy
        stages have taken so far, and until a retry is due) is stopped: what still hangs in a step then is abandoned,
        which a warning says.
        """
        with self._admin:
            for worker in self.workers.values():
                worker.draining = True
                self.nudge(worker)
            self.resume()
        if patience_s is None:
            return self.wait(timeout)
        began = moved = time.monotonic()
        before = self._progress()
        while not self.wait(_LOOK_S):
            now, progress = time.monotonic(), self._progress()
            if progress != before:
                before, moved = progress, now
            busy = [w for w in self.all_workers() if w.waiting is None and not w.ended]
            longest_ns = max((w.meter.latency.percentile(100) or 0.0 for w in busy), default=0.0)
            rests = any(isinstance(w.waiting, Timer) for w in self.all_workers())
            patient = rests or now - moved < max(patience_s, 2e-9 * longest_ns)
            if not patient or (timeout is not None and now - began > timeout):
                return self.stop(self.patience_s / 2)
        return True

    def _progress(self) -> tuple[int, ...]:
        """Return counters of which one at least grows while anything moves."""
        workers = self.all_workers()
        lanes = [lane for w in workers for lane in list(w.out_lanes)]
        done = [n for w in workers for n in (w.meter.items, w.meter.outputs, w.meter.failed, w.meter.retries)]
        return (*done, *(n for lane in lanes for n in (lane.sent, lane.taken, lane.done)))

    def stop(self, timeout: float | None = None) -> bool:
        """Stop at the next border of every stage; what is in flight is given up. True when all ended in time.

        A stage that does not come back from its step within `timeout` seconds (twice `grace_s` where none is given) is
        abandoned, which a warning says.
        """
        with self.lock:
            for worker in self.workers.values() if self.status == "new" else ():
                worker.ended = True  # never launched
            if self.status in ("new", "running", "paused"):
                self.status = "stopped"
        self._abort()
        if abandoned := self._wind_up(2 * self.grace_s if timeout is None else timeout, self._all_ended):
            warnings.warn(abandoned, RuntimeWarning, stacklevel=2)
        self._close()
        return self._all_ended()

    def _wind_up(self, timeout: float, over: Callable[[], bool]) -> str:
        """Wait for the workers of a run that stops; returns which threads were abandoned in a step, in words.

        Processes that are still in a step after half of the time are killed.
        """
        if self.wait_until(over, timeout / 2):
            return ""
        late = [w for w in self.all_workers() if not (w.ended or w.abandoned)]
        killed = [w for w in late if hasattr(w.host, "interrupt")]
        for worker in killed:
            worker.host.interrupt()  # type: ignore[union-attr]
        self.wait_until(over, timeout / 2)
        hung = [w for w in late if not w.ended]
        for worker in hung:
            worker.abandoned = True
            self.note("stage.abandoned", worker.name)
        self.given_up += tuple(w.name for w in late if w in killed or w in hung)
        names = ", ".join(f"`{w.name}`" for w in hung)
        return f"abandoned after {timeout:g} s in a step that did not return: stage {names}" if hung else ""

    def pause(self, timeout: float | None = None) -> bool:
        """Pause every stage at its next border; True when all stand within `timeout` seconds (`hang_s`).

        Where a step does not return in time nothing is paused, and a warning says whose it is.
        """
        with self._admin:
            late = self.hold(self.all_workers(), timeout)
            if late and not self.aborting:
                warnings.warn(f"the run is not paused: {late}", RuntimeWarning, stacklevel=2)
            elif self.status == "running" and not self.aborting:
                self.status = "paused"
            return not late

    def resume(self) -> None:
        """Let paused stages go on."""
        with self._admin:
            self.let_go(self.all_workers())
            if self.status == "paused":
                self.status = "running"

    def hold(self, workers: list[StageWorker], timeout: float | None = None) -> str:
        """Park some workers at their next border; when not all stand in time, none is held and the reason returned."""
        timeout = self.hang_s if timeout is None else timeout
        for worker in workers:
            worker.gate = True
            self.nudge(worker)
        self.wait_until(lambda: self.aborting or all(w.parked or w.ended for w in workers), timeout)
        late = ", ".join(f"`{w.name}`" for w in workers if not (w.parked or w.ended))
        if not (late or self.aborting):
            return ""
        self.let_go(workers)
        return "the run is stopping" if self.aborting else f"no return from a step within {timeout} s: stage {late}"

    def let_go(self, workers: list[StageWorker]) -> None:
        """Open the gate for some workers."""
        for worker in workers:
            worker.gate = False
            worker.wakeup.put(NUDGE)

    def send_config(self, stage: str, config: Any, timeout: float | None = None) -> None:
        """Give a stage a new configuration at its next border; returns when it has it.

        A `StageConfig` changes how the stage is run; anything else goes to its `configure(state, config)`.
        """
        worker = self.worker(stage)
        if isinstance(config, StageConfig):
            for name in ("droppable", "isolation"):
                if getattr(config, name) != getattr(worker.config, name):
                    raise SpecError(f"`{name}` changes the graph: use reconfigure(Edits().change_stage(...))")

        def take() -> None:
            if isinstance(config, StageConfig):
                from .reconfigure import swap_host

                swap_host(self, worker, replace(worker.spec, config=config))
            else:
                worker.host.configure(config)

        self.order(worker, take, timeout)
        self._respecify(worker.spec)
        self.note("stage.configured", stage)

    def order(self, worker: StageWorker, work: Callable[[], None], timeout: float | None = None) -> None:
        """Let a worker do something at its next border, on its own thread; returns when done, raises what it raised."""
        done: list[BaseException | None] = []

        def obey() -> None:
            try:
                work()
                done.append(None)
            except Exception as error:
                done.append(error)
            self.notify()

        worker.orders.append(obey)
        self.nudge(worker)
        timeout = self.hang_s if timeout is None else timeout
        if not self.wait_until(lambda: bool(done) or worker.ended, timeout):
            with suppress(ValueError):  # it has begun
                worker.orders.remove(obey)
            raise TimeoutError(f"stage `{worker.name}` did not return from a step within {timeout} s")
        if not done:
            raise BrokenError(f"stage `{worker.name}` ended before it took its orders", self.error)
        if done[0] is not None:
            raise done[0]

    def reconfigure(
        self,
        change: "PipelineGraph | Graph | Pipeline | Edits",
        *,
        queued: Literal["carry", "drain", "leave"] = "carry",
        timeout: float | None = None,
        drain_s: float = 5.0,
    ) -> "Receipt":
        """Rewire the graph while it runs: a new topology of its stages, a new pipeline, or single edits.

        Stages that a topology or a pipeline leaves out are detached: they process what is queued for them and keep
        their state and counters, with which a later topology attaches them again. `Edits().remove_stage` ends a stage.
        Refused as a whole (`GraphError`) when the result would not pass `build`; the old graph then runs on. With
        `drain`, consumers first process what is queued on the edges that change (at most `drain_s`: in a cycle the held
        producer may be the one they wait for; what is left then is carried). With `leave`, a stage that is taken away
        processes what is queued before it, whatever new edges its producers got.
        """
        from .builder import Edits
        from .reconfigure import reconfigure

        with self._admin:
            detaches = not isinstance(change, Edits)
            return reconfigure(self, self.graph_after(change), queued, timeout, drain_s, detaches=detaches)

    def graph_after(self, change: "PipelineGraph | Graph | Pipeline | Edits") -> PipelineGraph:
        """Return the graph that a change would lead to."""
        from .builder import Edits, Pipeline

        detached = {name: worker.spec for name, worker in self.detached.items()}
        if isinstance(change, Edits):
            try:
                new = change.apply(self.graph)
            except UnknownNameError as error:
                if error.name not in detached:
                    raise
                problem = f"stage `{error.name}` is detached: a topology or an edge attaches it, then it can be changed"
                raise GraphError([problem]) from error
            named = {name for edge in new.edges for name in edge.ends}
            return replace(new, stages={**{n: s for n, s in detached.items() if n in named}, **new.stages})
        if isinstance(change, Pipeline):
            return change.graph
        if isinstance(change, PipelineGraph):
            return change
        return replace(self.graph, stages={**detached, **self.graph.stages}).with_topology(change)

    def migrate(self, stage: str, to: "OnSubstrate | str", timeout: float | None = None) -> "Migration":
        """Move a stage with its state to another substrate, at an item border, while the rest runs.

        A name must be that of a substrate of this graph or of this machine.
        """
        from .reconfigure import find_substrate, swap_host

        worker = self.worker(stage)
        there = find_substrate(to, [w.spec for w in self.all_workers()])
        spec = replace(worker.spec, substrate=there)
        if lacks := lacking(spec):
            raise PlacementError(lacks)  # and nothing has changed
        moved: list[Migration] = []
        with self._admin:
            self.order(worker, lambda: moved.append(swap_host(self, worker, spec)), timeout)
            self._respecify(spec)
        return moved[0]

    def _respecify(self, spec: StageSpec) -> None:
        with self.lock:
            if spec.name in self.graph.stages:
                self.graph = replace(self.graph, stages={**self.graph.stages, spec.name: spec})

    def checkpoint(self, stage: str, timeout: float | None = None) -> bytes:
        """Return the state of a stage at its next border."""
        worker = self.worker(stage)
        saved: list[bytes] = []
        self.order(worker, lambda: saved.append(worker.host.checkpoint()), timeout)
        return saved[0]

    def worker(self, stage: str) -> StageWorker:
        """Return the worker of a stage, attached or detached, by its name."""
        return find("stage", stage, self._stages())

    def _stages(self) -> dict[str, StageWorker]:
        return {**self.workers, **self.detached}

    # -- looking --------------------------------------------------------------------------------------------------

    def metrics(self, stage: str) -> StageMetrics:
        """Return what a stage has done since the run began."""
        return self.readings.of(self.worker(stage))

    def snapshot(self) -> dict[str, StageMetrics]:
        """Return the metrics of every stage."""
        return {name: self.readings.of(worker) for name, worker in self._stages().items()}

    def totals(self) -> dict[str, StageTotals]:
        """Return the sums of every stage, cheap enough for a look every second at hundreds of them."""
        now_ns = self.clock_ns()
        return {name: totals_of(worker, now_ns) for name, worker in self._stages().items()}

    def edges(self) -> list[LaneStatistics]:
        """Return what every edge has carried."""
        return [lane.statistics() for w in list(self.workers.values()) for lane in list(w.out_lanes)]

    def is_stuck(self) -> bool:
        """Whether every stage waits for something that only another stage could give."""
        alive = [w for w in self.all_workers() if not w.ended]
        return self.status == "running" and bool(alive) and all(w.is_blocked() for w in alive)

    def deadlock(self) -> DeadlockError:
        """Return the error of a run in which every stage waits."""
        lines = [f"  {w.name}: {w.why_waiting()}" for w in self.all_workers()]
        return DeadlockError("\n".join(["every stage waits for another:", *lines]))

    # -- with -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave in order: wait for the end after draining; after an exception, stop.

        Where a step does not return, and nothing else moves for `hang_s` seconds, the run is stopped and that raises.
        """
        if error is None:
            if self.status != "failed" and self._is_done():
                self._close()
            elif not self.aborting:
                self.drain(patience_s=self.hang_s)
                if self.status == "stopped":
                    raise StageTimeoutError(
                        f"the run was stopped, and what was in flight is lost: nothing moved for {self.hang_s} s; "
                        f"stages whose step did not return: {', '.join(self.given_up) or 'none any more'}\n"
                        "hint: run.wait() inside `with` waits as long as steps take; `timeout_s` of a stage limits them"
                    )
            else:
                self.wait(self.grace_s)
            return
        try:
            if isinstance(error, KeyboardInterrupt) and not self.aborting and self._drained_in_time():
                return
        finally:
            if not self._is_done():
                self.stop(self.patience_s if isinstance(error, KeyboardInterrupt) else self.grace_s)

    def _drained_in_time(self) -> bool:
        """Whether a drain ends in bounded time; a failure on the way out is kept in `error`."""
        try:
            return self.drain(self.grace_s, patience_s=self.patience_s)
        except PipelineError:
            return False


def _unexpected(worker: StageWorker, error: BaseException) -> PipelineError:
    wrapped = PipelineError(f"stage `{worker.name}` broke outside of a step: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
