"""An arrangement as a pipeline: plan -> steer -> producers -> screen -> journal -> steer, with checks beside it.

The stages after the producers are here: checks in higher precision, the journal, and steering, which closes the circle.
`Sampler` writes how a graph that runs is doing: its stages and edges, and every two seconds what they did. Samples are
sums since the graph began, and that they come says that the campaign lives. They are read from counters of this
process, wherever the stages are, without questions to other processes.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from metalforge.campaign.orderings import Arrangement
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import (
    EMULATED_NPU,
    BlockDone,
    Checked,
    Decided,
    JoulesSample,
    Record,
    Rows,
    Sampled,
    Screened,
    Silicon,
    StageEdge,
    StageNode,
    StageSample,
    Topology,
)
from metalforge.campaign.theory import Theory
from metalforge.core import SubstrateInfo
from metalforge.pipeline import (
    Bounded,
    Emit,
    Filtered,
    Pipeline,
    PipelineBuilder,
    PipelineGraph,
    Run,
    Stage,
    Unbounded,
)

from .book import Book
from .orders import PRODUCE, Answer, Block, Hear, Snapshot, Volley, pass_over, stage_of
from .planner import Planner
from .producer import Producer
from .screen import BEFORE, TO_JOURNAL, TO_SCREEN, Screen

SHARED_S = 0.1
"""In which checkpoints share a sync of the journal."""
SAMPLE_S = 2.0
"""Between two samples."""


class Check(Stage[Answer, Checked]):
    """Evaluates configurations again and says how far the run was off."""

    def __init__(self, theory: Theory, substrate: str) -> None:
        self._theory, self._substrate = theory, substrate

    def step(self, state: Any, item: Answer) -> tuple[Any, Any]:
        """Check the configurations that came with an answer."""
        return state, [self._checked(shot) for block in item.blocks for shot in block.snapshots]

    def _checked(self, shot: Snapshot) -> Checked:
        precision, drift = self._theory.evaluated_again(shot)
        return Checked(
            chain=shot.chain,
            step=shot.step,
            substrate=self._substrate,
            precision=f"{shot.precision} against {precision}",
            drift=drift,
        )


class Recorder(Stage[Answer | Checked | Screened, Answer]):
    """Writes blocks to the journal and hands them on: nothing is decided from rows that are not written.

    Chains that passed no screen, though there is one, are flagged here.
    """

    def __init__(self, book: Book, hear: Hear = pass_over, screen: Screen | None = None) -> None:
        self._book, self._hear, self._screen = book, hear, screen

    def step(self, state: Any, item: Answer | Checked | Screened) -> tuple[Any, Any]:
        """Write the rows, what the screen said, and where the chains are; or what was said or checked beside."""
        if isinstance(item, Checked | Screened):
            self._book.write(item)
            return state, None
        if item.screened is None:
            self._hear(item)
            item = replace(item, screened={} if self._screen is None else self._screen.flags(item))
        item = replace(item, began=self._book.dated(item.began))
        for block in item.blocks:
            self._book.write(*records_of(item, block))
        self._book.write(*(Decided(what="lane", by=item.substrate, reason=said) for said in item.said))
        if any(block.saved for block in item.blocks):
            # A checkpoint holds the rows of the last few blocks; those before them must not be lost by a power cut, or
            # its chain begins from its start. A thousand lanes write many a second.
            self._book.journal.sync_within(SHARED_S)
        return state, [item]


def records_of(answer: Answer, block: Block) -> list[Record]:
    """Return what the journal says of a block: its rows, what the screen said, and where the chain is."""
    records: list[Record] = [*block.decisions]
    each_s = answer.seconds / max(sum(one.is_news for one in answer.blocks), 1)
    for segment in block.segments:
        # The whole block's time stands with its last rows.
        seconds = each_s if segment is block.segments[-1] else 0.0
        phase, first, columns = segment.phase, segment.first, segment.columns
        records.append(Rows(chain=block.chain, phase=phase, first=first, columns=columns, seconds=seconds))
    if answer.screened and block.chain in answer.screened:
        records.append(answer.screened[block.chain])
    if block.is_news:
        named = ("visit", "chain", "step", "digest", "done", "promised")
        about = {name: getattr(block, name) for name in named}
        records.append(BlockDone(**about, substrate=answer.substrate, began=answer.began))
    return records


class Steer(Stage[Any, Volley]):
    """Turns answers into orders, by the planner."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def step(self, state: Any, item: Answer | None) -> tuple[Any, Any]:
        """Return orders, each for the producer of its substrate; without an answer the first ones."""
        volleys = self._planner.begin() if item is None else self._planner.take(item)
        return state, [Emit(volley, to=stage_of(volley.substrate)) for volley in volleys]


