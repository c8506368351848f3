"""The local runtime: a thread for each stage, and one that watches.

Kernels release the interpreter lock, so stages compute at the same time; what does not can be given a process of its
own (`StageConfig(isolation="process")`). A waiting thread costs nothing: it sleeps in a C-level queue.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from .graph import PipelineGraph
from .supervisor import Run
from .worker import StageWorker

_POLL_S = 0.002
_WATCH_S = 0.25  # how often the watchdog looks; it fails a run after two equal looks at stages that all wait


class ThreadsRun(Run):
    """A run with a thread for each stage."""

    def __init__(self, graph: PipelineGraph, *, watch_s: float = _WATCH_S, **options: Any) -> None:
        self._changed = threading.Condition()
        self._threads: list[tuple[StageWorker, threading.Thread]] = []
        self._over = threading.Event()
        self._watch_s = watch_s
        self._watchdog: threading.Thread | None = None
        super().__init__(graph, **options)

    def launch(self, worker: StageWorker) -> None:
        """Start the thread of a worker, and the watchdog with the first."""
        thread = threading.Thread(target=self._drive, args=(worker,), name=f"pipeline-{worker.name}", daemon=True)
        self._threads.append((worker, thread))
        thread.start()
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch, name="pipeline-watchdog", daemon=True)
            self._watchdog.start()

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
        while not self._over.wait(self._watch_s):
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
        """Wait on the condition; Ctrl-C gets through. With `poll`, look again every few ms."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not ready():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(_POLL_S if poll and (left is None or left > _POLL_S) else left)
        return True

    def _release(self) -> None:
        """Join every thread: none is left behind but those that were abandoned."""
        self._over.set()
        me = threading.current_thread()
        threads = [thread for worker, thread in self._threads if worker.ended or not worker.abandoned]
        for thread in [*threads, *([self._watchdog] if self._watchdog else [])]:
            if thread is not me:
                thread.join()
