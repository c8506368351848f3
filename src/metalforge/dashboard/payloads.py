"""What goes to the page, as JSON: a line of the table, the state, decisions, a chain thinned, and the transition."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.report.figure_data import ComparedCampaign, compared_campaign
from metalforge.campaign.report.figure_data_of_chains import (
    ChainMemory,
    ComplexPlane,
    LadderSwaps,
    PeakSupport,
    histogram_edges,
    histogram_of,
    memory_of,
    supports_of,
    swaps_of,
)
from metalforge.campaign.report.figure_data_of_run import (
    PipelineFigure,
    SiliconFigure,
    pipeline_figure,
    silicon_figure,
)
from metalforge.campaign.report.result import Reported
from metalforge.campaign.report.words import duration, found_text, needed_text, number_text, one_line, system_text
from metalforge.campaign.store.records import Assigned, Commanded, Decided, Energy
from metalforge.campaign.view import SystemView, View, view_of
from metalforge.core.errors import MetalforgeError, SpecError

from .following import Followed

MOST_DECISIONS = 1000
"""Decisions of a page, the last ones: the journal has all, and the time bar leads to each."""
MOST_DOTS = 800
"""Bins of a history: in each the smallest and the largest value are kept, so that no jump is lost."""
SPARKS = 60
"""Estimates in the small line of the table."""


class _Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent."""


class EvidenceLine(_Sent, frozen=True, kw_only=True):
    """One item of evidence in words."""

    name: str
    holds: bool
    found: str
    needed: str


class SystemLine(_Sent, frozen=True, kw_only=True):
    """What is found of one system in words, with its evidence; `found` is empty where nothing is."""

    system: str
    found: str
    established: bool
    reason: str
    evidence: tuple[EvidenceLine, ...]


class CampaignLine(_Sent, frozen=True, kw_only=True):
    """One line of the table of campaigns; `spark` are the last estimates of the first volume.

    They are of what is located, or of a curve its errors.
    """

    campaign: int
    directory: str
    problem: str
    records: int
    name: str = ""
    status: str = ""
    ending: str = ""
    found: str = ""
    established: bool = False
    left: str = ""
    silicon: tuple[str, ...] = ()
    spark: tuple[float, ...] = ()


class StateSent(_Sent, frozen=True, kw_only=True):
    """A campaign after `at` records; `clock` is the time of the last of them, since the epoch."""

    at: int
    rows_at: int
    decided: int
    problem: str
    clock: float
    elapsed: str
    left: str
    view: View
    systems: tuple[SystemLine, ...]
    energy: tuple[Energy, ...]


class DecisionLine(_Sent, frozen=True, kw_only=True):
    """One decision; `at` is the number of records up to it, `baseline` what the rule beside a head said."""

    at: int
    seconds: float
    what: str
    by: str
    head: str
    chain: str
    reason: str
    trusted: bool | None = None
    coordinate: float | None = None
    value: float | None = None
    baseline: float | None = None


class ChainSent(_Sent, frozen=True, kw_only=True):
    """One chain: histories as lists of (update, smallest, largest), and the other figures of it.

    `order` is the order parameter in words; `swaps` are those of its ladder.
    """

    chain: str
    coordinate: float
    system: str
    updates: int
    warmup: int
    first: tuple[list[Any], list[Any], list[Any]]
    second: tuple[list[Any], list[Any], list[Any]]
    order: str
    edges: list[Any]
    density: list[Any]
    plane: ComplexPlane | None
    memory: ChainMemory | None
    swaps: LadderSwaps | None
    labels: tuple[str, str]
    """What the two histories are of."""


class TransitionSent(ComparedCampaign, frozen=True, kw_only=True):
    """The figure of the transition and what is compared of a campaign, what its peaks rest on, after `at` records."""

    at: int
    support: tuple[PeakSupport, ...]


class MachineSent(_Sent, frozen=True, kw_only=True):
    """The pipeline and the silicon after `at` records; early journals have less, or nothing."""

    at: int
    pipeline: PipelineFigure | None
    silicon: SiliconFigure