def build_graph(
    spec: CampaignSpec,
    arrangement: Arrangement,
    *,
    book: Book,
    planner: Planner,
    screen: Screen | None,
    hear: Hear,
    produce: Callable[[str, int | None], Producer],
) -> Pipeline:
    """Return the checked graph of an arrangement; `produce` makes the producer of a substrate."""
    builder = PipelineBuilder(f"{spec.name} {arrangement.ordering.letter}")
    builder.stage("plan", None, lambda: [None])
    builder.stage("steer", "host", Steer(planner)).edge("plan", "steer")
    builder.stage("journal", "host", Recorder(book, hear, screen)).edge("journal", "steer", Bounded(8))
    after = "journal"
    if screen is not None:
        builder.stage(BEFORE, screen.substrate, screen).edge(BEFORE, "journal", TO_JOURNAL)
        after = BEFORE
    if arrangement.checker is not None:
        builder.stage("check", arrangement.checker, Check(spec.theory, arrangement.checker)).edge(
            "check", "journal", Bounded(8)
        )
    for lane in arrangement.lanes:
        name = stage_of(lane.substrate)
        producer = produce(lane.substrate, _core(lane.substrate))
        # One that comes back after a crash knows nothing and is told again: there is no state to keep for it.
        builder.stage(name, lane.substrate, producer, isolation=spec.running.isolation, checkpoint_every=1)
        # Orders are few: as many as the planner lets wait. None may be overwritten by a newer one.
        builder.edge("steer", name, Unbounded(), feedback=True)
        builder.edge(name, after, TO_SCREEN)
        if arrangement.ordering.checks == "flagged":
            builder.edge(name, "check", Filtered(f"chi >= {spec.screening.chi!r}", Bounded(2)))
        elif arrangement.ordering.checks == "all":
            builder.edge(name, "check", Bounded(2))
    return builder.build()


def _core(substrate: str) -> int | None:
    """Return the core of a logical substrate such as `cpu:1`."""
    kind, _, number = substrate.partition(":")
    return int(number) if kind == "cpu" and number.isdigit() else None


def silicon_of(
    arrangement: Arrangement, of: Mapping[str, SubstrateInfo], *, emulated: str | None = None
) -> tuple[Silicon, ...]:
    """Return what each logical substrate does, and which one it is; `emulated` is the board that screens, if one does.

    A name that an ordering made up shares the first.
    """
    first = next(iter(of.values()))

    def silicon(name: str, role: str) -> Silicon:
        info = of.get(name, first)
        return Silicon(name=name, device=info.name, model=info.model, role=role)

    rows = [
        silicon(lane.substrate, "follows the scout" if lane.follows is not None else "produces")
        for lane in arrangement.lanes
    ]
    if arrangement.checker is not None:
        rows.append(silicon(arrangement.checker, f"checks {arrangement.ordering.checks}"))
    if arrangement.screens and emulated is not None:
        rows.append(Silicon(name=EMULATED_NPU, device="host", model=f"{emulated}, emulated", role="screens"))
    return tuple(rows)


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
