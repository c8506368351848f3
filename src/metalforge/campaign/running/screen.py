"""The screen: the advisor's readings of a chain's last rows are recorded; chains with a large chi are flagged.

A screen that producers stand still for leaves the way of the blocks and looks on from beside it, at what it has time
for; it comes back when it misses nothing (`rule:screen`). That is decided by the clock: not where a run is
deterministic. A person who says where it should be has the last word (`controls`).
"""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import EMULATED_NPU, Commanded, Decided, Screened
from metalforge.core import Advice, Advisor, Reading
from metalforge.pipeline import Bounded, Edits, GraphError, PipelineError, Run, Stage

from .book import Book
from .orders import Answer, Block, Hear, pass_over

SCREEN = "rule:screen"
WINDOW_S = 2.0
"""Between two judgements of the screen."""
FULL = 0.5
"""Part of the looks at which producers stand still and blocks wait for it, above which it is too slow."""
HOLD_S = 2.0
"""That stages have to come to a border; a block that takes longer makes no queue full, either."""
BEFORE, BESIDE = "screen", "screen-beside"
TO_SCREEN, TO_JOURNAL = Bounded(4), Bounded(8)


class Screen(Stage[Answer, Answer]):
    """Records the readings of the last row of every chain; flags chains whose chi is above the threshold."""

    def __init__(self, spec: CampaignSpec, advisor: Advisor | None, *, hear: Hear = pass_over) -> None:
        self._spec, self._advisor, self._hear = spec, advisor, hear
        self.substrate = "host" if advisor is None or advisor.device is None else EMULATED_NPU
        """Where the network runs, for the books."""

    def step(self, state: Any, item: Answer) -> tuple[Any, Any]:
        """Return the answer with the readings of its last configurations."""
        self._hear(item)
        return state, [replace(item, screened={one.chain: one for one in self.readings(item)})]

    def readings(self, answer: Answer) -> list[Screened]:
        """Return what is recorded of the chains of an answer."""
        return [self.seen(block) for block in answer.blocks if block.is_news]

    def seen(self, block: Block, *, unread: bool = False) -> Screened:
        """Return what is recorded of a chain; of one that is `unread`, only whether it is flagged."""
        read = None if unread or self._advisor is None else self._advisor.advise(Reading(block.chain, block.step - 1))
        read = read or Advice()
        return Screened(
            chain=block.chain,
            step=block.step,
            route=EMULATED_NPU if self.substrate == EMULATED_NPU else "software",
            chi=block.chi or None,
            flagged=self._flagged(block),
            heads=read.readings,
            busy=read.busy,
            energy=read.energy,
        )

    def flags(self, answer: Answer) -> dict[str, Screened]:
        """Return what is recorded of an answer that did not come here: which of its chains are flagged."""
        flagged = [block for block in answer.blocks if block.segments and self._flagged(block)]
        return {block.chain: self.seen(block, unread=True) for block in flagged}

    def _flagged(self, block: Block) -> bool:
        return block.chi >= self._spec.screening.chi


