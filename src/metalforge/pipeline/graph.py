"""A pipeline as data: stages by name, edges between them, and the short forms that reduce to that.

`Chain`, `FanIn`, `FanOut` and `Graph` are four ways to write edges; everything after them sees one graph, which is
drawn as text for a terminal and as Mermaid for a page.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from metalforge.core import find

from .kinds import Bounded, ChannelKind, Latest
from .stages import OnSubstrate, Source, Stage, StageConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """A stage with its name, where it runs and how it is run."""

    name: str
    stage: Stage[Any, Any]
    substrate: OnSubstrate | str | None = None
    config: StageConfig = StageConfig()  # noqa: RUF009 - frozen

    @property
    def silicon(self) -> OnSubstrate | None:
        """The substrate, None where only its name is known."""
        return self.substrate if isinstance(self.substrate, OnSubstrate) else None

    @property
    def substrate_name(self) -> str | None:
        """The name of the substrate, None when the stage does not care."""
        return self.substrate.info.name if isinstance(self.substrate, OnSubstrate) else self.substrate


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge: from, to, and its channel. None means `Latest` for feedback, else `Bounded(buffer_depth)` of the target.

    `tokens` declares that at most so many items travel around the cycle that this edge closes.
    """

    source: str
    target: str
    channel: ChannelKind | None = None
    feedback: bool = False
    tokens: int | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """What identifies the edge."""
        return self.source, self.target

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class Graph:
    """Any edges; other topologies may stand among them."""

    def __init__(self, *parts: "Edge | Graph") -> None:
        self._edges = tuple(e for part in parts for e in ((part,) if isinstance(part, Edge) else part.edges()))

    def edges(self) -> tuple[Edge, ...]:
        """Return the edges of all parts."""
        return self._edges


class Chain(Graph):
    """a -> b -> c."""

    def __init__(self, *stages: str, channel: ChannelKind | None = None) -> None:
        super().__init__(*(Edge(a, b, channel) for a, b in pairwise(stages)))


class FanIn(Graph):
    """Several producers, one consumer."""

    def __init__(self, producers: Iterable[str], consumer: str, channel: ChannelKind | None = None) -> None:
        super().__init__(*(Edge(producer, consumer, channel) for producer in producers))


class FanOut(Graph):
    """One producer, several consumers that each get every item."""

    def __init__(self, producer: str, consumers: Iterable[str], channel: ChannelKind | None = None) -> None:
        super().__init__(*(Edge(producer, consumer, channel) for consumer in consumers))


@dataclass(frozen=True, slots=True)
class PipelineGraph:
    """The one graph: what `build` checks, a runtime runs, a file stores and `reconfigure` compares."""

    stages: Mapping[str, StageSpec]
    edges: tuple[Edge, ...]
    name: str = "pipeline"

    def resolved(self) -> "PipelineGraph":
        """Return the same graph with every channel said."""
        depth = {name: spec.config.buffer_depth for name, spec in self.stages.items()}
        default = StageConfig().buffer_depth
        kinds = [e.channel or (Latest() if e.feedback else Bounded(depth.get(e.target, default))) for e in self.edges]
        return replace(self, edges=tuple(replace(e, channel=k) for e, k in zip(self.edges, kinds, strict=True)))

    def stage(self, name: str) -> StageSpec:
        """Return a stage by name."""
        return find("stage", name, self.stages)

    def components(self) -> list[tuple[str, ...]]:
        """Return the strongly connected components in topological order."""
        return components(self.stages, [e.ends for e in self.edges])


def components(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of a graph, producers first.

    Two stages are in one component when each reaches the other. Whatever is before a component reaches more stages
    than the component itself does, so that the number of stages reached puts them in topological order.
    """
    follow: dict[str, list[str]] = {name: [] for name in names}
    for a, b in pairs:
        if a in follow and b in follow:
            follow[a].append(b)
    reached: dict[str, set[str]] = {}
    for start in follow:
        ahead = [start]
        reached[start] = set()
        while ahead:
            node = ahead.pop()
            if node not in reached[start]:
                reached[start].add(node)
                ahead += follow[node]
    groups: dict[frozenset[str], list[str]] = {}
    for name in sorted(follow, key=lambda n: -len(reached[n])):
        groups.setdefault(frozenset(reached[name]), []).append(name)
    return [tuple(members) for members in groups.values()]


def _edge_label(edge: Edge) -> str:
    return str(edge.channel) + (f", {edge.tokens} tokens" if edge.tokens is not None else "")


def to_text(graph: PipelineGraph) -> str:
    """Return the graph in the order data flows: each stage, where it runs, and its edges."""
    graph = graph.resolved()
    lines = [f"{graph.name}: {len(graph.stages)} stages, {len(graph.edges)} edges"]
    for name in [n for group in graph.components() for n in group]:
        spec = graph.stages[name]
        notes = [f"on {spec.substrate_name}"] if spec.substrate_name else []
        notes += ["source"] if isinstance(spec.stage, Source) else []
        notes += ["droppable"] if spec.config.droppable else []
        notes += ["process"] if spec.config.isolation == "process" else []
        lines.append(name + (f"  ({', '.join(notes)})" if notes else ""))
        for edge in graph.edges:
            if edge.source == name:
                arrow = "~~>" if edge.feedback else "-->"
                lines.append(f"  {arrow} {edge.target}  [{_edge_label(edge)}]")
    return "\n".join(lines)


def to_mermaid(graph: PipelineGraph) -> str:
    """Return the graph as a Mermaid flowchart; feedback edges are dotted."""
    graph = graph.resolved()
    number = {name: f"s{i}" for i, name in enumerate(graph.stages)}
    lines = ["flowchart LR"]
    for name, spec in graph.stages.items():
        where = f"<br/>{spec.substrate_name}" if spec.substrate_name else ""
        lines.append(f'  {number[name]}["{name}{where}"]')
    for edge in graph.edges:
        arrow = "-.->" if edge.feedback else "-->"
        label = _edge_label(edge).replace('"', "'").replace("|", "/")
        lines.append(f'  {number[edge.source]} {arrow}|"{label}"| {number[edge.target]}')
    return "\n".join(lines)
