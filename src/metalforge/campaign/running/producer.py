"""The stage that runs chains: an order in, a block of rows out."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from metalforge.campaign.store.records import Promise
from metalforge.lattice.run import ChainFaultError, Segment
from metalforge.pipeline import Emit, Stage

from .equipment import Tools
from .orders import Block, Brief, Order
from .point import PointChain
from .pool import ChainPool, settle


class Producer(Stage[Order, Block]):
    """Runs the chains it is ordered to run on one logical substrate, pinned to a core of its own.

    Chains are its own, and messages are all that it has of the rest of the campaign. In a process of its own it comes
    back empty after a crash, says so of every chain it is asked for, and takes them up again from their files.
    """

    def __init__(self, tools: Tools, substrate: str, *, stopping: Callable[[], bool], core: int | None = None) -> None:
        self._tools, self._substrate, self._stopping, self._core = tools, substrate, stopping, core
        self._pool = ChainPool(tools)
        self._pinned = False

    def step(self, state: Any, item: Order) -> tuple[Any, Any]:
        """Run one order."""
        self._pin()
        # Orders that waited for a process that died all come again with a brief: the first of them takes the chain up.
        took = item.brief if item.chain not in self._pool else None
        if took is not None:
            self._pool.open(took)
        if self._tools.checks != "none":
            settle(self._tools.path(item.chain), item.settled)
        if item.chain not in self._pool:
            blocks = [self._answer(item, missing=not item.release, released=item.release)]
        elif item.release:
            blocks = [self._answer(item, step=self._pool.release(item.chain), saved=True, released=True)]
        else:
            blocks = self._run(item, took)
        return state, [self._emit(block) for block in blocks]

    def _emit(self, block: Block) -> Emit:
        # Configurations that are checked now because nobody knows of an earlier check were flagged then.
        chi = max(block.chi, self._tools.spec.screening.chi) if block.snapshots else block.chi
        header = {"chi": chi, "beta": block.beta, "done": block.done, "rows": block.rows}
        return Emit(block, header=header, chain=block.chain)

    def finish(self, state: Any) -> Any:
        """Write all chains to their files: whoever goes on with the campaign takes them up there."""
        self._pool.save_all()

    def close(self) -> None:
        """Give back what reads heads here."""
        self._tools.lines.leave()

    def _answer(self, order: Order, chain: str = "", **what: Any) -> Block:
        return Block(visit=order.visit, chain=chain or order.chain, substrate=self._substrate, **what)

    def _run(self, item: Order, took: Brief | None) -> list[Block]:
        """Return the blocks of an order, one for each chain that was moved; the first chain's comes last."""
        held = self._pool.take(item.chain)
        held.begin_block()
        began = time.thread_time()
        fault = ""
        segments: list[list[Segment]] = [[] for _ in held.points]
        try:
            segments = held.advance(item.updates, item.until, self._stopping)
        except ChainFaultError as error:
            fault = str(error)
        chis = [susceptibility_of(point, self._tools.spec.screening.window) for point in held.points]
        promised: list[Promise] = [
            self._promised(point, made, chi) for point, made, chi in zip(held.points, segments, chis, strict=True)
        ]
        seconds = (time.thread_time() - began) / len(held.points)
        if fault:
            self._pool.drop(item.chain)
        saved = not fault and self._pool.keep(item.chain)
        judged = self._tools.lines.judged()
        briefs = [None] * len(held.points) if took is None else [took, *took.others]
        blocks = []
        for rung, point in enumerate(held.points):
            done = point.measured >= item.until or bool(fault)
            block = self._answer(
                item,
                chain=point.id,
                rung=rung,
                step=point.rows,
                beta=point.beta,
                segments=segments[rung],
                measured=point.measured,
                done=done,
                links=point.links_digest() if done else "",
                seconds=seconds,
                chi=chis[rung],
                fault=fault if rung == 0 else "",
                decisions=point.take_decisions(),
                judged=judged if rung == 0 else [],
                took=briefs[rung],
                saved=saved and rung == 0,
                snapshots=[] if fault else point.take_snapshots(),
                promised=promised[rung],
            )
            blocks.append(block)
        return blocks[::-1]

    def _promised(self, chain: PointChain, made: list[Segment], chi: float) -> Promise:
        """Return which configurations of a block are to be checked; one that is flagged is kept for it."""
        if made and self._tools.checks == "all":
            return "all"
        if made and self._tools.checks == "flagged" and chi >= self._tools.spec.screening.chi:
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
    """Return N_s^3 times the variance of the order parameter over a chain's last measurements; 0 before the tenth."""
    order = chain.recent_order(window)
    if len(order) < 10:
        return 0.0
    return float(np.prod(chain.dims[:3]) * np.var(order))
