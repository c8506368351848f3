"""What is asked of the worker and of a conductor, the answer to come, and the count of both.

A question is about one head, beside the baseline that answers without it. It is asked before a long phase, collected
after it, settled exactly once, and has a future of its own: there is no queue of answers to take a wrong one from.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.errors import SpecError
from metalforge.core.rows import Phase
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.heads import HeadValues

from .trust import Loss


class ComingTrajectory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chain's trajectory under way, as far as it is known."""

    phase: Phase
    n_steps: int
    delta_h_quarter: float | None = None
    """The energy error at a quarter of its steps, once that is known."""


class HeadQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a head says of a chain: after a row that was told, or of the trajectory under way.

    Of a row it is what the last frame at or before it gave; a trajectory leaves the chain's state where it is.
    """

    head: str
    chain: str
    of: int | ComingTrajectory
    baseline: float | None = None
    """What answers where the head does not; None where the asker has a rule of its own."""
    loss: Loss | None = None
    """By which head and baseline are judged when the outcome is told; None where no outcome will be."""

    def __post_init__(self) -> None:
        if self.loss is not None and self.baseline is None:
            raise SpecError(f"a head is judged beside a baseline: the question about `{self.head}` has none")


class HeadAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to the question with this id: `value` by the head where that is trusted, else by the baseline."""

    id: int
    head: str
    value: float | None
    source: Literal["head", "baseline"]
    why: str
    """Why this source: trusted, untrusted, deadline, error, lost, died or closed, and what there is to add."""
    said: Mapping[str, float] = {}
    """What every head said in that pass; empty where none was made in time."""
    spread: float | None = None
    """The predictive standard deviation of the head's value; None where it is not known."""


class Conductor(Protocol):
    """Many heads from one pass."""

    @property
    def layout(self) -> HeadLayout:
        """The heads, with which of them are trained."""
        ...

    @property
    def spreads(self) -> Mapping[str, float]:
        """Predictive standard deviations by head, where they are known."""
        ...

    def read(self, chain: str, frame: Doubles) -> HeadValues:
        """Return every head for a frame (features,) as if it came next in a chain, whose state stays as it is.

        A chain of which nothing was observed yet is at rest.
        """
        ...

    def observe(self, chain: str, frames: Doubles) -> HeadValues:
        """Return every head after each of a chain's next frames (frames, features), which its state takes up."""
        ...

    def end(self, chain: str) -> None:
        """Forget a chain; one that is not known is no error."""
        ...

    def rewrite(self, w_out: Reals, out_bias: Reals) -> int:
        """Read by another readout from now on; return the bytes that went to a device."""
        ...


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


COUNTED = ("asked", "heads", "late", "ahead", "ahead_ready", "rows", "rows_lost", "rewritten", "bytes_rewritten")
"""What a worker counts, beside the answers of baselines."""


class WorkerStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker has done. Every question that was settled is in one of `heads` and `baselines`."""

    asked: int
    heads: int
    """Answered by a head."""
    by_head: dict[str, int]
    """Those, by the head's name."""
    baselines: dict[str, int]
    """Answered by a baseline, by the reason: untrusted, early, deadline, error, lost, died, closed."""
    late: int
    """What heads said when their question had been answered without them; it was thrown away."""
    ahead: int
    """Asked before a long phase, collected after it."""
    ahead_ready: int
    """Those of them that nobody had to wait for: the answer was there."""
    rows: int
    """Rows that were taken in."""
    rows_lost: int
    """Rows that were not: nothing more is said of their chain until it is begun again."""
    rewritten: int
    """Times that another readout was taken up."""
    bytes_rewritten: int
    """Bytes that went to a device for them."""
    last_error: str

    @property
    def counts(self) -> dict[str, int]:
        """All of it by name: the baselines' answers by their reason (`deadline`, `lost`, ...)."""
        own = {name: getattr(self, name) for name in COUNTED}
        return own | self.baselines

    def __str__(self) -> str:
        by = "".join(f", {n} by a baseline ({reason})" for reason, n in sorted(self.baselines.items()))
        lost = f"; {self.rows_lost} rows lost" if self.rows_lost else ""
        lost += f"; readouts written {self.rewritten} times" if self.rewritten else ""
        error = f"; last error: {self.last_error}" if self.last_error else ""
        return f"{self.asked} questions, {self.heads} answered by heads{by}; {self.rows} rows read{lost}{error}"


class Tally:
    """Counts under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._by_head: Counter[str] = Counter()
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
                self._by_head[answer.head] += 1
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
            counted = {name: self._counts[name] for name in COUNTED}
            return WorkerStatistics(
                **counted, baselines=dict(self._reasons), by_head=dict(self._by_head), last_error=self._last_error
            )
