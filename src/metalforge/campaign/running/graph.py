"""An arrangement as a pipeline: plan -> steer -> producers -> screen -> journal -> steer, with checks beside it.

The stages after the producers are here: checks in higher precision, the journal, and steering, which closes the circle.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from metalforge.campaign.orderings import Arrangement
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, BlockDone, Checked, Record, Rows, Screened, Silicon
from metalforge.campaign.theory import Theory
from metalforge.core import SubstrateInfo
from metalforge.pipeline import Bounded, Emit, Filtered, Pipeline, PipelineBuilder, Stage, Unbounded

from .book import Book
from .orders import Block, Hear, Snapshot, Volley, pass_over, stage_of
from .planner import Planner
from .producer import Producer
from .rewiring import BEFORE, TO_JOURNAL, TO_SCREEN
from .screen import Screen

SHARED_S = 0.1
"""In which checkpoints share a sync of the journal."""


class Check(Stage[Block, Checked]):
    """Evaluates configurations again and says how far the run was off."""

    def __init__(self, theory: Theory, substrate: str) -> None:
        self._theory, self._substrate = theory, substrate

    def step(self, state: Any, item: Block) -> tuple[Any, Any]:
        """Check the configurations that came with a block."""
        return state, [self._checked(shot) for shot in item.snapshots]

    def _checked(self, shot: Snapshot) -> Checked:
        precision, drift = self._theory.evaluated_again(shot)
        return Checked(
            chain=shot.chain,
            step=shot.step,
            substrate=self._substrate,
            precision=f"{shot.precision} against {precision}",
            drift=drift,
        )


class Recorder(Stage[Block | Checked | Screened, Block]):
    """Writes a block to the journal and hands it on: nothing is decided from rows that are not written.

    A block that passed no screen, though there is one, is flagged here.
    """

    def __init__(self, book: Book, hear: Hear = pass_over, screen: Screen | None = None) -> None:
        self._book, self._hear, self._screen = book, hear, screen
        self._of_ladders: dict[int, list[Record]] = {}
        """Records of chains of a ladder, by visit, until its first chain comes, which is last."""

    def step(self, state: Any, item: Block | Checked | Screened) -> tuple[Any, Any]:
        """Write the rows, what the screen said, and where the chain is; or what was said or checked beside."""
        if isinstance(item, Checked | Screened):
            self._book.write(item)
            return state, None
        if not item.passed_screen:
            self._hear(item)
            item = item if self._screen is None else replace(item, screened=self._screen.flag(item))
        made = records_of(replace(item, began=self._book.dated(item.began)))
        if item.rung:
            self._of_ladders.setdefault(item.visit, []).extend(made)
        else:
            self._book.write(*self._of_ladders.pop(item.visit, ()), *made)
        if item.saved:
            # A checkpoint holds the rows of the last few blocks; those before them must not be lost by a power cut, or
            # its chain begins from its start. A thousand lanes write many a second.
            self._book.journal.sync_within(SHARED_S)
        return state, Emit(item, chain=item.chain)


def records_of(block: Block) -> list[Record]:
    """Return what the journal says of a block: its rows, what the screen said, and where the chain is."""
    records: list[Record] = [*block.decisions]
    for segment in block.segments:
        # The whole block's time stands with its last rows.
        seconds = block.seconds if segment is block.segments[-1] else 0.0
        phase, first, columns = segment.phase, segment.first, segment.columns
        records.append(Rows(chain=block.chain, phase=phase, first=first, columns=columns, seconds=seconds))
    records += block.screened
    if block.comes_anywhere:
        named = ("visit", "chain", "step", "digest", "done", "substrate", "promised", "began")
        records.append(BlockDone(**{name: getattr(block, name) for name in named}))
    return records


class Steer(Stage[Any, Volley]):
    """Turns blocks into orders, by the planner."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def step(self, state: Any, item: Block | None) -> tuple[Any, Any]:
        """Return orders, each for the producer of its substrate; without a block the first ones."""
        volleys = self._planner.begin() if item is None else self._planner.take(item)
        first = ((volley, volley.orders[0]) for volley in volleys)
        return state, [Emit(volley, to=stage_of(order.substrate), chain=order.chain) for volley, order in first]


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
    builder = PipelineBuilder(f"{spec.name} {arrangement.ordering}")
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
        if arrangement.checks == "flagged":
            builder.edge(name, "check", Filtered(f"chi >= {spec.screening.chi!r}", Bounded(2)))
        elif arrangement.checks == "all":
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
        rows.append(silicon(arrangement.checker, f"checks {arrangement.checks}"))
    if arrangement.screens and emulated is not None:
        rows.append(Silicon(name=EMULATED_NPU, device="host", model=f"{emulated}, emulated", role="screens"))
    return tuple(rows)
