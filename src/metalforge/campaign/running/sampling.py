"""How a graph that runs is doing, for whoever watches: its stages and edges, and every two seconds what they did.

Samples are sums since the graph began, and that they come says that the campaign lives. They are read from counters of
this process, wherever the stages are: nobody is asked, and nothing waits.
"""

import time
from collections.abc import Callable, Iterable

from metalforge.campaign.store.records import JoulesSample, Sampled, StageEdge, StageNode, StageSample, Topology
from metalforge.pipeline import PipelineGraph, Run

from .book import Book
from .orders import PRODUCE

SAMPLE_S = 2.0
"""Between two samples."""


def topology_of(graph: PipelineGraph, ordering: str, carried_by: str = "") -> Topology:
    """Return a graph as the journal has it; `carried_by` is what holds its producers, where that is elsewhere."""
    graph = graph.resolved()
    elsewhere = {name: carried_by for name in graph.stages if carried_by and name.startswith(PRODUCE)}
    return Topology(
        ordering=ordering,
        stages=tuple(
            StageNode(name=name, substrate=spec.substrate_name, isolation=elsewhere.get(name, spec.config.isolation))
            for name, spec in graph.stages.items()
        ),
        edges=tuple(
            StageEdge(source=edge.source, target=edge.target, channel=str(edge.channel), feedback=edge.feedback)
            for edge in graph.edges
        ),
    )


class Sampler:
    """Writes the topology of a graph when it begins and whenever it was rewired, by whomever, and samples of it."""

    def __init__(
        self,
        book: Book,
        graph: PipelineGraph,
        ordering: str,
        energy: Callable[[], Iterable[JoulesSample]],
        carried_by: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._book, self._ordering, self._energy, self._clock = book, ordering, energy, clock
        self._carried_by = carried_by
        self._graph, self._noted = graph, topology_of(graph, ordering, carried_by)
        self._began = self._last = clock()
        book.write(self._noted)

    def look(self, run: Run) -> None:
        """Write what is due."""
        if run.graph is not self._graph:
            self._graph = run.graph
            if (now := topology_of(run.graph, self._ordering, self._carried_by)) != self._noted:
                self._noted = now
                self._book.write(now)
        if self._clock() - self._last >= SAMPLE_S:
            self.write(run)

    def write(self, run: Run) -> None:
        """Write a sample, due or not."""
        self._last = self._clock()
        stages = tuple(
            StageSample(
                stage=name,
                items=seen.items,
                busy_s=round(seen.busy_s, 6),
                waited_get_s=round(seen.blocked_get_s, 6),
                waited_put_s=round(seen.blocked_put_s, 6),
                queue=seen.queue_depth,
            )
            for name, seen in run.totals().items()
        )
        window_s = round(self._last - self._began, 6)
        self._book.write(Sampled(window_s=window_s, stages=stages, energy=tuple(self._energy())))
