"""What a worker has done, in numbers that several threads add to."""

import threading
from collections import Counter

import msgspec

from .questions import HeadAnswer

__all__ = ["Tally", "WorkerStatistics"]


class WorkerStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker has done. Every question that was settled is in one of `heads` and `baselines`."""

    asked: int
    heads: int
    """Answered by a head."""
    baselines: dict[str, int]
    """Answered by a baseline, by the reason: untrusted, deadline, error, lost, died, closed."""
    late: int
    """What heads said when their question had been answered without them; it was thrown away."""
    rows: int
    """Rows that were taken in."""
    rows_lost: int
    """Rows that were not: nothing more is said of their chain until it is begun again."""
    last_error: str

    def __str__(self) -> str:
        by = "".join(f", {n} by a baseline ({reason})" for reason, n in sorted(self.baselines.items()))
        lost = f"; {self.rows_lost} rows lost" if self.rows_lost else ""
        error = f"; last error: {self.last_error}" if self.last_error else ""
        return f"{self.asked} questions, {self.heads} answered by heads{by}; {self.rows} rows read{lost}{error}"


class Tally:
    """Counts under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._last_error = ""

    def add(self, name: str, n: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] += n

    def answered(self, answer: HeadAnswer) -> None:
        """Count an answer; of a baseline's by the reason, which stands before the colon."""
        with self._lock:
            if answer.source == "head":
                self._counts["heads"] += 1
            else:
                self._reasons[answer.why.split(":", 1)[0]] += 1

    def error(self, error: BaseException) -> str:
        """Remember the last error; return it in words."""
        with self._lock:
            self._last_error = f"{type(error).__name__}: {error}"
            return self._last_error

    def statistics(self) -> WorkerStatistics:
        """Return all counts at one moment."""
        with self._lock:
            counted = {name: self._counts[name] for name in ("asked", "heads", "late", "rows", "rows_lost")}
            return WorkerStatistics(**counted, baselines=dict(self._reasons), last_error=self._last_error)
