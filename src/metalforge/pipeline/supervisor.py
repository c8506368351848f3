"""The verbs of a run: start, wait, drain, stop, pause, and changes of stages and of the graph while it runs.

Threads drive its workers (`run`); `inline` drives them on the caller's thread, `ray_` has actors do their work.
"""

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, Self, TypeVar

from metalforge.core import PlacementError, UnknownNameError, find

from .builder import Edits, Pipeline
from .checks import lacking
from .errors import BrokenError, GraphError, PipelineError, StageTimeoutError
from .graph import Graph, PipelineGraph
from .lanes import NUDGE, LaneStatistics
from .metrics import StageMetrics, StageTotals, totals_of
from .reconfigure import Migration, Receipt, find_substrate, reconfigure, swap_host
from .run import RunCore
from .stages import OnSubstrate
from .worker import StageWorker, Timer

_LOOK_S = 0.05  # how often a drain that must not hang looks whether anything moves
T = TypeVar("T")


class Run(RunCore):
    """A graph that runs. Made by `Pipeline.start`; use it in a `with`."""

    def __init__(self, graph: PipelineGraph, **options: Any) -> None:
        self.given_up: tuple[str, ...] = ()
        """Stages that did not return from a step when the run stopped: threads abandoned, processes killed."""
        self._verbs = threading.RLock()
        super().__init__(graph, **options)

    # -- from start to end ----------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every stage."""
        self.status = "running"
        self.started_ns = self.clock_ns()
        self.note("run.started", self.graph.name)
        for worker in list(self.workers.values()):
            self.launch(worker)
        return self

    def _is_done(self) -> bool:
        """Whether every stage has ended or was abandoned."""
        return all(w.ended or w.abandoned for w in self.all_workers())

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
        with self._verbs:
            for worker in self.workers.values():
                worker.draining = True
                self.nudge(worker)
            self.resume()
        if patience_s is None:
            return self.wait(timeout)
        began = moved = time.monotonic()
        before = self.progress()
        while not self.wait(_LOOK_S):
            now, progress = time.monotonic(), self.progress()
            if progress != before:
                before, moved = progress, now
            busy = [w for w in self.all_workers() if w.waiting is None and not w.ended]
            longest_ns = max((w.meter.latency.percentile(100) or 0.0 for w in busy), default=0.0)
            rests = any(isinstance(w.waiting, Timer) for w in self.all_workers())
            patient = rests or now - moved < max(patience_s, 2e-9 * longest_ns)
            if not patient or (timeout is not None and now - began > timeout):
                return self.stop(self.patience_s / 2)
        return True

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
        self.abort()
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

    # -- holding stages -------------------------------------------------------------------------------------------

    def pause(self, timeout: float | None = None) -> bool:
        """Pause every stage at its next border; True when all stand within `timeout` seconds (`hang_s`).

        Where a step does not return in time nothing is paused, and a warning says whose it is.
        """
        with self._verbs:
            late = self.hold(self.all_workers(), timeout)
            if late and not self.aborting:
                warnings.warn(f"the run is not paused: {late}", RuntimeWarning, stacklevel=2)
            elif self.status == "running" and not self.aborting:
                self.status = "paused"
            return not late

    def resume(self) -> None:
        """Let paused stages go on."""
        with self._verbs:
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

    # -- changing one stage ---------------------------------------------------------------------------------------

    def order(self, worker: StageWorker, work: Callable[[], T], timeout: float | None = None) -> T:
        """Let a worker do something at its next border, on its own thread; returns or raises what came of it."""
        done: list[tuple[T | None, Exception | None]] = []

        def obey() -> None:
            try:
                done.append((work(), None))
            except Exception as error:
                done.append((None, error))
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
        result, failed = done[0]
        if failed is not None:
            raise failed
        return result  # type: ignore[return-value]  # of `work`, which returned

    def checkpoint(self, stage: str, timeout: float | None = None) -> bytes:
        """Return the state of a stage at its next border."""
        worker = self.worker(stage)
        return self.order(worker, lambda: worker.host.checkpoint(), timeout)

    def send_config(self, stage: str, config: Any, timeout: float | None = None) -> None:
        """Call a stage's `configure(state, config)` at its next border; returns when it has it."""
        worker = self.worker(stage)
        self.order(worker, lambda: worker.host.configure(config), timeout)
        self.note("stage.configured", stage)

    def migrate(self, stage: str, to: OnSubstrate | str, timeout: float | None = None) -> Migration:
        """Move a stage with its state to another substrate, at an item border, while the rest runs.

        A name must be that of a substrate of this graph or of this machine.
        """
        worker = self.worker(stage)
        there = find_substrate(to, [w.spec for w in self.all_workers()])
        spec = replace(worker.spec, substrate=there)
        if lacks := lacking(spec):
            raise PlacementError(lacks)  # and nothing has changed
        with self._verbs:
            moved = self.order(worker, lambda: swap_host(self, worker, spec), timeout)
            with self.lock:
                if stage in self.graph.stages:
                    self.graph = replace(self.graph, stages={**self.graph.stages, stage: spec})
        return moved

    # -- changing the graph ---------------------------------------------------------------------------------------

    def reconfigure(
        self,
        change: PipelineGraph | Graph | Pipeline | Edits,
        *,
        queued: Literal["carry", "drain", "leave"] = "carry",
        timeout: float | None = None,
        drain_s: float = 5.0,
    ) -> Receipt:
        """Rewire the graph while it runs: a new topology of its stages, a new pipeline, or single edits.

        Stages that a topology or a pipeline leaves out are detached: they process what is queued for them and keep
        their state and counters, with which a later topology attaches them again. `Edits().remove_stage` ends a stage.
        Refused as a whole (`GraphError`) when the result would not pass `build`; the old graph then runs on. With
        `drain`, consumers first process what is queued on the edges that change (at most `drain_s`: in a cycle the held
        producer may be the one they wait for; what is left then is carried). With `leave`, a stage that is taken away
        processes what is queued before it, whatever new edges its producers got.
        """
        with self._verbs:
            detaches = not isinstance(change, Edits)
            return reconfigure(self, self.graph_after(change), queued, timeout, drain_s, detaches=detaches)

    def graph_after(self, change: PipelineGraph | Graph | Pipeline | Edits) -> PipelineGraph:
        """Return the graph that a change would lead to."""
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
        known = {**detached, **self.graph.stages}
        used = {name: find("stage", name, known) for edge in change.edges() for name in edge.ends}
        return replace(self.graph, stages={n: s for n, s in known.items() if n in used}, edges=change.edges())

    # -- looking --------------------------------------------------------------------------------------------------

    def worker(self, stage: str) -> StageWorker:
        """Return the worker of a stage, attached or detached, by its name."""
        return find("stage", stage, {**self.workers, **self.detached})

    def metrics(self, stage: str) -> StageMetrics:
        """Return what a stage has done since the run began."""
        return self.readings.of(self.worker(stage))

    def snapshot(self) -> dict[str, StageMetrics]:
        """Return the metrics of every stage."""
        return {name: self.readings.of(worker) for name, worker in {**self.workers, **self.detached}.items()}

    def totals(self) -> dict[str, StageTotals]:
        """Return the sums of every stage, cheap enough for a look every second at hundreds of them."""
        now_ns = self.clock_ns()
        return {name: totals_of(worker, now_ns) for name, worker in {**self.workers, **self.detached}.items()}

    def edges(self) -> list[LaneStatistics]:
        """Return what every edge has carried."""
        return [lane.statistics() for w in list(self.workers.values()) for lane in list(w.out_lanes)]

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
            if isinstance(error, KeyboardInterrupt) and not self.aborting:
                with suppress(PipelineError):  # of the way out: it is kept in `error`
                    if self.drain(self.grace_s, patience_s=self.patience_s):
                        return
        finally:
            if not self._is_done():
                self.stop(self.patience_s if isinstance(error, KeyboardInterrupt) else self.grace_s)
