"""From stages and edges to a pipeline that was checked, and from there to a run; and changes to a graph (`Edits`).

A pipeline may also be a TOML file: stages by name with parameters, edges with their channels.

::

    name = "squares"
    [[stages]]
    name = "numbers"
    use = "my_package.stages:numbers"      # module:attribute, or a registered entry point
    parameters = { count = 10 }
    substrate = "cpu:0"
    config = { buffer_depth = 8 }
    [[edges]]
    from = "numbers"
    to = "print"
    channel = { kind = "bounded", capacity = 4 }
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from metalforge.core import SpecError, UnknownNameError, find, opened, require_one_of, spelled

from .checks import check
from .errors import GraphError
from .graph import Edge, Graph, PipelineGraph, StageSpec, to_mermaid, to_text
from .kinds import ChannelKind, read_channel
from .stages import OnSubstrate, StageConfig, resolve_stage

if TYPE_CHECKING:
    from .supervisor import Run

Runtime = Literal["threads", "inline", "ray"]
_RUNTIMES = {"threads": "supervisor:Run", "inline": "inline:InlineRun", "ray": "ray_:RayRun"}


class Pipeline:
    """A graph that passed its checks; `start` runs it, as often as you like."""

    def __init__(self, graph: PipelineGraph) -> None:
        check(graph)
        self.graph = graph.resolved()

    def __repr__(self) -> str:
        """Return its name and size."""
        return f"<Pipeline {self.graph.name}: {len(self.graph.stages)} stages, {len(self.graph.edges)} edges>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the drawing of the graph."""
        return f"<pre>{escape(self.show())}</pre>"

    def start(self, runtime: Runtime = "threads", **options: Any) -> "Run":
        """Start a run.

        ``threads``: option `clock`. ``inline``: everything on this thread, in the order of `seed`.
        ``ray``: an actor for each stage (extra `ray`), options `resources`, `start_s`. All: `events`, an `EventLog`,
        and `host_of`, a function that returns where a stage's code runs, or None for here.

        >>> with pipeline.start() as run:      # doctest: +SKIP
        ...     run.wait()
        """
        require_one_of(*_RUNTIMES, runtime=runtime)
        run: Run = resolve_name(f"{__package__}.{_RUNTIMES[runtime]}")(self.graph, **options)
        return run.start()

    def run(self, runtime: Runtime = "threads", **options: Any) -> "Run":
        """Run to the end of input and return the run, for its metrics and failures."""
        with self.start(runtime, **options) as run:
            run.wait()
        return run

    def show(self, form: Literal["text", "mermaid"] = "text") -> str:
        """Return a drawing of the graph."""
        return to_text(self.graph) if form == "text" else to_mermaid(self.graph)


