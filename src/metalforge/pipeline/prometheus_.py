"""The metrics of a run for Prometheus, on loopback: read from the run's own counters at each scrape.

Nothing is recorded twice: a scrape takes a snapshot. The library is imported here only.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from metalforge.core import Closing

from .metrics import StageMetrics

if TYPE_CHECKING:
    from .supervisor import Run

_LOOPBACK = "127.0.0.1"


_COUNTERS: dict[str, tuple[str, Callable[[StageMetrics], float]]] = {
    "pipe_items": ("Items a stage has processed", lambda m: m.items_processed),
    "pipe_outputs": ("Outputs a stage has made", lambda m: m.outputs),
    "pipe_retries": ("Steps tried again", lambda m: m.retries),
    "pipe_errors": ("Items reported as failed", lambda m: m.failed),
    "pipe_restarts": ("Restarts of a stage's process", lambda m: m.restarts),
    "pipe_busy_seconds": ("Time in steps", lambda m: m.utilization * m.window_s),
}


class MetricsEndpoint(Closing):
    """Serves `/metrics` of a run on 127.0.0.1 until closed; port 0 takes a free one, see `url`."""

    def __init__(self, run: "Run", port: int = 0) -> None:
        self._run, registry = run, CollectorRegistry()
        registry.register(self)  # a collector by its method, not its base
        self._server, self._thread = start_http_server(port, addr=_LOOPBACK, registry=registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family, with the present counters of the run."""
        name, stages, edges = self._run.graph.name, self._run.snapshot(), self._run.edges()
        for family, (words, value) in _COUNTERS.items():
            counter = CounterMetricFamily(family, words, labels=["run", "stage"])
            for stage, m in stages.items():
                counter.add_metric([name, stage], value(m))
            yield counter
        blocked = CounterMetricFamily("pipe_blocked_seconds", "Time waiting", labels=["run", "stage", "side"])
        latency = GaugeMetricFamily("pipe_stage_seconds", "Time of a step", labels=["run", "stage", "quantile"])
        energy = CounterMetricFamily("pipe_energy_joules", "Energy", labels=["run", "substrate", "source"])
        joules = {}
        for stage, m in stages.items():
            blocked.add_metric([name, stage, "get"], m.blocked_get_s)
            blocked.add_metric([name, stage, "put"], m.blocked_put_s)
            for quantile, ms in (("0.5", m.latency_p50_ms), ("0.99", m.latency_p99_ms)):
                if ms is not None:
                    latency.add_metric([name, stage, quantile], ms * 1e-3)
            if m.energy is not None:
                joules[m.substrate or ""] = m.energy  # a meter is its substrate's, whichever stage it is read for
        for substrate, spent in joules.items():
            energy.add_metric([name, substrate, type(spent).__name__.lower()], spent.value)
        yield from (blocked, latency, energy)
        depth = GaugeMetricFamily("pipe_queue_depth", "Items queued", labels=["run", "edge"])
        size = GaugeMetricFamily("pipe_queue_bytes", "Bytes queued", labels=["run", "edge"])
        lost = CounterMetricFamily("pipe_dropped", "Items lost on purpose", labels=["run", "edge", "reason"])
        for edge in edges:
            depth.add_metric([name, edge.edge], edge.queued)
            size.add_metric([name, edge.edge], edge.queued_bytes)
            lost.add_metric([name, edge.edge, "dropped"], edge.dropped)
            lost.add_metric([name, edge.edge, "overwritten"], edge.overwritten)
        yield from (depth, size, lost)

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://{_LOOPBACK}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