class ScreenBeside(Stage[Answer, Screened]):
    """A screen beside the way of the blocks, which do not wait for it: it reads those that it gets."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def step(self, state: Any, item: Answer) -> tuple[Any, Any]:
        """Return what is recorded of an answer."""
        return state, self._screen.readings(item)


class ScreenRule:
    """Looks at the queue before the screen, again and again, and rewires a graph that runs."""

    def __init__(self, run: Run, book: Book, screen: Screen, producers: Collection[str]) -> None:
        self._run, self._book, self._screen, self._producers = run, book, screen, producers
        self._judges, self._retry_at = book.state.spec.running.rewire, 0.0
        self._stage = BEFORE
        self._patience = 1
        """Windows without a loss after which the screen comes back: twice as many each time that it left."""
        self._whole = 0
        """Of them, those that were."""
        self._since, self._looks, self._full, self._missed = time.monotonic(), 0, 0, 0

    def look(self) -> None:
        """Look at the queue; where a window is over, judge, unless somebody has said where the screen is to be."""
        held = self._book.state.screen_held
        if held is not None or not self._judges:
            self._hold(BESIDE if held is not None and held.asked["screen"] == "beside" else BEFORE, held)
            return
        lanes = {lane.edge: lane for lane in self._run.edges()}
        into = [lane for name in self._producers if (lane := lanes.get(f"{name} -> {self._stage}")) is not None]
        if not into or self._run.status != "running":
            return
        self._looks += 1
        # Two orders of a lane are under way: with a slow screen both are there, and the producer has nothing to do.
        works, idle = self._run.worker(self._stage).waiting is None, any(map(self._is_idle, self._producers))
        self._full += bool(works and idle and any(lane.queued for lane in into))
        missed = sum(lane.dropped for lane in into)
        if (window := time.monotonic() - self._since) < WINDOW_S:
            return
        share, lost = self._full / self._looks, missed - self._missed
        measured = f"{self._looks} looks over {window:.1f} s"
        if self._stage == BEFORE and share >= FULL:
            self._rewire(f"blocks waited for the screen and producers for blocks in {share:.0%} of {measured}", share)
        elif self._stage == BESIDE:
            self._whole = 0 if lost else self._whole + 1
            if self._whole >= self._patience:
                reason = f"the screen missed no block in {self._whole} windows, the last of {measured}"
                self._rewire(reason, share)
        self._since, self._looks, self._full, self._missed = time.monotonic(), 0, 0, missed

    def _hold(self, stage: str, held: Commanded | None) -> None:
        """Have the screen where it was said to be; where that cannot be done now, it is tried after a window."""
        if stage != self._stage and self._run.status == "running" and time.monotonic() >= self._retry_at:
            reason, by = ("it is left to its rule", SCREEN) if held is None else ("it was said to be there", held.by)
            self._rewire(reason, by=by)
            self._retry_at = time.monotonic() + (WINDOW_S if stage != self._stage else 0.0)
        self._since, self._looks, self._full = time.monotonic(), 0, 0

    def _is_idle(self, producer: str) -> bool:
        return self._run.worker(producer).waiting is not None

    def _rewire(self, reason: str, share: float | None = None, *, by: str = SCREEN) -> None:
        """Move the screen, and write why; where that cannot be done now, it is tried after the next window."""
        leaves = self._stage == BEFORE
        try:
            edits = self._to(BESIDE if leaves else BEFORE)
            receipt = self._run.reconfigure(edits, queued="carry" if leaves else "leave", timeout=HOLD_S)
        except (GraphError, PipelineError, TimeoutError):
            return  # it ends, or a stage does not come to a border
        self._patience *= 2 if leaves and by == SCREEN else 1
        self._stage, self._whole = BESIDE if leaves else BEFORE, 0
        done = "screen beside the way of the blocks" if leaves else "screen in the way of the blocks"
        reason += f"; stages stood for {receipt.pause_ms:.0f} ms, {receipt.moved + receipt.kept} blocks kept"
        baseline = None if share is None else FULL
        self._book.write(Decided(what="rewired", by=by, reason=reason, value=share, baseline=baseline, done=done))

    def _to(self, stage: str) -> Edits:
        """Return the edits that move the screen to the other place."""
        screen = self._screen if stage == BEFORE else ScreenBeside(self._screen)
        edits = Edits().remove_stage(self._stage).add_stage(stage, self._screen.substrate, screen)
        edits.add_edge(stage, "journal", TO_JOURNAL)
        for name in self._producers:
            if stage == BESIDE:
                room = Bounded(TO_SCREEN.capacity, drop="oldest")
                edits.add_edge(name, "journal", TO_SCREEN).add_edge(name, BESIDE, room)
            else:
                edits.remove_edge(name, "journal").add_edge(name, BEFORE, TO_SCREEN)
        return edits
