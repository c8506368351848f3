"""What a stage has done, as numbers: rates, percentiles from log buckets, and where its time went.

Recording costs a few additions a step; everything else is computed when it is read. The time blocked on get (no
input) against the time blocked on put (no room) is what names the bottleneck: the stage that is busy while its
producers are blocked on put and its consumers on get. Power budgets too are judged here: how long a stage must rest so
that the mean power of its substrate comes down to the budget.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from metalforge.core import EnergyMeter, MeterUnavailableError, Quantity

if TYPE_CHECKING:
    from .run import RunCore
    from .worker import StageWorker

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
        wanted = max(1, math.ceil(self.total * percent / 100))
        seen, middle = 0, None
        for bucket, count in sorted(self.counts.copy().items()):
            octave, sub = bucket >> _SUB_SHIFT, bucket & (_SUB - 1)
            middle = 2.0 ** (octave - 1) * (1 + (sub + 0.5) / _SUB) if octave else 0.0
            seen += count
            if seen >= wanted:
                break
        return middle


class StageMeter:
    """The counters of one stage; the stage's own thread is the only writer."""

    __slots__ = (
        "busy_ns", "discarded", "failed", "get_ns", "items", "latency", "outputs", "put_ns", "retries", "since_ns",
        "started_ns", "throttled_ns",
    )  # fmt: skip

    def __init__(self, now_ns: int = 0) -> None:
        self.items = self.outputs = self.retries = self.failed = self.discarded = 0
        self.busy_ns = self.get_ns = self.put_ns = self.throttled_ns = 0
        self.started_ns = now_ns
        self.since_ns = 0
        """When the step or the wait that is under way began; 0 between them."""
        self.latency = Histogram()


class StageMetrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at a stage. Times are of the window since the stage began."""

    stage: str
    substrate: str | None
    status: Literal["starting", "running", "paused", "detached", "ended", "failed"]
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
    power: Quantity | None = None
    """Mean over the run; of the whole substrate, as the energy is."""
    energy: Quantity | None = None
    """Of the whole substrate, not of the stage alone; None when its meter cannot be read."""


class StageTotals(NamedTuple):
    """Sums of a stage since it began, with the step or the wait that is under way, and what is queued before it."""

    items: int
    busy_s: float
    blocked_get_s: float
    blocked_put_s: float
    queue_depth: int


def totals_of(worker: "StageWorker", now_ns: int) -> StageTotals:
    """Return the sums of a worker, for a look every second or two: no percentiles, no meters."""
    meter, waiting = worker.meter, worker.waiting
    busy, get, put = meter.busy_ns, meter.get_ns, meter.put_ns
    since = meter.since_ns  # last: the worker sets it to 0 before it adds, so that nothing counts twice
    under_way = max(now_ns - since, 0) if since and not worker.ended else 0
    if waiting is None:
        busy += under_way
    elif waiting is worker.inbox:
        get += under_way
    else:
        put += under_way
    depth = sum(lane.queued for lane in list(worker.in_lanes))
    return StageTotals(meter.items, busy * 1e-9, get * 1e-9, put * 1e-9, depth)


def bottleneck(metrics: Iterable[StageMetrics]) -> str | None:
    """Return the busiest stage, when others wait for it; None when every stage mostly waits or nothing ran."""
    known = [m for m in metrics if m.items_processed]
    if not known:
        return None
    busiest = max(known, key=lambda m: m.utilization)
    return busiest.stage if busiest.utilization > 0.5 else None


_WINDOW_S = 1.0  # counters of a millijoule need that long for three digits at 1 W
_LOSSES = ("dropped", "overwritten", "filtered")
_LONGEST_S = 1.0  # a stage rests at most so long at a time: others may heat the device, and it must not starve


class Throttle:
    """Reads a meter after each step; the mean power is (J_now - J_then) / (t_now - t_then) over a rolling second."""

    def __init__(self, meter: EnergyMeter, budget_w: float, clock_ns: Callable[[], int]) -> None:
        self._meter, self._budget_w, self._clock_ns = meter, budget_w, clock_ns
        self._points: deque[tuple[int, float]] = deque([(clock_ns(), meter.total().value)])

    def rest_s(self) -> float:
        """Return the seconds to rest now: 0 within the budget.

        Resting r seconds with nothing else on the device makes the mean E / (t + r); the budget P wants r = E / P - t.
        """
        try:
            joules = self._meter.total().value
        except MeterUnavailableError:
            return 0.0  # it was readable when the run began; a stage is not stopped for a meter
        now = self._clock_ns()
        points = self._points
        points.append((now, joules))
        while len(points) > 2 and now - points[1][0] >= _WINDOW_S * 1e9:
            points.popleft()
        then, joules_then = points[0]
        seconds = (now - then) * 1e-9
        return min(max(0.0, (joules - joules_then) / self._budget_w - seconds), _LONGEST_S)


class Readings:
    """Looks at the workers of a run and at the meters of their substrates."""

    def __init__(self, run: "RunCore") -> None:
        self._run = run
        self._meters: dict[str, EnergyMeter] = {}
        self._at_start: dict[str, Quantity] = {}
        for worker in run.workers.values():
            self.meter_of(worker)

    def meter_of(self, worker: "StageWorker") -> EnergyMeter | None:
        """Return the readable meter of a worker's substrate; a substrate has one meter, however many stages it has."""
        silicon, name = worker.spec.silicon, worker.spec.substrate_name or ""
        if silicon is None:
            return None
        if name not in self._meters:
            self._meters[name] = silicon.meter()
        meter = self._meters[name]
        if meter.unavailable() is not None:
            return None
        if name not in self._at_start:
            self._at_start[name] = meter.total()
        return meter

    def throttle_of(self, worker: "StageWorker") -> Throttle | None:
        """Return what enforces a worker's power budget; None without a budget or a meter that can be read."""
        budget = worker.config.power_budget_mw
        meter = None if budget is None else self.meter_of(worker)
        return Throttle(meter, budget * 1e-3, self._run.clock_ns) if budget is not None and meter is not None else None

    def energy(self, worker: "StageWorker") -> Quantity | None:
        """Return the joules of a worker's substrate since the run began."""
        if (meter := self.meter_of(worker)) is None:
            return None
        try:
            return meter.total() - self._at_start[worker.spec.substrate_name or ""]  # type: ignore[operator]
        except MeterUnavailableError:
            return None

    def of(self, worker: "StageWorker") -> StageMetrics:
        """Return the metrics of a worker since it began."""
        run, meter, lanes = self._run, worker.meter, list(worker.in_lanes)
        now_ns = worker.ended_ns or run.clock_ns()
        window_s = max(1, now_ns - meter.started_ns) * 1e-9
        p50, p99 = (ns and ns * 1e-6 for ns in (meter.latency.percentile(50), meter.latency.percentile(99)))
        energy = self.energy(worker)
        power = energy and scaled(energy, 1e9 / max(now_ns - run.started_ns, 1), "W")
        lost = {n: worker.past[n] + sum(getattr(lane, n) for lane in lanes) for n in _LOSSES}
        return StageMetrics(
            stage=worker.name,
            substrate=worker.spec.substrate_name,
            status=_status(worker, run.status),
            window_s=window_s,
            items_processed=meter.items,
            throughput_per_s=meter.items / window_s,
            latency_p50_ms=p50,
            latency_p99_ms=p99,
            utilization=min(1.0, meter.busy_ns * 1e-9 / window_s),
            blocked_get_s=meter.get_ns * 1e-9,
            blocked_put_s=meter.put_ns * 1e-9,
            throttled_s=meter.throttled_ns * 1e-9,
            queue_depth=sum(lane.queued for lane in lanes),
            queue_bytes=sum(lane.queued_bytes for lane in lanes),
            **lost,
            **{n: getattr(meter, n) for n in ("outputs", "discarded", "retries", "failed")},
            restarts=worker.host.restarts,
            power=power,
            energy=energy,
        )


def scaled(energy: Quantity, factor: float, unit: str) -> Quantity:
    """Return a quantity of the same source in another unit, such as the mean power of an energy."""
    return msgspec.structs.replace(energy, value=energy.value * factor, unit=unit)


def _status(worker: "StageWorker", run_status: str) -> Any:
    if worker.abandoned:
        return "failed"
    if worker.ended:
        return "failed" if run_status == "failed" and not worker.finished else "ended"
    if worker.parked:
        return "paused"
    if worker.bond != "attached":
        return "detached"
    return "running" if worker.opened else "starting"
