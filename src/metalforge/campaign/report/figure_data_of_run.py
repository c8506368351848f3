"""What figures of a run show, as data: the pipeline with its rates and bottleneck, and when silicon worked.

Samples hold sums since their graph began, so that every rate is a difference of two of them, whatever lies between.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, Literal, TypeAlias

import msgspec

from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Sampled, StageEdge, StageNode, StageSample
from metalforge.campaign.timeline import Span, Timeline, coarse

from .decisions import ResultPart
from .words import substrate_text

LATELY_S = 10.0
"""Seconds over which rates are taken, at least, where samples go back so far."""
BLOCKED, IDLE = 0.2, 0.05
"""Shares of its time from which a stage counts as held up, and below which it counts as having nothing to do."""
ALIKE = 0.05
"""Stages whose busy shares differ by no more are bottlenecks together."""
MOST_BARS = 400
"""Grains of a timeline that is drawn."""
MOST_ENERGY = 200
"""Points of a line of joules."""

Blocked: TypeAlias = Literal["", "put", "get"]


class PipelineStage(ResultPart, frozen=True, kw_only=True):
    """A stage: items per second and shares of its time lately; `column` and `row` are its place in the picture.

    `items` are those since the graph began; `queue` waits before it now. What is not known is None.
    """

    name: str
    substrate: str
    isolation: str
    column: int
    row: int
    items: int = 0
    per_second: float | None = None
    busy: float | None = None
    waits_get: float | None = None
    waits_put: float | None = None
    queue: int | None = None
    slowest: bool = False


class PipelineEdge(ResultPart, frozen=True, kw_only=True):
    """An edge with its channel in words; `blocked` says on which side somebody waits: to put, or to get."""

    source: str
    target: str
    channel: str
    feedback: bool
    blocked: Blocked


class PipelineFigure(ResultPart, frozen=True, kw_only=True):
    """The graph as it runs, or ran last: `window_s` seconds are what rates are from, `bottleneck` is in words.

    `rewired` has when the graph changed, in seconds since the campaign began.
    """

    ordering: str
    window_s: float
    paused: bool
    stages: tuple[PipelineStage, ...]
    edges: tuple[PipelineEdge, ...]
    bottleneck: str
    rewired: tuple[float, ...]


def pipeline_figure(state: CampaignState) -> PipelineFigure | None:
    """Return the pipeline; None where no graph has begun."""
    graph, opened = state.topology, state.opened.at
    if graph is None:
        return None
    own = [sample for sample in state.samples if sample.at >= graph.at]
    paused = bool(own) and own[-1].paused
    window_s, lately = _lately(own)
    places = places_of(graph.stages, graph.edges)
    stages = [
        PipelineStage(
            name=node.name,
            substrate="" if node.substrate is None else substrate_text(node.substrate),
            isolation=node.isolation,
            column=places[node.name][0],
            row=places[node.name][1],
            **_rates(lately.get(node.name), window_s),
        )
        for node in graph.stages
    ]
    most = max((stage.busy or 0.0 for stage in stages), default=0.0)
    slowest = [stage.name for stage in stages if most >= IDLE and (stage.busy or 0.0) >= most - ALIKE]
    by_name = {stage.name: stage for stage in stages}
    return PipelineFigure(
        ordering=graph.ordering,
        window_s=window_s,
        paused=paused,
        stages=tuple(msgspec.structs.replace(stage, slowest=stage.name in slowest) for stage in stages),
        edges=tuple(PipelineEdge(**msgspec.structs.asdict(e), blocked=_blocked(e, by_name)) for e in graph.edges),
        bottleneck=_bottleneck(stages, slowest, paused),
        rewired=tuple(at - opened for at in state.rewired),
    )


def _lately(samples: Sequence[Sampled]) -> tuple[float, dict[str, tuple[StageSample | None, StageSample]]]:
    """Return over how many seconds rates are taken, and of every stage the samples at both ends of them."""
    if not samples:
        return 0.0, {}
    last = samples[-1]
    before = next((s for s in reversed(samples[:-1]) if last.window_s - s.window_s >= LATELY_S), None)
    first = {} if before is None else {stage.stage: stage for stage in before.stages}
    window = last.window_s - (0.0 if before is None else before.window_s)
    return window, {stage.stage: (first.get(stage.stage), stage) for stage in last.stages}


def _rates(ends: tuple[StageSample | None, StageSample] | None, window_s: float) -> dict[str, Any]:
    """Return what samples at both ends of a window say of a stage."""
    if ends is None:
        return {}
    before, after = ends
    known = {"items": after.items, "queue": after.queue}
    if window_s <= 0:
        return known
    fields = {"per_second": "items", "busy": "busy_s", "waits_get": "waited_get_s", "waits_put": "waited_put_s"}
    return known | {
        name: (getattr(after, field) - (0 if before is None else getattr(before, field))) / window_s
        for name, field in fields.items()
    }


def places_of(stages: Sequence[StageNode], edges: Sequence[StageEdge]) -> dict[str, tuple[int, int]]:
    """Return column and row of every stage: items go to the right; edges that lead back have no say."""
    column = {stage.name: 0 for stage in stages}
    forward = [edge for edge in edges if not edge.feedback and {edge.source, edge.target} <= column.keys()]
    for _ in stages:  # the longest way there; a cycle of edges that do not say that they lead back ends here
        for edge in forward:
            column[edge.target] = min(max(column[edge.target], column[edge.source] + 1), len(stages) - 1)
    rows: dict[int, int] = {}
    places = {}
    for stage in stages:
        there = column[stage.name]
        places[stage.name] = there, rows.get(there, 0)
        rows[there] = rows.get(there, 0) + 1
    return places


def _blocked(edge: StageEdge, stages: dict[str, PipelineStage]) -> Blocked:
    """Return who waits at an edge: its source for room, where its target has a queue, or its target for items."""
    source, target = stages.get(edge.source), stages.get(edge.target)
    if source is not None and target is not None and (source.waits_put or 0.0) >= BLOCKED and target.queue:
        return "put"
    return "get" if target is not None and (target.waits_get or 0.0) >= 1 - BLOCKED else ""


def _bottleneck(stages: Sequence[PipelineStage], slowest: Sequence[str], paused: bool) -> str:
    """Return which stage the others wait for, and why it is taken for that."""
    if paused:
        return "paused: nothing is asked of any stage"
    if not any(stage.busy is not None for stage in stages):
        return "nothing has been sampled yet"
    if not slowest:
        return f"no stage is busy for {IDLE:.0%} of its time: the graph waits for work"
    busiest = max(stage.busy or 0.0 for stage in stages)
    starved = [s.name for s in stages if s.name not in slowest and (s.waits_get or 0.0) >= 1 - BLOCKED]
    held = [s.name for s in stages if s.name not in slowest and (s.waits_put or 0.0) >= BLOCKED]
    many = len(slowest) > 1
    text = f"{_names(slowest)} {'are' if many else 'is'} the bottleneck: busy {busiest:.0%} of the time"
    if starved:
        text += f"; {_names(starved)} wait{'s' * (len(starved) == 1)} for items"
    if held:
        text += f"; {_names(held)} wait{'s' * (len(held) == 1)} to hand over"
    return text


def _names(names: Sequence[str]) -> str:
    shown = [*names[:3], f"{len(names) - 3} more"] if len(names) > 4 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


class SiliconLane(ResultPart, frozen=True, kw_only=True):
    """A substrate: its bars (begin and end in seconds since the campaign began, busy share, chain), and its use.

    `at_once` is the mean number of chains that it worked on, which is more than one on a card; None where the journal
    does not say when blocks began.
    """

    name: str
    device: str
    role: str
    emulated: bool
    began: list[float]
    ended: list[float]
    busy: list[float]
    chain: list[str]
    at_once: float | None


class JoulesLine(ResultPart, frozen=True, kw_only=True):
    """Joules of one substrate from one source so far, over seconds since the campaign began."""

    substrate: str
    source: str
    seconds: list[float]
    joules: list[float]


class SiliconFigure(ResultPart, frozen=True, kw_only=True):
    """When every substrate worked between `low` and `high`, and what it spent; lines of joules are never added up."""

    low: float
    high: float
    lanes: tuple[SiliconLane, ...]
    energy: tuple[JoulesLine, ...]
    rewired: tuple[float, ...]
    note: str


def silicon_figure(state: CampaignState, last_s: float | None = None) -> SiliconFigure:
    """Return when silicon worked, over all of the campaign or over its last seconds."""
    opened, high = state.opened.at, state.last_at
    low = opened if last_s is None else max(opened, high - last_s)
    known = {one.name: one for one in state.opened.silicon}
    names = dict.fromkeys([*known, *state.timelines])
    lanes = []
    for name in names:
        timeline = state.timelines.get(name, Timeline())
        shown = coarse([span for span in timeline.spans if span.ended >= low], MOST_BARS)
        about = known.get(name)
        lanes.append(
            SiliconLane(
                name=substrate_text(name),
                device="" if about is None else about.device,
                role="" if about is None else about.role,
                emulated="emulated" in substrate_text(name),
                began=[round(span.began - opened, 3) for span in shown],
                ended=[round(span.ended - opened, 3) for span in shown],
                busy=[round(_share(span), 3) for span in shown],
                chain=[span.chain for span in shown],
                at_once=sum(s.within(low, high) for s in timeline.spans) / (high - low)
                if timeline.spans and high > low
                else None,
            )
        )
    dark = [lane.name for lane in lanes if lane.at_once is None]
    return SiliconFigure(
        low=low - opened,
        high=high - opened,
        lanes=tuple(lanes),
        energy=joules_lines(state, low),
        rewired=tuple(at - opened for at in state.rewired),
        note=f"not in this journal: when {_names(dark)} worked" if dark else "",
    )


def _share(span: Span) -> float:
    return span.busy / (span.ended - span.began)


def joules_lines(state: CampaignState, since: float) -> tuple[JoulesLine, ...]:
    """Return the joules of every substrate and source by itself; without samples, what there was at the end."""
    opened = state.opened.at
    lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    ended: dict[tuple[str, str], float] = {}  # joules of processes before the one that a sample is of
    resumed = iter([*(record.at for record in state.resumed), inf])
    until = next(resumed)
    for sample in state.samples:
        if sample.at >= until:
            ended = {key: points[-1][1] for key, points in lines.items()}
            until = next(at for at in resumed if at > sample.at)
        for entry in sample.energy:
            key = entry.substrate, entry.source
            lines.setdefault(key, []).append((sample.at, ended.get(key, 0.0) + entry.joules))
    for key, spent in state.energy.items():
        if key not in lines and spent.energy is not None:
            lines[key] = [(spent.at, spent.energy.value + (0.0 if spent.idle is None else spent.idle.value))]
    shown = []
    for (substrate, source), points in sorted(lines.items()):
        # One before the first that is asked for, so that a line begins at the edge.
        first = max(sum(at < since for at, _ in points) - 1, 0)
        kept = points[first :: max(1, -(-(len(points) - first) // MOST_ENERGY))]
        kept = kept if kept[-1] == points[-1] else [*kept, points[-1]]
        shown.append(
            JoulesLine(
                substrate=substrate_text(substrate),
                source=source,
                seconds=[round(at - opened, 3) for at, _ in kept],
                joules=[joules for _, joules in kept],
            )
        )
    return tuple(shown)
