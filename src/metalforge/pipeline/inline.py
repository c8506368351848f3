"""The inline runtime: the whole graph on one thread, in an order that a seed decides.

The same workers as in the threads runtime, driven by a loop that picks one of those whose queue is not empty. A seed
gives the same schedule again, which is how a failure is replayed and debugged; many seeds are many schedules. Time is
a `ManualClock` that jumps to the next timer when nothing else can go on; when there is no timer either, the run is
deadlocked and says so at once.
"""

import random
from collections.abc import Callable, Generator
from typing import Any

from .graph import PipelineGraph
from .supervisor import Run
from .worker import TICK, StageWorker, Timer

_STEP_NS = 1000  # what a turn of the loop costs on the virtual clock


class ManualClock:
    """A clock that stands still until `advance` is called."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the time it was moved to."""
        return self._now_ns

    def advance(self, nanoseconds: int) -> None:
        """Move on by some time; never back."""
        self._now_ns += max(0, nanoseconds)


class InlineRun(Run):
    """A run on the caller's thread: nothing happens except in `step`, `wait` and other methods that wait."""

    explore = True
    hang_s = None
    """A step that does not return holds the caller's thread itself; nothing else can wait for it."""

    def __init__(self, graph: PipelineGraph, *, seed: int = 0, **options: Any) -> None:
        self._random = random.Random(seed)
        self._lives: list[tuple[StageWorker, Generator[Any, Any, None]]] = []
        self._virtual = options.setdefault("clock", ManualClock())
        self.turns = 0
        super().__init__(graph, **options)

    def launch(self, worker: StageWorker) -> None:
        """Add a worker to the loop."""
        life = worker.life()
        self._lives.append((worker, life))
        worker.waiting = TICK

    def step(self) -> bool:
        """Let one worker, picked by the seed, go on to its next waiting place; False when none can."""
        ready = [pair for pair in self._lives if not pair[0].active and pair[0].waiting.qsize()]
        if not ready:
            return self._jump()
        worker, life = ready[int(self._random.random() * len(ready))]
        queue, worker.waiting, worker.active = worker.waiting, None, True
        self.turns += 1
        if isinstance(self._virtual, ManualClock):
            self._virtual.advance(_STEP_NS)
        error: BaseException | None = None
        try:
            worker.waiting = life.send(queue.get())
            worker.active = False
            return True
        except StopIteration:
            pass
        except (Exception, SystemExit) as raised:  # a stage must not end the program as if all was well
            error = raised
        worker.active = False
        self._lives = [pair for pair in self._lives if pair[0] is not worker]
        self.worker_ended(worker, error)
        return True

    def _jump(self) -> bool:
        """Move the clock to the next timer, if there is one."""
        due = [w.waiting.due_ns for w, _ in self._lives if not w.active and isinstance(w.waiting, Timer)]
        if not due or not isinstance(self._virtual, ManualClock):
            return False
        self._virtual.advance(min(due) - self._virtual.now_ns())
        return True

    def wait_until(self, ready: Callable[[], bool], timeout: float | None = None, *, poll: bool = False) -> bool:
        """Run the loop until `ready()`; a loop that cannot go on although stages are alive is a deadlock."""
        deadline = None if timeout is None else self.clock_ns() + int(timeout * 1e9)
        while not ready():
            if (deadline is not None and self.clock_ns() >= deadline) or not self.step():
                break
        else:
            return True
        if timeout is None and self.is_stuck():
            self.fail(self.deadlock())
            self.wait_until(self._all_ended)
        return ready()
