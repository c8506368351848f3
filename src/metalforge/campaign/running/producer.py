"""The stage that runs chains: an order in, a block of rows out."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from metalforge.campaign.spec import CampaignSpec
from metalforge.lattice.rows import Segment
from metalforge.lattice.run import ChainFaultError
from metalforge.pipeline import Emit, Stage

from .orders import Block, Order, Snapshot
from .point import PointChain
from .pool import ChainPool

__all__ = ["Producer"]

Snapshots = Literal["none", "flagged", "all"]


class Producer(Stage[Order, Block]):
    """Runs the chains it is ordered to run on one logical substrate, pinned to a core of its own."""

    def __init__(
        self,
        spec: CampaignSpec,
        pool: ChainPool,
        substrate: str,
        *,
        stopping: Callable[[], bool],
        core: int | None = None,
        snapshots: Snapshots = "none",
    ) -> None:
        self._spec, self._pool, self._substrate = spec, pool, substrate
        self._stopping, self._core, self._snapshots = stopping, core, snapshots
        self._pinned = False

    def step(self, state: Any, item: Order) -> tuple[Any, Any]:
        """Run one order."""
        self._pin()
        chain = self._pool.take(item.chain, self._substrate)
        chain.begin_block()
        began = time.thread_time()
        fault, snapshots = "", []
        segments: list[Segment] = []
        try:
            if self._snapshots == "all":
                for _ in range(item.updates):
                    made = chain.advance(1, item.until, self._stopping)
                    if not made:
                        break
                    segments += made
                    snapshots.append(self._snapshot(chain, made[-1]))
            else:
                segments = chain.advance(item.updates, item.until, self._stopping)
        except ChainFaultError as error:
            fault = str(error)
        done = chain.measured >= item.until or bool(fault)
        chi = susceptibility_of(chain, self._spec.screening.window)
        if self._snapshots == "flagged" and segments and chi >= self._spec.screening.chi:
            snapshots.append(self._snapshot(chain, segments[-1]))
        block = Block(
            visit=item.visit,
            chain=item.chain,
            beta=chain.beta,
            segments=segments,
            step=chain.rows,
            measured=chain.measured,
            done=done,
            links=chain.links_digest() if done else "",
            seconds=time.thread_time() - began,
            substrate=self._substrate,
            chi=chi,
            fault=fault,
            snapshots=snapshots,
        )
        if not fault:
            self._pool.keep(item.chain)
        header = {"chi": chi, "beta": block.beta, "done": done, "rows": block.rows}
        return state, Emit(block, header=header, chain=item.chain)

    def _snapshot(self, chain: PointChain, last: Segment) -> Snapshot:
        columns = last.columns
        return Snapshot(
            chain=chain.id,
            step=chain.rows,
            links=chain.field.to_links(),
            precision=chain.field.precision,
            plaquette=columns["plaquette"][-1],
            polyakov=complex(columns["polyakov_re"][-1], columns["polyakov_im"][-1]),
        )

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
