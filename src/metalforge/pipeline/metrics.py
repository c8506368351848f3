"""What a stage has done, as numbers: rates, percentiles from log buckets, and where its time went.

Recording costs a few additions a step; everything else is computed when somebody looks. The time blocked on get (no
input) against the time blocked on put (no room) is what names the bottleneck: the stage that is busy while its
producers are blocked on put and its consumers on get.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from metalforge.core.quantities import Quantity

__all__ = ["Histogram", "StageMeter", "StageMetrics", "bottleneck"]

_SUB = 8  # buckets an octave: neighbours differ by 2^(1/8) = 9 %, so a percentile is off by at most half of that
_SUB_SHIFT = 3


class Histogram:
    """Counts in buckets of equal ratio, from 1 ns; percentiles within 9 %."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0

    def add(self, nanoseconds: int) -> None:
        """Count one duration."""
        # Linear within an octave: the top bit says which, the next three bits say where. Integers only, no logarithm.
        octave = nanoseconds.bit_length()
        bucket = (octave << _SUB_SHIFT) + ((nanoseconds << _SUB_SHIFT >> (octave - 1)) & (_SUB - 1) if octave else 0)
        counts = self.counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.total += 1

    def percentile(self, percent: float) -> float | None:
        """Return the nanoseconds below which `percent` of the durations lie; None without any."""
        if not self.total:
            return None
        wanted = max(1, math.ceil(self.total * percent / 100))
        seen = 0
        for bucket in sorted(self.counts.copy()):
            seen += self.counts[bucket]
            if seen >= wanted:
                return _middle(bucket)
        return _middle(max(self.counts))

    def since(self, before: Mapping[int, int]) -> "Histogram":
        """Return what was counted after `before`, an earlier copy of `counts`."""
        part = Histogram()
        for bucket, n in self.counts.copy().items():
            if n > before.get(bucket, 0):
                part.counts[bucket] = n - before.get(bucket, 0)
        part.total = sum(part.counts.values())
        return part


def _middle(bucket: int) -> float:
    octave, sub = bucket >> _SUB_SHIFT, bucket & (_SUB - 1)
    if octave == 0:
        return 0.0
    return 2.0 ** (octave - 1) * (1 + (sub + 0.5) / _SUB)


class StageMeter:
    """The counters of one stage; the stage's own thread is the only writer."""

    __slots__ = (
        "busy_ns", "discarded", "failed", "get_ns", "items", "latency", "outputs", "put_ns", "retries", "started_ns",
        "throttled_ns",
    )  # fmt: skip

    def __init__(self, now_ns: int = 0) -> None:
        self.items = self.outputs = self.retries = self.failed = self.discarded = 0
        self.busy_ns = self.get_ns = self.put_ns = self.throttled_ns = 0
        self.started_ns = now_ns
        self.latency = Histogram()

    def copy(self, now_ns: int) -> "StageMeter":
        """Return the counters as they are now, for the difference to a later look."""
        part = StageMeter(now_ns)
        for name in ("items", "outputs", "busy_ns", "get_ns", "put_ns", "throttled_ns"):
            setattr(part, name, getattr(self, name))
        part.latency.counts = self.latency.counts.copy()
        return part


class StageMetrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a stage. Times are of the window since the run began, or since the previous look of a stream."""

    stage: str
    substrate: str | None
    status: Literal["starting", "running", "paused", "ended", "failed"]
    window_s: float
    items_processed: int
    outputs: int
    throughput_per_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    utilization: float
    blocked_get_s: float
    blocked_put_s: float
    throttled_s: float
    queue_depth: int
    queue_bytes: int
    dropped: int
    overwritten: int
    filtered: int
    discarded: int
    retries: int
    failed: int
    restarts: int
    late_answers: int
    power: Quantity | None = None
    energy: Quantity | None = None
    """Of the whole substrate, not of the stage alone; None when its meter cannot be read."""


def bottleneck(metrics: Iterable[StageMetrics]) -> str | None:
    """Return the busiest stage, when others wait for it; None when every stage mostly waits or nothing ran."""
    known = [m for m in metrics if m.items_processed]
    if not known:
        return None
    busiest = max(known, key=lambda m: m.utilization)
    return busiest.stage if busiest.utilization > 0.5 else None
