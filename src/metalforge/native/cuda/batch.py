"""Many quenched chains of one lattice in one launch, updated without the host: recorded once, then repeated.

Couplings, addresses of random numbers and steps are a table on the card, results a ring of rows: what an update
launches does not depend on them. Chains stand in groups whose links the card's cache holds, and the groups take turns.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metalforge.native.engine import BatchRow, ChainPlace, Sweeps, Trajectory

from .card import CHAIN_ROW, SITE_THREADS, DeviceBuffer

if TYPE_CHECKING:
    from .grid import CudaGrid

COLUMNS = len(BatchRow._fields)
"""Of a row of results: those of a `BatchRow`."""
SLOTS = 256
"""Rows of a chain that wait to be read."""
TURNS = (64, 8, 1)
"""Updates that are recorded as one: with several groups at most the second, which are those of a turn."""
SHARE = 0.66
"""Of the cache, for the links of a group: the rest is for what else is read."""

Plan = Sweeps | Trajectory


class CudaBatch:
    """Chains of one lattice on one card: a `Batch` of native/engine.py."""

    def __init__(self, make_grid: Callable[[int], "CudaGrid"], chains: int, cache_bytes: int, links_bytes: int) -> None:
        most = max(1, int(SHARE * cache_bytes / links_bytes))
        groups = -(-chains // most)
        sizes = [len(part) for part in np.array_split(np.arange(chains), groups)]
        self._groups = [(_Group(make_grid(size)), sum(sizes[:n])) for n, size in enumerate(sizes)]
        """With the number of the first chain of each."""
        self._pending = 0

    def place(self, chains: Sequence[ChainPlace], links: Sequence[DeviceBuffer] = ()) -> None:
        """Say what every chain is and, with `links` of a grid of this lattice, where they stand."""
        for group, first in self._groups:
            part = slice(first, first + group.chains)
            group.place(chains[part], links[part])

    def fetch(self, number: int, links: DeviceBuffer) -> None:
        """Copy the links of a chain into a buffer of a grid of this lattice."""
        group, first = next((g, first) for g, first in reversed(self._groups) if first <= number)
        group.card.copy(links.memory, group.links_of(number - first))

    def start(self, plan: Plan, updates: int) -> None:
        """Ask for so many updates of all chains; the call does not wait for them."""
        if self._pending + updates > SLOTS:
            raise ValueError(f"rows of {self._pending} updates wait to be read; the ring has room for {SLOTS}")
        self._pending += updates
        turns = TURNS if len(self._groups) == 1 else TURNS[1:]
        while updates:
            turn = next(turn for turn in turns if turn <= updates)
            for group, _ in self._groups:
                group.run(plan, turn)
            updates -= turn

    def rows(self) -> NDArray[np.float64]:
        """Wait for what was started, and return it: (updates, chains, columns of a `BatchRow`)."""
        updates, self._pending = self._pending, 0
        return np.concatenate([group.rows(updates) for group, _ in self._groups], axis=1)


class _Group:
    """Chains that are launched together."""

    def __init__(self, grid: "CudaGrid") -> None:
        self._grid, self.card, self.chains = grid, grid.card, grid.chains
        self._links: DeviceBuffer = grid.new("links")
        self._trajectory_buffers: dict[str, DeviceBuffer] | None = None
        self._table = np.zeros(self.chains, CHAIN_ROW)
        self._rows = DeviceBuffer(self.card, self.chains * CHAIN_ROW.itemsize, np.uint8)
        self._ring = DeviceBuffer(self.card, SLOTS * self.chains * COLUMNS, np.float64)
        self._slot = DeviceBuffer(self.card, 1, np.uint32)
        self._read = 0
        self._replays: dict[tuple[Plan, int], Callable[[], None] | None] = {}
        self._update: dict[str, Any] = {"rows": self._rows, "next_slot": self._slot, "slots": SLOTS}
        self._result: dict[str, Any] = {"sums": self._ring, "slot": self._slot, "width": COLUMNS}

    def links_of(self, i: int) -> Any:
        share = len(self._links.memory) // self.chains
        return self._links.memory[i * share : (i + 1) * share]

    def place(self, chains: Sequence[ChainPlace], links: Sequence[DeviceBuffer]) -> None:
        self._table[:] = list(chains)
        self.card.write(self._rows.memory, self._table.view(np.uint8))
        for i, one in enumerate(links):
            self.card.copy(self.links_of(i), one.memory)

    def run(self, plan: Plan, updates: int) -> None:
        key, work = (plan, updates), partial(self._updates, plan, updates)
        if key not in self._replays:
            # The first time kernels are loaded and memory is taken, which cannot be recorded; then nothing changes.
            self._replays[key] = None
            work()
        else:
            replay = self._replays[key] = self._replays[key] or self.card.capture(work)
            replay()
        self._table["step"] += updates

    def rows(self, updates: int) -> NDArray[np.float64]:
        ring = self.card.read(self._ring.memory).reshape(SLOTS, self.chains, COLUMNS)
        slots = (self._read + np.arange(updates)) % SLOTS
        self._read = (self._read + updates) % SLOTS
        return ring[slots]

    def _updates(self, plan: Plan, updates: int) -> None:
        grid = self._grid
        for _ in range(updates):
            if isinstance(plan, Sweeps):
                self._sweep(plan)
            else:
                self._trajectory(plan)
            grid.sum("plaquettes", links=self._links, **self._result)
            grid.launch("sum_polyakov", grid.line_blocks, SITE_THREADS, links=self._links, column=2, **self._result)
            grid.launch("advance_all", 1, 1, **self._update)

    def _sweep(self, plan: Sweeps) -> None:
        for n in range(plan.heatbath):
            self._grid.sweep("heatbath", self._links, 255, times=plan.heatbath, ahead=n + 1, **self._update)
        for _ in range(plan.overrelax):
            self._grid.sweep("overrelax", self._links, 255)
        self._grid.reunitarise(self._links)

    def _trajectory(self, plan: Trajectory) -> None:
        grid, buffers = self._grid, self._make_trajectory_buffers()
        momenta, energies = buffers["momenta"], buffers["energies"]
        into = {"momenta": momenta, "sums": energies, "width": 4}
        grid.on_links("begin_trajectory", links=self._links, momenta=momenta, ahead=1, **self._update)
        grid.sum_energies(plan.action_kernel, links=self._links, **into)
        stages = np.array(plan.stages).reshape(-1, 2)
        moved = grid.walker.walk(self._links, momenta, stages, plan.action_kernel, keep=True, **self._update)
        grid.sum_energies(plan.action_kernel, links=moved, column=2, **into)
        test = {"energies": energies, "always": plan.accept_always, "ahead": 1, "column": 4}
        grid.on_links("settle_links", links=self._links, to=moved, **test, **self._update, **self._result)

    def _make_trajectory_buffers(self) -> dict[str, DeviceBuffer]:
        if self._trajectory_buffers is None:
            self._trajectory_buffers = {
                "momenta": self._grid.new("momenta"),
                "energies": DeviceBuffer(self.card, 4 * self.chains, np.float64),
            }
        return self._trajectory_buffers
