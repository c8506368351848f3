"""What a worker has done, in numbers that several threads add to."""

import threading
from collections import Counter

import msgspec

from metalforge.core.quantities import Measured

__all__ = ["Tally", "WorkerStatistics"]


class WorkerStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker has done. Every request that was resolved is in exactly one of heads to failures."""

    asked: int
    heads: int
    """Answered by a head."""
    heuristics: dict[str, int]
    """Answered by a formula, by the reason: deadline, untrusted, unavailable, error, shutdown, died."""
    commands: int
    failures: int
    late: int
    """Results that came when their request had been answered without them, and were thrown away."""
    events: int
    events_dropped: int
    events_failed: int
    last_error: str
    stalled: Measured
    """Time that callers were held up in `Future.get`."""


_COUNTED = ("asked", "heads", "commands", "failures", "late", "events", "events_dropped", "events_failed")


class Tally:
    """Counts under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._stalled_s = 0.0
        self._last_error = ""

    def add(self, name: str, n: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] += n

    def formula(self, why: str) -> None:
        """Count an answer by a formula; the reason is what stands before the colon."""
        with self._lock:
            self._reasons[why.split(":", 1)[0]] += 1

    def error(self, error: BaseException) -> None:
        """Remember the last error."""
        with self._lock:
            self._last_error = f"{type(error).__name__}: {error}"

    def stall(self, seconds: float) -> None:
        """Add to the time that callers were held up."""
        with self._lock:
            self._stalled_s += seconds

    def statistics(self) -> WorkerStatistics:
        """Return all counts at one moment."""
        with self._lock:
            return WorkerStatistics(
                **{name: self._counts[name] for name in _COUNTED},
                heuristics=dict(self._reasons),
                last_error=self._last_error,
                stalled=Measured(value=self._stalled_s, unit="s", how="worker's clock, inside Future.get"),
            )
