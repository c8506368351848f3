"""The answer to come: asked for before a long phase, collected after it, resolved exactly once.

The origin matched answers to askers by their order and lost nearly all of them. Here each request has a future of its
own: there is no queue of answers to take a wrong one from.
"""

import math
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from metalforge.core.errors import MetalforgeError

from .requests import Request, kind_of
from .responses import Response

__all__ = ["Clock", "Future", "WorkerError"]

Clock: TypeAlias = Callable[[], float]
_NOTHING: Final = object()


class WorkerError(MetalforgeError):
    """A request that got no answer: a command that failed, or a question under `on_error="raise"`."""


class Future:
    """One request and, in time, its one answer. Made by `Worker.ask`.

    A request with a deadline has its answer at the deadline at the latest, whatever the worker is doing: whoever looks
    first after it, worker or waiter, resolves it by the formula. So the answer does not depend on when one looks.
    """

    def __init__(
        self,
        id: int,
        request: Request,
        *,
        clock: Clock,
        deadline_s: float | None,
        expire: "Callable[[Future], None]",
        stalled: Callable[[float], None],
    ) -> None:
        self.id, self.request = id, request
        self.asked_at = clock()
        self.due_at = math.inf if deadline_s is None else self.asked_at + deadline_s
        self.started = False
        """Whether the worker has begun with it."""
        self.stalled_s = 0.0
        """Seconds that the last `get` was held up."""
        self._clock, self._expire, self._stalled = clock, expire, stalled
        self._claimed = threading.Lock()
        self._owner: int | None = None
        self._settled = threading.Event()
        self._response: Response | None = None
        self._error: tuple[str, BaseException | None] | None = None

    def get(self, default: Any = _NOTHING, timeout: float | None = None) -> Any:
        """Return the `Response`, waiting for it at most `timeout` seconds.

        When it is not there by then, `default` is returned, or without one TimeoutError raised; the future stays good.
        Raises `WorkerError` when the request failed.
        """
        if not self.done() and not self._wait(timeout):
            if default is _NOTHING:
                raise TimeoutError(f"request {self.id} ({kind_of(self.request)}) had no answer within {timeout} s")
            return default
        if self._error is not None:
            message, cause = self._error
            raise WorkerError(f"request {self.id} ({kind_of(self.request)}): {message}") from cause
        return self._response

    def done(self) -> bool:
        """Return whether the answer is there; at the deadline it is."""
        if not self._settled.is_set() and self.overdue():
            self._expire(self)
        return self._settled.is_set()

    def overdue(self) -> bool:
        """Return whether the deadline has come, answered or not."""
        return self._clock() >= self.due_at

    def claim(self) -> bool:
        """Return True to the first caller only: it resolves the future, all others leave it alone."""
        first = self._claimed.acquire(blocking=False)
        if first:
            self._owner = threading.get_ident()
        return first

    def resolve(self, response: Response) -> None:
        """Give the answer; for the one who claimed it."""
        self._response = response
        self._settled.set()

    def fail(self, message: str, cause: BaseException | None) -> None:
        """Give an error in place of the answer; for the one who claimed it."""
        self._error = (message, cause)
        self._settled.set()

    def abandon(self, message: str, cause: BaseException | None) -> None:
        """Fail if this very thread claimed the future and then did not resolve it."""
        if self._owner == threading.get_ident() and not self._settled.is_set():
            self.fail(message, cause)

    def _wait(self, timeout: float | None) -> bool:
        began = self._clock()
        give_up = math.inf if timeout is None else began + timeout
        try:
            while not self.done():
                now = self._clock()
                if now >= give_up:
                    return False
                until = min(self.due_at, give_up)
                self._settled.wait(None if until == math.inf else min(until - now, threading.TIMEOUT_MAX))
            return True
        finally:
            held_up = self._clock() - began
            self.stalled_s = held_up
            self._stalled(held_up)
