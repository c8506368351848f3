"""Clocks: the machine's, and one that moves only when told, for tests and simulation."""

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Nanoseconds that never go back."""

    def now_ns(self) -> int:
        """Return the time."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """Return `time.perf_counter_ns()`."""
        return time.perf_counter_ns()


class ManualClock:
    """A clock that stands until somebody moves it."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        """Return the time it was moved to."""
        return self._now_ns

    def advance_to(self, now_ns: int) -> None:
        """Move on; never back."""
        self._now_ns = max(self._now_ns, now_ns)

    def advance(self, nanoseconds: int) -> None:
        """Move on by some time."""
        self._now_ns += max(0, nanoseconds)
