"""The answer to come: asked for before a long phase, collected after it, settled exactly once.

Each question has a future of its own: there is no queue of answers to take a wrong one from.
"""

import math
import threading
from collections.abc import Callable
from typing import TypeAlias

from .questions import HeadAnswer, HeadQuestion

__all__ = ["Clock", "Future"]

Clock: TypeAlias = Callable[[], float]


class Future:
    """One question and, in time, its one answer. Made by `Worker.ask`.

    A question with a deadline has its answer at the deadline at the latest, whatever the worker is doing: whoever looks
    first after it, worker or asker, settles it by the baseline. So the answer does not depend on when one looks.
    """

    def __init__(
        self,
        id: int,
        question: HeadQuestion,
        *,
        clock: Clock,
        deadline_s: float | None,
        settled: Callable[[HeadAnswer], None],
    ) -> None:
        self.id, self.question = id, question
        self._clock, self._report = clock, settled
        self._due_at = math.inf if deadline_s is None else clock() + deadline_s
        self._first = threading.Lock()
        self._settled = threading.Event()
        self._answer: HeadAnswer | None = None

    def get(self) -> HeadAnswer:
        """Return the answer, waiting for it until the deadline at most."""
        while not self.done():
            left = None if self._due_at == math.inf else min(self._due_at - self._clock(), threading.TIMEOUT_MAX)
            self._settled.wait(left)
        assert self._answer is not None
        return self._answer

    def done(self) -> bool:
        """Return whether the answer is there; at the deadline it is."""
        if not self._settled.is_set() and self.overdue():
            self.fall_back("deadline")
        return self._settled.is_set()

    def overdue(self) -> bool:
        """Return whether the deadline has come, answered or not."""
        return self._clock() >= self._due_at

    def fall_back(self, why: str) -> bool:
        """Settle by the baseline, unless somebody has settled it."""
        asked = self.question
        answer = HeadAnswer(id=self.id, head=asked.head, value=asked.baseline, source="baseline", why=why)
        return self.settle(answer)

    def settle(self, answer: HeadAnswer) -> bool:
        """Give the answer; returns False, and changes nothing, where there was one before."""
        if not self._first.acquire(blocking=False):
            return False
        self._answer = answer
        self._report(answer)
        self._settled.set()
        return True
