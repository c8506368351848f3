"""Rules by which a campaign changes its graph and its chains while it runs; each change is a decision of the journal.

==================  ================================================================================================
`rule:screen`       a screen that producers stand still for leaves the way of the blocks and looks on from beside it,
                    at what it has time for; it comes back when it misses nothing. By the clock: not where a run is
                    deterministic. A person who says where it should be has the last word (`controls`)
`rule:acceptance`   a chain of which less than 15 % of the trajectories are accepted: its warm-up, in which the steps
                    are tuned, does not end early; in a measurement, where nothing may be tuned, it is given up and
                    begins again with twice the steps
`rule:queue`        a lane that has room takes over a visit that waits elsewhere before a new one is decided (planner)
==================  ================================================================================================

`[running] rewire = false` leaves everything as it is.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from metalforge.campaign.chain_log import ChainLog, chain_name
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Assigned, Commanded, Decided
from metalforge.pipeline import Bounded, Edits, GraphError, PipelineError, Run

from .book import Book
from .screen import Screen, ScreenBeside

ACCEPTANCE, QUEUE, SCREEN = "rule:acceptance", "rule:queue", "rule:screen"
LEAST_ACCEPTANCE = 0.15
"""Below which a trajectory is mostly spent on staying where it was."""
TRIED = 50
"""Trajectories over which that is counted: one of 30 % is below it once in 150 windows."""
TRIED_IN_WARMUP = 20
FINER = 2
"""Times the steps with which a chain begins again."""

WINDOW_S = 2.0
"""Between two judgements of the screen."""
FULL = 0.5
"""Part of the looks at which producers stand still and blocks wait for it, above which it is too slow."""
HOLD_S = 2.0
"""That stages have to come to a border; a block that takes longer makes no queue full, either."""
BEFORE, BESIDE = "screen", "screen-beside"
TO_SCREEN, TO_JOURNAL = Bounded(4), Bounded(8)


def acceptance_of(accepted: Sequence[float], fewest: int) -> float | None:
    """Return the part of trajectories that was accepted; None below so many."""
    return float(np.mean(accepted)) if len(accepted) >= fewest else None


def refused(chain: ChainLog) -> float | None:
    """Return the acceptance of a chain's last measurements where it is too low; None where it is not, or not known."""
    column = chain.columns.get("accepted")
    if column is None or chain.measured < TRIED:
        return None
    found = acceptance_of(column[chain.rows - TRIED : chain.rows], TRIED)
    return found if found is not None and found < LEAST_ACCEPTANCE else None


def refusals(together: Sequence[ChainLog], step: int) -> list[Decided]:
    """Return the decisions that give up chains that move together, if the trajectories of one are refused.

    Steps are never changed in a measurement. What is decided here follows from rows of the journal alone.
    """
    found = [acceptance for chain in together if (acceptance := refused(chain)) is not None]
    if not found:
        return []
    steps = int(together[0].columns["n_steps"][-1])
    return [
        Decided(
            what="abandoned",
            chain=chain.id,
            step=step,
            by=ACCEPTANCE,
            reason=f"{min(found):.0%} of its last {TRIED} trajectories were accepted with {steps} steps",
            value=min(found),
            baseline=LEAST_ACCEPTANCE,
            done=f"a new chain begins with {FINER * steps} steps",
        )
        for chain in together
    ]


def taken_over(visit: Assigned, step: int, source: str, target: str, others: int) -> Decided:
    """Return the decision that a visit goes on on another lane, since `others` wait on its own too."""
    return Decided(
        what="rewired",
        chain=visit.chain,
        step=step,
        by=QUEUE,
        reason=f"{source} has {others} more visits under way, {target} has none",
        value=float(others + 1),
        done=f"visit {visit.visit} goes on on {target}",
    )


def in_place_of(visit: Assigned, state: CampaignState, updates: int) -> Assigned:
    """Return the visit of a new chain with finer steps, in the place of a visit's chain that was given up."""
    chain, number = state.chains[visit.chain], len(state.chains)
    return Assigned(
        visit=len(state.visits),
        round=visit.round,
        chain=chain_name(number),
        stream=number,
        system=visit.system,
        coordinate=visit.coordinate,
        updates=updates,
        fresh=True,
        substrate=visit.substrate,
        by=ACCEPTANCE,
        reason=f"in the place of {chain.id}, with finer steps",
        start=chain.start,
        cheap=chain.cheap,
        n_steps=FINER * int(chain.columns["n_steps"][-1]),
        instead_of=chain.id,
    )


