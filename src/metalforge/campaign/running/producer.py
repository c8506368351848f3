"""The stage that runs chains: orders in, blocks of rows out; and the chains that it holds, in memory and on disk."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.store.chain_files import CheckpointStoreError
from metalforge.campaign.store.records import Promise
from metalforge.core import ChainFaultError, DeviceLostError, MetalforgeError, SpecError
from metalforge.pipeline import Stage

from .batches import Faults, Together
from .gate import Gate
from .orders import Answer, Block, Order, Volley
from .point import PointChain, Tools

LONGEST_S = 2.0
"""Wall time of a block, unless a single update takes longer."""
SHARE = 0.05
"""Part of the run time of chains that move together which their checkpoints may cost."""


class ChainPool:
    """Takes up chains by what the journal knows of them, keeps their files, and gives them away."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.held: dict[str, PointChain] = {}
        self.said: list[str] = []
        """What the journal should say of the checkpoints."""
        self._troubled = False

    def open(self, known: ChainLog) -> PointChain:
        """Take up a chain, from a checkpoint or new."""
        files, point = self._tools.files, self._tools.spec.theory.point
        path = Path()
        try:
            with files.reading(known.id) as path:
                found = point(known, self._tools, path)
            if known.rows and not found.taken_up_at and self._tools.checks != "none":
                # The last checkpoint is from beyond what the journal has with all checks.
                with files.reading(known.id, before=True) as path:
                    found = point(known, self._tools, path)
        except CheckpointStoreError:
            raise
        except MetalforgeError as error:
            if files.has(known.id):
                where = files.where(known.id)
                raise SpecError(
                    f"chain {known.id} cannot go on from its checkpoint: {str(error).replace(str(path), where)}\n"
                    f"hint: remove {where} to compute the chain again from its start, bit for bit"
                ) from error
            raise
        found.saved_at = time.monotonic()
        self.held[known.id] = found
        return found

    def keep(self, held: PointChain, together: int = 1) -> bool:
        """Write a checkpoint if it is due: no more often than asked for, and no more than `SHARE` of the time.

        So many move `together` in that time, and wait while one is written.
        """
        wait = max(self._tools.spec.running.checkpoint_s, together * held.cost_s / SHARE)
        return time.monotonic() - held.saved_at >= wait and self.save(held)

    def save(self, held: PointChain) -> bool:
        """Write a checkpoint now; return whether it is kept. A place that does not take it has the one before.

        The first trouble with the place is said.
        """
        began = time.monotonic()
        try:
            self._tools.files.save(held.id, held.save, keep=self._tools.checks != "none")
        except CheckpointStoreError as error:
            if not self._troubled:
                self.said.append(f"{error.first_line}: chains go on, and what was kept before stays")
            kept, self._troubled = False, True
        else:
            kept, held.written = True, held.rows
        held.saved_at = time.monotonic()
        held.cost_s = held.saved_at - began
        return kept

    def save_all(self) -> None:
        """Write all chains whose files are older than they are; a place that does not take one is not asked on."""
        for name in sorted(self.held):
            if self.held[name].rows != self.held[name].written and not self.save(self.held[name]):
                return


