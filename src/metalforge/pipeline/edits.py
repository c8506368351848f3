"""Changes to a graph, written one after the other, applied at once: `Edits().remove_edge("a", "b").add_stage(...)`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from metalforge.core.errors import UnknownNameError

from .builder import PipelineBuilder
from .errors import GraphError
from .graph import Edge, PipelineGraph
from .kinds import ChannelKind
from .stages import OnSubstrate, StageConfig

__all__ = ["Edits"]


class Edits:
    """A list of changes; `apply` gives the graph they lead to."""

    def __init__(self) -> None:
        self._steps: list[Callable[[PipelineGraph], PipelineGraph]] = []

    def add_stage(self, name: str, substrate: OnSubstrate | str | None, impl: Any, **options: Any) -> Self:
        """Add a stage, as `PipelineBuilder.stage` does."""
        spec = PipelineBuilder().stage(name, substrate, impl, **options).graph().stages[name]

        def add(graph: PipelineGraph) -> PipelineGraph:
            if name in graph.stages:
                raise GraphError([f"stage `{name}` is there already"])
            return replace(graph, stages={**graph.stages, name: spec})

        self._steps.append(add)
        return self

    def remove_stage(self, name: str) -> Self:
        """Take a stage out, with its edges."""

        def remove(graph: PipelineGraph) -> PipelineGraph:
            graph.stage(name)
            return replace(
                graph,
                stages={n: s for n, s in graph.stages.items() if n != name},
                edges=tuple(e for e in graph.edges if name not in e.ends),
            )

        self._steps.append(remove)
        return self

    def change_stage(
        self, name: str, *, substrate: OnSubstrate | str | None = None, config: StageConfig | None = None
    ) -> Self:
        """Move a stage to another substrate, or change how it is run."""

        def change(graph: PipelineGraph) -> PipelineGraph:
            spec = graph.stage(name)
            spec = replace(spec, substrate=substrate if substrate is not None else spec.substrate)
            spec = replace(spec, config=config if config is not None else spec.config)
            return replace(graph, stages={**graph.stages, name: spec})

        self._steps.append(change)
        return self

    def add_edge(
        self,
        source: str,
        target: str,
        channel: ChannelKind | None = None,
        feedback: bool = False,
        tokens: int | None = None,
    ) -> Self:
        """Join two stages."""
        edge = Edge(source, target, channel, feedback, tokens)
        self._steps.append(lambda graph: replace(graph, edges=(*graph.edges, edge)))
        return self

    def remove_edge(self, source: str, target: str) -> Self:
        """Part two stages."""

        def remove(graph: PipelineGraph) -> PipelineGraph:
            _edge(graph, source, target)
            return replace(graph, edges=tuple(e for e in graph.edges if e.ends != (source, target)))

        self._steps.append(remove)
        return self

    def change_edge(self, source: str, target: str, channel: ChannelKind) -> Self:
        """Give an edge another capacity, predicate or kind."""

        def change(graph: PipelineGraph) -> PipelineGraph:
            old = _edge(graph, source, target)
            return replace(graph, edges=tuple(replace(e, channel=channel) if e is old else e for e in graph.edges))

        self._steps.append(change)
        return self

    def apply(self, graph: PipelineGraph) -> PipelineGraph:
        """Return the changed graph; the given one stays as it is."""
        for step in self._steps:
            graph = step(graph)
        return graph


def _edge(graph: PipelineGraph, source: str, target: str) -> Edge:
    for edge in graph.edges:
        if edge.ends == (source, target):
            return edge
    raise UnknownNameError("edge", f"{source} -> {target}", [f"{e.source} -> {e.target}" for e in graph.edges])
