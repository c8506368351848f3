"""Who waits for whom: what the watchdog looks at, and what it says when it fails a run."""

from typing import TYPE_CHECKING

from .worker import StageWorker

if TYPE_CHECKING:
    from .supervisor import Run

__all__ = ["all_wait", "describe_waits"]


def describe_waits(run: "Run") -> str:
    """Return who waits for whom, one line a stage."""
    everyone = [*run.workers.values(), *run.retired]
    return "\n".join(f"  {worker.name}: {_why_waiting(run, worker)}" for worker in everyone)


def _why_waiting(run: "Run", worker: StageWorker) -> str:
    waiting = worker.waiting
    if worker.ended:
        return "ended"
    if waiting is None:
        return "working"
    if waiting is worker.inbox:
        feeds = ", ".join(lane.source for lane in worker.in_lanes) or "nothing"
        return f"waits for an item from {feeds}"
    if waiting is worker.wakeup:
        return "paused"
    for lane in worker.out_lanes:
        if waiting is lane.credits or waiting is lane.space:
            return f"waits for room on {lane.name} ({lane.queued} queued): waits for {lane.target}"
    for answer in list(run.answers):
        if waiting is answer.queue:
            return f"waits for an answer from {answer.stage}"
    for ring in set(run.ring_of.values()):
        if waiting is ring.tokens:
            return f"waits for a token of the cycle {', '.join(sorted(ring.members))}"
    return "waits for its time"


def all_wait(run: "Run") -> bool:
    """Whether every stage that is alive waits for something that only another could give."""
    alive = [w for w in [*run.workers.values(), *run.retired] if not w.ended]
    return bool(alive) and all(_is_blocked(w) for w in alive)


def _is_blocked(worker: StageWorker) -> bool:
    waiting = worker.waiting
    if waiting is None or waiting is worker.wakeup or worker.gate or not hasattr(waiting, "put"):
        return False
    return bool(waiting.qsize() == 0)