class Edits:
    """Changes to a graph, written one after the other: `Edits().remove_edge("a", "b").add_stage(...)`."""

    def __init__(self) -> None:
        self._steps: list[Callable[[PipelineGraph], PipelineGraph]] = []

    def _then(self, step: Callable[[PipelineGraph], PipelineGraph]) -> Self:
        self._steps.append(step)
        return self

    def add_stage(
        self,
        name: str,
        substrate: OnSubstrate | str | None,
        impl: Any,
        *,
        config: StageConfig | None = None,
        parameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Add a stage: a `Stage`, a function, an iterable (a source), or text that names one (`module:attribute`).

        `options` are fields of `StageConfig`; `parameters` go to a stage given by name.
        """
        if config is not None and options:
            raise SpecError("give `config` or single options, not both")
        settings = config if config is not None else StageConfig(**options)
        spec = StageSpec(name=name, stage=resolve_stage(impl, parameters), substrate=substrate, config=settings)

        def add(graph: PipelineGraph) -> PipelineGraph:
            if name in graph.stages:
                raise GraphError([f"stage `{name}` is there already; names are unique"])
            return replace(graph, stages={**graph.stages, name: spec})

        return self._then(add)

    def remove_stage(self, name: str) -> Self:
        """Take a stage out, with its edges."""
        return self._then(
            lambda graph: replace(
                graph,
                stages={n: s for n, s in graph.stages.items() if s is not graph.stage(name)},
                edges=tuple(e for e in graph.edges if name not in e.ends),
            )
        )

    def change_stage(
        self, name: str, *, substrate: OnSubstrate | str | None = None, config: StageConfig | None = None
    ) -> Self:
        """Move a stage to another substrate, or change how it is run."""
        wanted: dict[str, Any] = {"substrate": substrate, "config": config}
        changes = {field: value for field, value in wanted.items() if value is not None}
        return self._then(
            lambda graph: replace(graph, stages={**graph.stages, name: replace(graph.stage(name), **changes)})
        )

    def add_edge(
        self,
        source: str,
        target: str,
        channel: ChannelKind | None = None,
        feedback: bool = False,
        tokens: int | None = None,
    ) -> Self:
        """Join two stages; see `Edge`."""
        return self.topology(Edge(source, target, channel, feedback, tokens))

    def topology(self, *parts: Edge | Graph) -> Self:
        """Add the edges of chains, fan-ins, fan-outs and graphs."""
        edges = Graph(*parts).edges()
        return self._then(lambda graph: replace(graph, edges=(*graph.edges, *edges)))

    def remove_edge(self, source: str, target: str) -> Self:
        """Part two stages."""
        return self._then(lambda graph: _with_edge(graph, source, target))

    def change_edge(self, source: str, target: str, channel: ChannelKind) -> Self:
        """Give an edge another capacity, predicate or kind."""
        return self._then(lambda graph: _with_edge(graph, source, target, channel))

    def apply(self, graph: PipelineGraph) -> PipelineGraph:
        """Return the changed graph; the given one stays as it is."""
        for step in self._steps:
            graph = step(graph)
        return graph


class PipelineBuilder(Edits):
    """Collects stages and edges, as edits of an empty graph; `build` checks them and names every problem at once.

    >>> pipeline = (
    ...     PipelineBuilder()
    ...     .stage("numbers", None, lambda: range(3))
    ...     .stage("print", None, print)
    ...     .edge("numbers", "print")
    ...     .build()
    ... )
    """

    stage = Edits.add_stage
    edge = Edits.add_edge

    def __init__(self, name: str = "pipeline") -> None:
        super().__init__()
        self._name = name

    def graph(self) -> PipelineGraph:
        """Return the graph as it stands, unchecked."""
        return self.apply(PipelineGraph({}, (), self._name))

    def build(self) -> Pipeline:
        """Check the graph and return it as a pipeline; raises `GraphError` with every problem."""
        return Pipeline(self.graph())


def _with_edge(graph: PipelineGraph, source: str, target: str, channel: ChannelKind | None = None) -> PipelineGraph:
    """Return a graph whose edge between two stages has another channel, or is gone."""
    edges = {e.ends: e for e in graph.edges}
    if (source, target) not in edges:
        raise UnknownNameError("edge", f"{source} -> {target}", list(map(str, graph.edges)))
    if channel is None:
        del edges[source, target]
    else:
        edges[source, target] = replace(edges[source, target], channel=channel)
    return replace(graph, edges=tuple(edges.values()))


class _EdgeRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str
    channel: dict[str, Any] | None = None
    feedback: bool = False
    tokens: int | None = None


class _StageRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    use: str
    parameters: dict[str, Any] = {}
    substrate: str | None = None
    config: StageConfig = StageConfig()


class _PipelineRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = "pipeline"
    stages: list[_StageRecord]
    edges: list[_EdgeRecord] = []


def from_toml(text: str, substrates: Mapping[str, OnSubstrate] | None = None) -> Pipeline:
    """Return the pipeline that a file describes, checked.

    Substrates are found by name in `substrates`; without that mapping they stay names, and capabilities are not
    checked.
    """
    try:
        record = msgspec.toml.decode(text, type=_PipelineRecord)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"the pipeline cannot be read: {error}") from error
    builder = PipelineBuilder(record.name)
    for stage in record.stages:
        where: OnSubstrate | str | None = None if stage.substrate is None else spelled(stage.substrate)
        if substrates is not None and isinstance(where, str):
            where = find(f"substrate of stage {stage.name}", where, substrates)
        builder.stage(stage.name, where, stage.use, config=stage.config, parameters=stage.parameters)
    for edge in record.edges:
        kind = None if edge.channel is None else read_channel(edge.channel)
        builder.edge(edge.source, edge.target, kind, edge.feedback, edge.tokens)
    return builder.build()


def read_pipeline(path: Path | str, substrates: Mapping[str, OnSubstrate] | None = None) -> Pipeline:
    """Return the pipeline of a file."""
    with opened(path) as (stream, _):
        text = stream.read().decode()
    return from_toml(text, substrates)
