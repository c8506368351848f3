"""What figures of chains and of a run show, as data: the report draws it, the live page draws it, and they agree.

Samples hold sums since their graph began, so that every rate is a difference of two of them, whatever lies between.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.analysis.evidence import MIN_OVERLAP, Finding
from metalforge.campaign.analysis.phases import Shape, shape_at, transits
from metalforge.campaign.analysis.selection import neighbours, overlap
from metalforge.campaign.analysis.transition import Located
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Sampled, StageEdge, StageNode, StageSample
from metalforge.campaign.theory import System
from metalforge.campaign.timeline import Span, Timeline, coarse
from metalforge.statistics import MIN_LENGTH, autocorrelation, gamma_method

from .decisions import ResultPart
from .words import substrate_text

Floats = NDArray[np.float64]
BINS = 40
DOTS = 500
"""Rows of one chain in a scatter: more hide each other."""
SHORTEST_MEMORY = 20
"""Updates over which an autocorrelation is shown, at least; twice its window where that is longer."""
MOST_MARKS = 400
"""Crossings that are marked in a history: more are a grey band."""


class ComplexPlane(NamedTuple):
    """Numbers of a chain in the complex plane, thinned; `reach` is the largest modulus of all its rows."""

    re: Floats
    im: Floats
    reach: float
    label: str = ""


class ChainHistory(NamedTuple):
    """Two series of a chain, update by update, with what they are; measurement begins after `warmup`.

    `measured` is what a histogram of the measurement shows, and `order` what that is.
    """

    series: tuple[Floats, Floats]
    labels: tuple[str, str]
    warmup: int
    measured: Floats
    order: str
    plane: ComplexPlane | None = None


def histogram_edges(values: Floats) -> Floats:
    """Return the edges of the bins for an order parameter: from 0, or from below where it goes there."""
    return np.linspace(min(float(values.min()), 0.0), float(values.max()), BINS + 1)


def plane_of(values: NDArray[np.complex128], label: str = "") -> ComplexPlane:
    """Return where a complex number was during a measurement."""
    shown = values[:: max(1, -(-values.size // DOTS))]
    return ComplexPlane(shown.real, shown.imag, float(np.abs(values).max(initial=0.0)), label)


class ChainMemory(NamedTuple):
    """The autocorrelation of an order parameter; tau_int is summed up to the distance `window`, in updates."""

    rho: Floats
    window: int
    tau: float
    tau_error: float


def memory_of(order: Floats) -> ChainMemory | None:
    """Return how long a chain remembers; None where it is too short, or stuck."""
    if order.size < MIN_LENGTH or np.ptp(order) == 0:
        return None
    found = gamma_method(order)
    rho = autocorrelation(order)[: max(SHORTEST_MEMORY, 2 * found.window) + 1]
    return ChainMemory(rho, found.window, found.tau_int, found.tau_int_error)


class SupportingChain(ResultPart, frozen=True, kw_only=True):
    """A chain that was joined for a peak: its own independent samples, and how many of those at the peak are its.

    `crossings` counts ways between the phases, `marks` are the measured updates of the first of them.
    """

    chain: str
    coordinate: float
    near: bool
    own: float
    carried: float
    crossings: int
    marks: tuple[int, ...]


class PeakSupport(ResultPart, frozen=True, kw_only=True):
    """What the peak of one volume rests on; `low` and `high` are the thresholds of the order parameter's phases.

    `overlaps` has two neighbouring couplings and how much the energies there overlap, 0 to 1.
    """

    system: System
    result: float
    width: float
    two_phases: bool
    low: float
    high: float
    needed: float
    overlaps: tuple[tuple[float, float, float], ...]
    chains: tuple[SupportingChain, ...]


def support_of(located: Located, shape: Shape | None = None) -> PeakSupport:
    """Return what a peak rests on: overlap of neighbours, effective samples and crossings of every joined chain."""
    found, chains = located.transition, located.chains
    shape = shape or shape_at(located.joint, chains, found.result)
    low, high = shape.thresholds
    shares = np.bincount(located.joint.chain_of_block, located.joint.shares(found.result), minlength=len(chains))
    crossed = [transits(chain.order, low, high) for chain in chains]
    return PeakSupport(
        system=found.system,
        result=found.result,
        width=found.width,
        two_phases=shape.two_phases,
        low=low,
        high=high,
        needed=MIN_OVERLAP,
        overlaps=tuple(
            (below[0].coordinate, above[0].coordinate, overlap(below, above))
            for below, above in pairwise(neighbours(chains))
        ),
        chains=tuple(
            SupportingChain(
                chain=chain.point.chain,
                coordinate=chain.coordinate,
                near=abs(chain.coordinate - found.result) <= found.width,
                own=chain.energy.size / (2 * chain.tau),
                carried=float(found.n_effective * share),
                crossings=ways.size,
                marks=tuple(ways[:MOST_MARKS].tolist()),
            )
            for chain, share, ways in zip(chains, shares, crossed, strict=True)
        ),
    )


def supports_of(found: Mapping[System, Any]) -> tuple[PeakSupport, ...]:
    """Return what the located peaks rest on, by system; nothing of what is no peak."""
    peaks = [finding for finding in found.values() if isinstance(finding, Finding)]
    return tuple(support_of(peak.located) for peak in peaks if peak.located is not None)


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
