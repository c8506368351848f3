"""A pipeline from a TOML file: stages by name with parameters, edges with their channels.

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

from metalforge.core import SpecError, find, opened, spelled

from .builder import Pipeline, PipelineBuilder
from .kinds import read_channel
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
