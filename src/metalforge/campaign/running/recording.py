"""The stages after the producers: checks in higher precision, the journal, and the steering that closes the circle."""

from dataclasses import replace
from typing import Any

from metalforge.campaign.store.records import BlockDone, Checked, Record, Rows, Screened
from metalforge.campaign.theory import Theory
from metalforge.pipeline import Emit, Stage

from .book import Book
from .orders import Block, Hear, Snapshot, Volley, pass_over, stage_of
from .planner import Planner
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

    def step(self, state: Any, item: Block | Checked | Screened) -> tuple[Any, Any]:
        """Write the rows, what the screen said, and where the chain is; or what was said or checked beside."""
        if isinstance(item, Checked | Screened):
            self._book.write(item)
            return state, None
        if not item.passed_screen:
            self._hear(item)
            item = item if self._screen is None else replace(item, screened=self._screen.flag(item))
        self._book.write(*records_of(replace(item, began=self._book.dated(item.began))))
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
