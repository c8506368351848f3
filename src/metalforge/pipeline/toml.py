"""A pipeline as a TOML file and back: stages by name with parameters, edges with their channels.

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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from metalforge.core.errors import SpecError, find
from metalforge.core.files import opened
from metalforge.core.substrate import spelled

from .builder import Pipeline, PipelineBuilder
from .graph import PipelineGraph
from .kinds import Filtered, read_channel
from .stages import OnSubstrate, StageConfig


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


def to_toml(pipeline: Pipeline | PipelineGraph) -> str:
    """Return the file that makes a pipeline again; raises for stages and predicates that have no name."""
    graph = pipeline.graph if isinstance(pipeline, Pipeline) else pipeline
    stages, edges = [], []
    for spec in graph.stages.values():
        if spec.use is None:
            raise SpecError(
                f"stage `{spec.name}` cannot be written: {spec.stage!r} has no name that a file could give\n"
                'hint: a function or dataclass of a module, or builder.stage(name, substrate, "module:attribute")'
            )
        place = {"name": spec.name, "use": spec.use, "parameters": dict(spec.parameters)}
        stages.append({**place, "substrate": spec.substrate_name, "config": msgspec.to_builtins(spec.config)})
    for edge in graph.edges:
        if isinstance(edge.channel, Filtered) and not isinstance(edge.channel.where, str):
            raise SpecError(f"edge {edge} is filtered by a function, which no file can hold; write an expression")
        ends = {"from": edge.source, "to": edge.target, "channel": msgspec.to_builtins(edge.channel)}
        edges.append({**ends, "feedback": edge.feedback or None, "tokens": edge.tokens})
    return tomli_w.dumps(_without_nothing({"name": graph.name, "stages": stages, "edges": edges}))


def _without_nothing(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nothing(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_nothing(v) for k, v in value.items() if v is not None and v != {}}
    return value


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