class Producer(Stage[Volley, Answer]):
    """Runs the chains it is ordered to run on one logical substrate; on cores pinned to one of its own.

    Chains are its own, and messages are all that it has of the rest of the campaign. In a process of its own it comes
    back empty after a crash, says so of every chain it is asked for, and takes them up again from their files.
    """

    def __init__(self, tools: Tools, substrate: str, *, stopping: Callable[[], bool], core: int | None = None) -> None:
        self._tools, self._substrate, self._stopping, self._core = tools, substrate, stopping, core
        self._pool, self._together = ChainPool(tools), Together(batches=tools.wide)
        self._gate = Gate(wide=tools.wide)
        self._abandoned: set[str] = set()
        """Chains that a verdict ended: orders that were already on their way must not open them again."""
        self._pinned = False

    def step(self, state: Any, item: Volley) -> tuple[Any, list[Answer]]:
        """Run orders."""
        self._pin()
        try:
            return state, [self._answer(item)]
        except DeviceLostError as error:
            self._pool.held.clear()
            return state, [Answer(substrate=self._substrate, lost=str(error).partition("\n")[0])]

    def finish(self, state: Any) -> Any:
        """Write all chains to their files, from which a resumed campaign continues them."""
        try:
            self._pool.save_all()
        except DeviceLostError:
            self._pool.held.clear()  # they go on from the files that are there

    def _answer(self, volley: Volley) -> Answer:
        """Take up what the orders move, and move it."""
        blocks, moved = [], []
        for order in volley.orders:
            held = None if order.chain in self._abandoned else self._pool.held.get(order.chain)
            # Orders that waited for a process that died all come again: the first of them takes the chain up.
            if held is None and order.known and order.chain not in self._abandoned:
                held = self._pool.open(order.known)
            if order.release or held is None:
                saved = held is not None and self._pool.save(self._pool.held.pop(order.chain))
                blocks.append(
                    Block(visit=order.visit, chain=order.chain, held=False, released=order.release, saved=saved)
                )
            else:
                moved.append((order, held))
        faults: Faults = {}
        for order, held in moved:
            try:
                held.begin(order.updates, order.until)
            except ChainFaultError as error:  # its first update was made twice, and the second chain is not sound
                faults[held] = error
        clock = time.monotonic if self._tools.wide else time.thread_time
        began_at, began = time.time(), clock()
        faults |= self._together.advance([held for _, held in moved if held not in faults], self._until_border())
        seconds = clock() - began
        blocks += [self._block(order, held, faults.get(held), len(moved)) for order, held in moved]
        said, self._together.said, self._pool.said = self._together.said + self._pool.said, [], []
        # Configurations that are checked now because nobody knows of an earlier check were flagged then.
        chi = max((block.chi for block in blocks), default=0.0)
        return Answer(
            substrate=self._substrate,
            blocks=blocks,
            chi=max(chi, self._tools.spec.screening.chi) if any(block.snapshots for block in blocks) else chi,
            seconds=seconds,
            began=began_at,
            said=said,
        )

    def _until_border(self) -> Callable[[], bool]:
        """Return what says before every update whether a block ends there.

        A block whose updates take long ends after two seconds: what is not written is not seen, and not safe. Where it
        ends has a say in what is decided of a chain, so that the clock has none where a run is deterministic.
        """
        stopping = self._stopping
        if self._tools.spec.running.deterministic:
            return stopping
        ends: float | None = None

        def over() -> bool:
            nonlocal ends
            if ends is None:  # asked before the first update, too: that one is always made
                ends = time.monotonic() + LONGEST_S
                return stopping()
            return time.monotonic() > ends or stopping()

        return over

    def _block(self, order: Order, held: PointChain, error: ChainFaultError | None, together: int) -> Block:
        """Return the block of an order, or say that it must be computed again."""
        verdict = self._gate.judge(held, error)
        if verdict.again or verdict.fault:
            del self._pool.held[held.id]
        if verdict.again:
            if verdict.from_start:
                self._tools.files.forget(held.id)
            return Block(visit=order.visit, chain=order.chain, held=False, decisions=verdict.decisions)
        if verdict.fault:
            self._abandoned.add(held.id)
        segments = [] if verdict.fault else held.take_segments()
        screening = self._tools.spec.screening
        promised: Promise = "none"
        chi = susceptibility_of(held, screening.window)
        if segments and self._tools.checks == "all":
            promised = "all"
        elif segments and self._tools.checks == "flagged" and chi >= screening.chi:
            held.snap()
            promised = "last"
        decisions, snapshots = held.take_told()
        done = bool(verdict.fault) or held.measured >= order.until
        took, held.took = held.took, False
        return Block(
            visit=order.visit,
            chain=order.chain,
            took=took,
            step=held.rows,
            segments=segments,
            done=done,
            digest=held.digest() if done else "",
            chi=chi,
            fault=verdict.fault,
            decisions=[*decisions, *verdict.decisions],
            snapshots=[] if verdict.fault else snapshots,
            promised=promised,
            saved=not verdict.fault and self._pool.keep(held, together),
        )

    def _pin(self) -> None:
        """Bind this stage's thread to its core, where the system can."""
        if self._pinned or self._core is None or not hasattr(os, "sched_setaffinity"):
            return
        self._pinned = True
        if self._core in os.sched_getaffinity(0):
            os.sched_setaffinity(threading.get_native_id(), {self._core})


def susceptibility_of(chain: PointChain, window: int) -> float:
    """Return the susceptibility of the order parameter over a chain's last measurements; 0 before the tenth."""
    order = chain.recent_order(window)
    if len(order) < 10:
        return 0.0
    return float(chain.theory.volume_of(chain.system) * np.var(order))