class ScreenRule:
    """Looks at the queue before the screen, again and again, and rewires a graph that runs.

    `producers` are its stages, with the blocks that come from each at once.
    """

    def __init__(
        self,
        run: Run,
        book: Book,
        screen: Screen,
        producers: Mapping[str, int],
        *,
        judges: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._book, self._screen, self._producers, self._clock = run, book, screen, producers, clock
        self._judges, self._retry_at = judges, 0.0
        self._stage = BEFORE
        self._patience = 1
        """Windows without a loss after which the screen comes back: twice as many each time that it left."""
        self._whole = 0
        """Of them, those that were."""
        self._since, self._looks, self._full, self._missed = clock(), 0, 0, 0

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
        works, idle = self._run.worker(self._stage).waiting is None, [n for n in self._producers if self._is_idle(n)]
        self._full += bool(works and idle and any(lane.queued for lane in into))
        missed = sum(lane.dropped for lane in into)
        if (window := self._clock() - self._since) < WINDOW_S:
            return
        share, lost = self._full / self._looks, missed - self._missed
        measured = f"{self._looks} looks over {window:.1f} s"
        if self._stage == BEFORE and share >= FULL:
            reason = f"blocks waited for the screen and producers for blocks in {share:.0%} of {measured}"
            self._rewire(self._beside(), BESIDE, reason, share)
        elif self._stage == BESIDE:
            self._whole = 0 if lost else self._whole + 1
            if self._whole >= self._patience:
                reason = f"the screen missed no block in {self._whole} windows, the last of {measured}"
                self._rewire(self._before(), BEFORE, reason, share)
        self._since, self._looks, self._full, self._missed = self._clock(), 0, 0, missed

    def _hold(self, stage: str, held: Commanded | None) -> None:
        """Have the screen where it was said to be; where that cannot be done now, it is tried after a window."""
        if stage != self._stage and self._run.status == "running" and self._clock() >= self._retry_at:
            edits = self._before() if stage == BEFORE else self._beside()
            reason, by = ("it is left to its rule", SCREEN) if held is None else ("it was said to be there", held.by)
            self._rewire(edits, stage, reason, by=by)
            self._retry_at = self._clock() + (WINDOW_S if stage != self._stage else 0.0)
        self._since, self._looks, self._full = self._clock(), 0, 0

    def _is_idle(self, producer: str) -> bool:
        return self._run.worker(producer).waiting is not None

    def _rewire(self, edits: Edits, stage: str, reason: str, share: float | None = None, *, by: str = SCREEN) -> None:
        """Change the graph, and write why; where it cannot be done now, it is tried after the next window."""
        try:
            receipt = self._run.reconfigure(edits, queued="carry" if stage == BESIDE else "leave", timeout=HOLD_S)
        except (GraphError, PipelineError, TimeoutError):
            return  # it ends, or a stage does not come to a border
        self._patience *= 2 if stage == BESIDE and by == SCREEN else 1
        self._stage, self._whole = stage, 0
        done = "screen beside the way of the blocks" if stage == BESIDE else "screen in the way of the blocks"
        reason += f"; stages stood for {receipt.pause_ms:.0f} ms, {receipt.moved + receipt.kept} blocks kept"
        baseline = None if share is None else FULL
        self._book.write(Decided(what="rewired", by=by, reason=reason, value=share, baseline=baseline, done=done))

    def _beside(self) -> Edits:
        screen = self._screen
        edits = Edits().remove_stage(BEFORE).add_stage(BESIDE, screen.substrate, ScreenBeside(screen))
        edits.add_edge(BESIDE, "journal", TO_JOURNAL)
        for name, blocks in self._producers.items():
            room = Bounded(max(2 * blocks, TO_SCREEN.capacity), drop="oldest")
            edits.add_edge(name, "journal", TO_SCREEN).add_edge(name, BESIDE, room)
        return edits

    def _before(self) -> Edits:
        edits = Edits().remove_stage(BESIDE).add_stage(BEFORE, self._screen.substrate, self._screen)
        edits.add_edge(BEFORE, "journal", TO_JOURNAL)
        for name in self._producers:
            edits.remove_edge(name, "journal").add_edge(name, BEFORE, TO_SCREEN)
        return edits
