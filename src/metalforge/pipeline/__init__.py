"""Stages and edges come in, a checked graph runs and can be rewired while it does: nothing is lost, every item counts.

Knows no physics and no device: it receives substrates and meters as objects. Start with `PipelineBuilder`.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .builder import Edits, Pipeline, PipelineBuilder, from_toml, read_pipeline
    from .channels import Receive, Send, open_channel
    from .child import end_with_parent, portable
    from .errors import (
        BrokenError,
        ClosedError,
        DeadlockError,
        EndOfChannel,
        Failure,
        GraphError,
        PipelineError,
        StageCrashError,
        StageTimeoutError,
    )
    from .events import Event, EventLog, read_events
    from .expressions import Expression
    from .graph import Chain, Edge, FanIn, FanOut, Graph, PipelineGraph, StageSpec
    from .hosts import Outputs, StageServer, encode_state
    from .inline import ManualClock
    from .items import Emit, Item, ItemId
    from .judging import EfficiencyWindow, SiliconEfficiency, judge, take_turns
    from .kinds import Bounded, Broadcast, ChannelKind, Filtered, Latest, Unbounded
    from .lanes import END, LaneStatistics
    from .metrics import StageMetrics, StageTotals, bottleneck
    from .processes import Connection, Died, ProcessHost
    from .ray_ import RayConnection, first_line, import_ray, start_actor
    from .reconfigure import Migration, Receipt
    from .stages import Collect, Context, Source, Stage, StageConfig
    from .supervisor import Run

__all__ = [
    "END",
    "Bounded",
    "Broadcast",
    "BrokenError",
    "Chain",
    "ChannelKind",
    "ClosedError",
    "Collect",
    "Context",
    "DeadlockError",
    "Edge",
    "Edits",
    "EfficiencyWindow",
    "Emit",
    "EndOfChannel",
    "Event",
    "EventLog",
    "Expression",
    "Failure",
    "FanIn",
    "FanOut",
    "Filtered",
    "Graph",
    "GraphError",
    "Item",
    "ItemId",
    "LaneStatistics",
    "Latest",
    "ManualClock",
    "Migration",
    "Pipeline",
    "PipelineBuilder",
    "PipelineError",
    "PipelineGraph",
    "Receipt",
    "Receive",
    "Run",
    "Send",
    "SiliconEfficiency",
    "Source",
    "Stage",
    "StageConfig",
    "StageCrashError",
    "StageMetrics",
    "StageSpec",
    "StageTimeoutError",
    "StageTotals",
    "Unbounded",
    "bottleneck",
    "from_toml",
    "open_channel",
    "read_events",
    "read_pipeline",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
