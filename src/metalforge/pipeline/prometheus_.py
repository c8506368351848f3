"""The metrics of a run for Prometheus, on loopback: read from the run's own counters when somebody asks.

Nothing is recorded twice: a scrape takes a snapshot. The library is imported here only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from .supervisor import Run

from metalforge.core.closing import Closing

_LOOPBACK = "127.0.0.1"


class RunCollector:
    """Gives a scrape the present counters of a run."""

    def __init__(self, run: "Run") -> None:
        self._run = run

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        stages = self._run.snapshot()
        name = self._run.graph.name
        counters: dict[str, tuple[str, Any]] = {
            "pipe_items": ("Items a stage has processed", lambda m: m.items_processed),
            "pipe_outputs": ("Outputs a stage has made", lambda m: m.outputs),
            "pipe_retries": ("Steps tried again", lambda m: m.retries),
            "pipe_errors": ("Items reported as failed", lambda m: m.failed),
            "pipe_restarts": ("Restarts of a stage's process", lambda m: m.restarts),
            "pipe_busy_seconds": ("Time in steps", lambda m: m.utilization * m.window_s),
        }
        for family, (words, value) in counters.items():
            metric = CounterMetricFamily(family, words, labels=["run", "stage"])
            for stage, m in stages.items():
                metric.add_metric([name, stage], value(m))
            yield metric
        blocked = CounterMetricFamily("pipe_blocked_seconds", "Time waiting", labels=["run", "stage", "side"])
        latency = GaugeMetricFamily("pipe_stage_seconds", "Time of a step", labels=["run", "stage", "quantile"])
        energy = CounterMetricFamily("pipe_energy_joules", "Energy", labels=["run", "substrate", "source"])
        metered: set[str] = set()
        for stage, m in stages.items():
            blocked.add_metric([name, stage, "get"], m.blocked_get_s)
            blocked.add_metric([name, stage, "put"], m.blocked_put_s)
            for quantile, ms in (("0.5", m.latency_p50_ms), ("0.99", m.latency_p99_ms)):
                if ms is not None:
                    latency.add_metric([name, stage, quantile], ms * 1e-3)
            if m.energy is not None and m.substrate is not None and m.substrate not in metered:
                metered.add(m.substrate)
                energy.add_metric([name, m.substrate, type(m.energy).__name__.lower()], m.energy.value)
        yield from (blocked, latency, energy)
        depth = GaugeMetricFamily("pipe_queue_depth", "Items queued", labels=["run", "edge"])
        size = GaugeMetricFamily("pipe_queue_bytes", "Bytes queued", labels=["run", "edge"])
        lost = CounterMetricFamily("pipe_dropped", "Items lost on purpose", labels=["run", "edge", "reason"])
        for edge in self._run.edges():
            depth.add_metric([name, edge.edge], edge.queued)
            size.add_metric([name, edge.edge], edge.queued_bytes)
            lost.add_metric([name, edge.edge, "dropped"], edge.dropped)
            lost.add_metric([name, edge.edge, "overwritten"], edge.overwritten)
        yield from (depth, size, lost)


class MetricsEndpoint(Closing):
    """Serves `/metrics` of a run on 127.0.0.1 until closed; port 0 takes a free one, see `url`."""

    def __init__(self, run: "Run", port: int = 0) -> None:
        registry = CollectorRegistry()
        registry.register(RunCollector(run))  # a collector by its method, not its base
        self._server, self._thread = start_http_server(port, addr=_LOOPBACK, registry=registry)

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://{_LOOPBACK}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