def encoded(value: object) -> bytes:
    """Return JSON; arrays are lists, and numbers that are not finite are null."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for {type(value)}")


def campaign_line(number: int, now: float, followed: Followed) -> CampaignLine:
    """Return the line of a campaign, or what is wrong with it."""
    line = CampaignLine(
        campaign=number,
        directory=str(followed.directory),
        problem=one_line(followed.problem),
        records=followed.records,
        name=followed.directory.name,
    )
    try:
        state = followed.state
    except MetalforgeError:
        return line
    view = view_of(state, now, last_decisions=0)
    first = view.systems[0]
    estimates = [e for e in state.estimates if e.system == first.system]
    spark = [value for e in estimates if (value := e.error if view.target == "curve" else e.result) is not None]
    return msgspec.structs.replace(
        line,
        name=view.name,
        status=view.status,
        ending=one_line(view.ending),
        found=_found_text(view, first),
        established=first.established,
        left="" if view.left_s is None else duration(view.left_s),
        silicon=view.substrates,
        spark=tuple(spark[-SPARKS:]),
    )


def _found_text(view: View, volume: SystemView) -> str:
    """Return what is found of a system, by name; nothing where nothing is."""
    if volume.error is None:
        return ""
    peak = view.target == "peak"
    found = f"{view.words.found} = {number_text(volume.result, volume.error)}" if peak else volume.reason
    return found + view.after_text(volume)


def state_sent(followed: Followed, now: float | None = None) -> StateSent:
    """Return the state of a campaign, by the clock or at the time of its last record."""
    state = followed.state
    view = view_of(state, state.last_at if now is None else now, last_decisions=0)
    systems = tuple(
        SystemLine(
            system=system_text(volume.system),
            found=_found_text(view, volume),
            established=volume.established,
            reason=volume.reason,
            evidence=tuple(
                EvidenceLine(name=item.name, holds=item.holds, found=found_text(item), needed=needed_text(item))
                for item in volume.evidence
            ),
        )
        for volume in view.systems
    )
    return StateSent(
        at=followed.records,
        rows_at=followed.rows_at,
        decided=len(followed.decided),
        problem=one_line(followed.problem),
        clock=state.last_at,
        elapsed=duration(view.elapsed_s),
        left="" if view.left_s is None else duration(view.left_s),
        view=view,
        systems=systems,
        energy=tuple(entry for _, entry in sorted(state.energy.items())),
    )


def decisions_sent(followed: Followed) -> list[DecisionLine]:
    """Return the last decisions, in the order of the journal."""
    began = followed.state.opened.at
    return [_decision(at, record, began) for at, record in followed.decided[-MOST_DECISIONS:]]


def _decision(at: int, record: Assigned | Commanded | Decided, began: float) -> DecisionLine:
    if isinstance(record, Commanded):
        asked = "".join(f" {name} {value}" for name, value in record.asked.items())
        said = "accepted" if record.accepted else f"refused: {record.reason}"
        reason = one_line(f"{record.what}{asked}, {said}")
        return DecisionLine(
            at=at, seconds=record.at - began, what="command", by=record.by, head="", chain="", reason=reason
        )
    line = DecisionLine(
        at=at,
        seconds=record.at - began,
        what="visit",
        by=record.by,
        head="" if isinstance(record, Assigned) and not record.by_head else record.head,
        chain=record.chain,
        reason=one_line(record.reason),
    )
    if isinstance(record, Assigned):
        return msgspec.structs.replace(line, coordinate=record.coordinate, baseline=record.baseline)
    return msgspec.structs.replace(
        line, what=record.what, trusted=record.trusted, value=record.value, baseline=record.baseline
    )


def chain_sent(followed: Followed, name: str) -> ChainSent:
    """Return a chain for the page."""
    chain = followed.state.chains.get(name)
    if chain is None:
        raise SpecError(f"there is no chain `{name[:40]}` in this campaign, or not yet")
    shown = followed.state.spec.theory.report.history(followed.state, chain)
    order = shown.measured
    histogram = histogram_of(order, histogram_edges(order)) if order.size > 1 else None
    return ChainSent(
        chain=name,
        coordinate=chain.coordinate,
        system=system_text(chain.system),
        updates=chain.rows,
        warmup=chain.warmup,
        first=thinned(shown.series[0]),
        second=thinned(shown.series[1]),
        labels=shown.labels,
        order=shown.order,
        edges=[] if histogram is None else histogram.edges.tolist(),
        density=[] if histogram is None else histogram.density.tolist(),
        plane=shown.plane,
        memory=memory_of(order),
        swaps=swaps_of(followed.state.together(chain.ladder)) if chain.ladder else None,
    )


def thinned(values: NDArray[np.float64], most: int = MOST_DOTS) -> tuple[list[Any], list[Any], list[Any]]:
    """Return first updates, smallest and largest values of at most `most` bins."""
    if not values.size:
        return [], [], []
    first = np.arange(0, values.size, -(-values.size // most))
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    return first.tolist(), low.tolist(), high.tolist()


def machine_sent(followed: Followed, last_s: float | None = None) -> MachineSent:
    """Return how the graph does, and when silicon worked: in all, or in the last seconds."""
    state = followed.state
    return MachineSent(at=followed.records, pipeline=pipeline_figure(state), silicon=silicon_figure(state, last_s))


def transition_sent(followed: Followed) -> TransitionSent:
    """Return the transition as the report has it: seconds of work, so that it is asked of another process."""
    shown = Reported(followed.state)
    campaign = msgspec.structs.asdict(compared_campaign(shown))
    return TransitionSent(at=followed.records, support=supports_of(shown.found), **campaign)
