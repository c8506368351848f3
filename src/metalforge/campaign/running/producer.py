"""The stage that runs chains: orders in, blocks of rows out."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from metalforge.campaign.store.records import Decided, Promise
from metalforge.core import ChainFaultError, DeviceLostError
from metalforge.pipeline import Emit, Stage

from .equipment import Tools
from .gate import Gate
from .ladder import PointLadder
from .orders import Block, Order, Volley
from .point import PointChain
from .pool import ChainPool
from .together import Faults, Together

LONGEST_S = 2.0
"""Wall time of a block, unless a single update takes longer."""


class Producer(Stage[Volley, Block]):
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
        self._took: set[str] = set()
        """Chains that were taken up with the orders under way."""
        self._pinned = False
        self._began = 0.0
        """When the updates of the orders under way began."""

    def step(self, state: Any, item: Volley) -> tuple[Any, Any]:
        """Run orders."""
        self._pin()
        try:
            answered = [block for order in item.orders if (block := self._prepare(order)) is not None]
            waiting = {block.chain for block in answered}
            blocks = answered + self._run([order for order in item.orders if order.chain not in waiting])
        except DeviceLostError as error:
            self._pool.forget()
            blocks = [self._answer(order, lost=str(error).partition("\n")[0]) for order in item.orders]
        last = len(blocks) - 1
        return state, [self._emit(replace(block, more=last - i)) for i, block in enumerate(blocks)]

    def _prepare(self, order: Order) -> Block | None:
        """Take up the chain of an order; return the answer to one that moves nothing."""
        if order.chain in self._abandoned:
            return self._answer(order, missing=not order.release, released=order.release)
        # Orders that waited for a process that died all come again: the first of them takes the chain up.
        if order.known and order.chain not in self._pool:
            self._pool.open(order.known)
            self._took.add(order.chain)
        if order.chain not in self._pool:
            return self._answer(order, missing=not order.release, released=order.release)
        if order.release:
            return self._answer(order, step=self._pool.release(order.chain), saved=True, released=True)
        return None

    def _emit(self, block: Block) -> Emit:
        # Configurations that are checked now because nobody knows of an earlier check were flagged then.
        chi = max(block.chi, self._tools.spec.screening.chi) if block.snapshots else block.chi
        header = {"chi": chi, "coordinate": block.coordinate, "done": block.done, "rows": block.rows}
        return Emit(block, header=header, chain=block.chain)

    def finish(self, state: Any) -> Any:
        """Write all chains to their files: whoever goes on with the campaign takes them up there."""
        try:
            self._pool.save_all()
        except DeviceLostError:
            self._pool.forget()  # they go on from the files that are there

    def _answer(self, order: Order, chain: str = "", **what: Any) -> Block:
        return Block(visit=order.visit, chain=chain or order.chain, substrate=self._substrate, **what)

    def _run(self, orders: Sequence[Order]) -> list[Block]:
        """Return the blocks of orders, one for each chain that was moved; of a ladder the first chain's comes last."""
        held = [self._pool.take(order.chain) for order in orders]
        faults: Faults = {}
        for one, order in zip(held, orders, strict=True):
            try:
                one.begin(order.updates, order.until)
            except ChainFaultError as error:  # its first update was made twice, and the second chain is not sound
                faults[one] = error
        clock = time.monotonic if self._tools.wide else time.thread_time
        self._began, began = time.time(), clock()
        faults |= self._together.advance([one for one in held if one not in faults], self._until_border())
        seconds = (clock() - began) / max(sum(len(one.points) for one in held), 1)
        blocks: list[Block] = []
        for one, order in zip(held, orders, strict=True):
            blocks += self._blocks(order, one, faults.get(one), seconds, len(orders))[::-1]
        if blocks:
            # The last one speaks for the volley.
            said = self._together.take_said() + self._pool.take_said()
            lane = [Decided(what="lane", by=self._substrate, reason=reason) for reason in said]
            blocks[-1] = replace(blocks[-1], decisions=[*blocks[-1].decisions, *lane])
        return blocks

    def _until_border(self) -> Callable[[], bool]:
        """Return what says before every update whether a block ends there.

        A block whose updates take long ends after two seconds: what is not written is not seen, and not safe. Where it
        ends has a say in what is decided of a chain, so that the clock has none where a run is deterministic.
        """
        stopping = self._stopping
        if self._tools.spec.running.deterministic:
            return stopping
        ends = inf

        def over() -> bool:
            nonlocal ends
            now = time.monotonic()
            # Asked before the first update, too: that one is always made.
            ends, late = (now + LONGEST_S, False) if ends == inf else (ends, now > ends)
            return late or stopping()

        return over

    def _blocks(
        self, order: Order, held: PointLadder, error: ChainFaultError | None, seconds: float, together: int
    ) -> list[Block]:
        """Return the blocks of one order, by coupling; one answer to an order whose block must be computed again."""
        verdict = self._gate.judge(held, error)
        fault = verdict.fault
        if verdict.again:
            self._took.discard(order.chain)
            self._pool.doubt(order.chain, from_start=verdict.from_start)
            return [self._answer(order, missing=True, step=held.rows, decisions=list(verdict.decisions))]
        segments = held.take_segments() if not fault else [[] for _ in held.points]
        chis = [susceptibility_of(point, self._tools.spec.screening.window) for point in held.points]
        promised: list[Promise] = [
            self._promised(point, chi) if rows else "none"
            for point, chi, rows in zip(held.points, chis, segments, strict=True)
        ]
        if fault:
            self._pool.drop(order.chain)
            self._abandoned.add(order.chain)
        saved = not fault and self._pool.keep(order.chain, together)
        took = order.chain in self._took
        self._took.discard(order.chain)
        blocks = []
        for rung, point in enumerate(held.points):
            done = point.measured >= order.until or bool(fault)
            block = self._answer(
                order,
                chain=point.id,
                rung=rung,
                step=point.rows,
                coordinate=point.coordinate,
                segments=segments[rung],
                done=done,
                digest=point.digest() if done else "",
                seconds=seconds,
                began=self._began,
                chi=chis[rung],
                fault=fault if rung == 0 else "",
                decisions=[*point.take_decisions(), *(d for d in verdict.decisions if d.chain == point.id)],
                took=took,
                saved=saved and rung == 0,
                snapshots=[] if fault else point.take_snapshots(),
                promised=promised[rung],
            )
            blocks.append(block)
        return blocks

    def _promised(self, chain: PointChain, chi: float) -> Promise:
        """Return which configurations of a block are to be checked; one that is flagged is kept for it."""
        if self._tools.checks == "all":
            return "all"
        if self._tools.checks == "flagged" and chi >= self._tools.spec.screening.chi:
            chain.snap()
            return "last"
        return "none"

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
