"""Metrics of a run, computed when somebody looks: per stage since the start, or since the previous look.

And power budgets: how long a stage must rest so that the mean power of its substrate comes down to the budget.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from metalforge.core.energy import EnergyMeter
from metalforge.core.errors import MeterUnavailableError
from metalforge.core.quantities import Measured, Modelled, Quantity

from .metrics import StageMeter, StageMetrics
from .stages import OnSubstrate

if TYPE_CHECKING:
    from .supervisor import Run
    from .worker import StageWorker

__all__ = ["Readings", "Throttle"]


_WINDOW_S = 1.0  # counters of a millijoule need that long for three digits at 1 W
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

    def __init__(self, run: "Run", meters: Mapping[str, EnergyMeter]) -> None:
        self._run = run
        self._meters: dict[str, EnergyMeter] = dict(meters)
        self._at_start: dict[str, Quantity] = {}
        for worker in run.workers.values():
            self.meter_of(worker)

    def meter_of(self, worker: "StageWorker") -> EnergyMeter | None:
        """Return the readable meter of a worker's substrate; a substrate has one meter, however many stages it has."""
        substrate = worker.spec.substrate
        if not isinstance(substrate, OnSubstrate):
            return None
        name = substrate.info.name
        if name not in self._meters:
            self._meters[name] = substrate.meter()
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
        if budget is None or meter is None:
            return None
        return Throttle(meter, budget * 1e-3, self._run.clock_ns)

    def energy(self, worker: "StageWorker") -> Quantity | None:
        """Return the joules of a worker's substrate since the run began."""
        meter = self.meter_of(worker)
        if meter is None:
            return None
        try:
            return meter.total() - self._at_start[worker.spec.substrate_name or ""]  # type: ignore[operator]
        except MeterUnavailableError:
            return None

    def of(self, worker: "StageWorker", since: StageMeter | None = None) -> StageMetrics:
        """Return the metrics of a worker since an earlier look, or since it began."""
        run, meter = self._run, worker.meter
        now_ns = worker.ended_ns or run.clock_ns()
        first = since if since is not None else StageMeter(meter.started_ns)
        window_s = max(1, now_ns - first.started_ns) * 1e-9
        latency = meter.latency.since(first.latency.counts)
        p50, p99 = latency.percentile(50), latency.percentile(99)
        energy = self.energy(worker)
        return StageMetrics(
            stage=worker.name,
            substrate=worker.spec.substrate_name,
            status=_status(worker, run.status),
            window_s=window_s,
            items_processed=meter.items - first.items,
            outputs=meter.outputs - first.outputs,
            throughput_per_s=(meter.items - first.items) / window_s,
            latency_p50_ms=None if p50 is None else p50 * 1e-6,
            latency_p99_ms=None if p99 is None else p99 * 1e-6,
            utilization=min(1.0, (meter.busy_ns - first.busy_ns) * 1e-9 / window_s / worker.config.concurrency),
            blocked_get_s=(meter.get_ns - first.get_ns) * 1e-9,
            blocked_put_s=(meter.put_ns - first.put_ns) * 1e-9,
            throttled_s=(meter.throttled_ns - first.throttled_ns) * 1e-9,
            queue_depth=sum(lane.queued for lane in list(worker.in_lanes)),
            queue_bytes=sum(max(0, lane.bytes_in - lane.bytes_out) for lane in list(worker.in_lanes)),
            dropped=worker.past["dropped"] + sum(lane.dropped for lane in list(worker.in_lanes)),
            overwritten=worker.past["overwritten"] + sum(lane.overwritten for lane in list(worker.in_lanes)),
            filtered=worker.past["filtered"] + sum(lane.filtered for lane in list(worker.in_lanes)),
            discarded=meter.discarded,
            retries=meter.retries,
            failed=meter.failed,
            restarts=worker.host.restarts,
            late_answers=worker.late_answers,
            power=None if energy is None else _power(energy, (now_ns - run._started_ns) * 1e-9),
            energy=energy,
        )

    def stream(self) -> Iterator[dict[str, StageMetrics]]:
        """Yield the metrics of every stage, each time for the window since the previous one."""
        looks: dict[str, StageMeter] = {}
        while True:
            found = {}
            for name, worker in list(self._run.workers.items()):
                found[name] = self.of(worker, looks.get(name))
                looks[name] = worker.meter.copy(self._run.clock_ns())
            yield found


def _power(energy: Quantity, seconds: float) -> Quantity:
    value = energy.value / max(seconds, 1e-9)
    if isinstance(energy, Measured):
        return Measured(value=value, unit="W", how=f"{energy.how}, mean over the run")
    return Modelled(value=value, unit="W", profile=energy.profile)


def _status(worker: "StageWorker", run_status: str) -> Any:
    if worker.ended:
        return "failed" if run_status == "failed" and not worker.finished else "ended"
    if worker.parked:
        return "paused"
    return "running" if worker.opened else "starting"
