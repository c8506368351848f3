"""`ask`: a request sent to another stage before a long call, its answer taken after it; late answers are counted."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from .errors import BrokenError, PipelineError
from .hosts import Host

if TYPE_CHECKING:
    from .supervisor import Run

__all__ = ["Answer", "Question", "ask"]

_MISSING: Final = object()


class Question:
    """A request in the inbox of the stage that was asked."""

    __slots__ = ("_answer", "_request")

    def __init__(self, request: Any, answer: "Answer") -> None:
        self._request, self._answer = request, answer

    def answer(self, host: Host) -> None:
        """Let the stage answer; an exception is the asker's to see."""
        try:
            self._answer.put(host.answer(self._request), None)
        except Exception as error:
            self._answer.put(None, error)

    def refuse(self, stage: str) -> None:
        """Say that nobody will answer."""
        self._answer.put(None, BrokenError(f"stage `{stage}` ended before it answered"))


class Answer:
    """What will come back. `get` it once the answer is needed."""

    def __init__(
        self,
        stage: str,
        late: Callable[[], None],
        blocked: Callable[[Any], None],
        pump: Callable[[Callable[[], bool], float | None], bool] | None,
    ) -> None:
        self.stage, self._late, self._blocked, self._pump = stage, late, blocked, pump
        self.queue: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._got: tuple[Any, Exception | None] | None = None
        self._lock = threading.Lock()

    def put(self, reply: Any, error: Exception | None) -> None:
        """Hand over the reply (for the stage that was asked)."""
        self.queue.put((reply, error))

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._got is not None or self.queue.qsize() > 0

    def get(self, *, default: Any = _MISSING, timeout: float | None = None) -> Any:
        """Return the answer.

        When it is not there within `timeout` seconds, or never will be, `default` is returned and counted as late;
        without a default that raises TimeoutError or the stage's own error.
        """
        with self._lock:
            if self._got is None:
                self._got = self._wait(timeout)
            if self._got is None:
                self._late()
                if default is _MISSING:
                    raise TimeoutError(f"no answer within {timeout} s")
                return default
            reply, error = self._got
        if error is None:
            return reply
        if default is _MISSING:
            raise error
        self._late()
        return default

    def _wait(self, timeout: float | None) -> tuple[Any, Exception | None] | None:
        if self._pump is not None:  # one thread for everything: let the other stages run meanwhile
            self._pump(lambda: self.queue.qsize() > 0, timeout)
            return self.queue.get() if self.queue.qsize() else None
        if timeout is None:
            self._blocked(self.queue)  # the watchdog sees who waits for ever
            try:
                return self.queue.get()
            finally:
                self._blocked(None)
        try:
            return self.queue.get(timeout > 0, timeout)
        except Empty:
            return None


def ask(run: "Run", asker: str, stage: str, request: Any) -> Answer:
    """Send a request from one stage of a run to another; the answer is to be taken later."""
    worker = run.worker(stage)
    if stage == asker:
        raise PipelineError(f"stage `{stage}` asks itself and would wait for ever")
    me = run.workers[asker]

    def late() -> None:
        me.late_answers += 1

    def blocked(queue: Any) -> None:
        if me.config.concurrency == 1:  # else others may still work
            me.waiting = queue

    answer = Answer(stage, late, blocked, run.pump)
    question = Question(request, answer)
    with run.lock:
        run.answers.add(answer)
        if worker.ended or run.aborting:
            question.refuse(stage)
        else:
            worker.inbox.put((None, question))
    return answer
