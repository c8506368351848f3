"""`ask`: a request sent to another stage before a long call, its answer taken after it; late answers are counted."""

from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from .errors import BrokenError, PipelineError
from .hosts import Host

if TYPE_CHECKING:
    from .supervisor import Run

_MISSING: Final = object()


class Answer:
    """A request in the inbox of the stage that was asked, and what will come back: `get` it once it is needed."""

    def __init__(self, run: "Run", asker: str, stage: str, request: Any) -> None:
        self.stage, self._run, self._asker, self._request = stage, run, run.find(asker), request
        self.queue: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._got: tuple[Any, Exception | None] | None = None

    def serve(self, host: Host) -> None:
        """Let the stage answer; an exception is the asker's to see."""
        try:
            self.queue.put((host.answer(self._request), None))
        except Exception as error:
            self.queue.put((None, error))

    def refuse(self, reason: str, cause: BaseException | None = None) -> None:
        """Say that nobody will answer."""
        self.queue.put((None, BrokenError(reason, cause)))

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._got is not None or self.queue.qsize() > 0

    def get(self, *, default: Any = _MISSING, timeout: float | None = None) -> Any:
        """Return the answer.

        When it is not there within `timeout` seconds, or never will be, `default` is returned and counted as late;
        without a default that raises TimeoutError or the stage's own error.
        """
        if self._got is None:
            self._got = self._wait(timeout)
        reply, error = self._got or (None, TimeoutError(f"no answer within {timeout} s"))
        if error is None:
            return reply
        if self._got is None or default is not _MISSING:
            self._asker.late_answers += 1
        if default is _MISSING:
            raise error
        return default

    def _wait(self, timeout: float | None) -> tuple[Any, Exception | None] | None:
        if self._run.pump is not None:  # one thread for everything: let the other stages run meanwhile
            self._run.pump(self.done, timeout)
            return self.queue.get() if self.queue.qsize() else None
        if timeout is None:  # the watchdog sees who waits for ever
            asker = self._asker
            if asker.pool is None:
                asker.waiting = self.queue
            else:  # other steps of the asker may still work
                asker.asking.add(self.queue)
            try:
                return self.queue.get()
            finally:
                if asker.pool is None:
                    asker.waiting = None
                asker.asking.discard(self.queue)
        try:
            return self.queue.get(timeout > 0, timeout)
        except Empty:
            return None


def ask(run: "Run", asker: str, stage: str, request: Any) -> Answer:
    """Send a request from one stage of a run to another; the answer is to be taken later."""
    worker = run.worker(stage)
    if stage == asker:
        raise PipelineError(f"stage `{stage}` asks itself and would wait for ever")
    answer = Answer(run, asker, stage, request)
    with run.lock:
        run.answers.add(answer)
        if worker.ended or run.aborting:
            answer.refuse(f"stage `{stage}` ended before it answered")
        else:
            worker.inbox.put((None, answer))
    return answer
