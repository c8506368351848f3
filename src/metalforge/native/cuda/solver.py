"""Conjugate gradients of the staggered operator on a GPU (solver.cu): which way a lattice goes on which card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from metalforge.core import PlacementError
from metalforge.native.engine import Iterated, Iterations, Precision

from .card import BLOCK, LATTICE, SUMS, CardLimits, DeviceBuffer, Launcher, Meeting

if TYPE_CHECKING:
    from .grid import CudaGrid

MOST_SHIFTS = 64
"""Fields of one kernel (recurrence.hpp)."""
SOLVE_BYTES = 2048
"""Room for the state of a solve of a chain, which kernels alone read."""
REPORTED, CHECKS = 4, 256
"""Numbers of a report, and residuals on the way that it has room for."""
CLUSTER_BLOCKS, MOST_CHUNKS = 8, 8
"""Blocks of a cluster (together.cuh), and how many times 32 resident blocks can meet (solver.cu)."""
STREAM_THREADS, STREAM_SITES = 256, 256
"""Threads of a block that goes over memory, and sites of what it takes up at once."""
STREAM_SHARED = 2 * (64 * 8 + STREAM_THREADS) * 8 + 16
SLOTS = 3 * 2 * 16
"""Of a resident block; blocks that go over memory have three together."""
EMPTY = 0xFFF8_5EED_0000_0001
"""What a slot has before its block comes to a meeting (solver.cu)."""
WORK = np.dtype(
    [
        *LATTICE,
        *((name, "i4") for name in ("parity", "count", "most", "every", "since", "round")),
        *((name, "u8") for name in ("hopping", "residual", "middle", "directions", "spare", "source")),
        ("stride", "i8"),
        *SUMS,
        ("slots", "u8"),
        ("report", "u8"),
        ("report_width", "i8"),
        ("solve", "u8"),
        ("diagonal", "f8"),
        ("target2", "f8"),
        ("first", f"{MOST_SHIFTS}u8"),
        ("numbers", f"{MOST_SHIFTS}f8"),
    ],
    align=True,
)
"""The record of solver.cu."""


class Way(NamedTuple):
    """How iterations are made."""

    kernel: Literal["cg_cluster", "cg_resident", "cg_streamed"]
    meeting: Meeting
    blocks: int
    warps: int
    shared: int


def way_of(limits: CardLimits, sites: int, precision: Precision, chains: int = 1) -> Way:
    """Return the way for so many sites of one parity: the first that has room of a cluster, resident blocks, memory.

    A warp has 32 sites. Two rows of its sixteen links a site are 48 KB of doubles, its four vectors 6 KB.
    """
    tiles, size = -(-sites // BLOCK), 8 if precision == "f64" else 4
    of_warp, most_warps = (16 * 12 + 4 * 6) * BLOCK * size, 4 if precision == "f64" else 8
    for warps in (1, 2, 4, 8)[: most_warps.bit_length()]:
        shared = warps * of_warp + 4 * CLUSTER_BLOCKS * most_warps * 8 + 16
        if limits.clusters and tiles <= CLUSTER_BLOCKS * warps and shared <= limits.shared_bytes:
            return Way("cg_cluster", "cluster", CLUSTER_BLOCKS, warps, shared)
    for warps in (1, 2, 4, 8)[: most_warps.bit_length()]:
        shared, blocks = warps * of_warp + 2 * (most_warps + MOST_CHUNKS) * 8, -(-tiles // warps)
        # A warp watches 32 blocks at once.
        fit = blocks * chains <= limits.multiprocessors and blocks <= BLOCK * warps
        if fit and shared <= limits.shared_bytes:
            return Way("cg_resident", "grid", blocks, warps, shared)
    at_once = 2 * limits.multiprocessors
    if chains > at_once:
        raise PlacementError(
            f"{chains} chains of this lattice are too many for one solve: the card has {at_once} blocks"
        )
    blocks = min(-(-sites // STREAM_SITES), at_once // chains)
    return Way("cg_streamed", "grid", blocks, STREAM_THREADS // BLOCK, STREAM_SHARED)


def filled(values: Sequence[float]) -> list[float]:
    """As many values as a record has room for."""
    return [*values, *[0] * (MOST_SHIFTS - len(values))]


class CudaSolver:
    """Conjugate gradients whose numbers stay on the card: a run of iterations is launched, then looked at.

    What goes over memory moves as few numbers as it can: y = H p and then r read eight links of 12 reals per site each,
    and six vectors between them; x and p are read and written, r is read. That is 258 reals per iteration and even site
    for one shift, 2,064 bytes in f64; another shift adds 24.
    """

    def __init__(self, sites: "CudaGrid", hopping: DeviceBuffer, shifts: int) -> None:
        card, chains, self._sites = sites.card, sites.chains, sites
        real, numbers = np.float64 if sites.precision == "f64" else np.float32, sites.padded * 6
        self.way = way = way_of(card.limits, sites.half, sites.precision, chains)
        self._report = DeviceBuffer(card, chains * (REPORTED + CHECKS), np.float64)
        self._shifts = shifts
        self._launch = Launcher(sites, "solver.cu", WORK)
        self._kept = {
            "hopping": hopping,
            "residual": DeviceBuffer(card, chains * numbers, real),
            "middle": DeviceBuffer(card, chains * numbers, real),
            "directions": DeviceBuffer(card, shifts * chains * numbers, real),
            "solve": DeviceBuffer(card, chains * SOLVE_BYTES, np.uint8),
            "report": self._report,
        }
        if way.kernel == "cg_resident":
            self._kept["spare"] = DeviceBuffer(card, chains * numbers, real)
        count = chains * 2 * (SLOTS * way.blocks if way.kernel == "cg_resident" else 3)
        self._kept["slots"] = slots = DeviceBuffer(card, count, np.float64)
        card.write(slots.memory, np.full(count, EMPTY, np.uint64).view(np.float64))
        record = self._launch.record
        for name, buffer in self._kept.items():
            record[name] = buffer.address
        record["stride"], record["count"] = chains * numbers // 2, shifts
        record["report_width"] = REPORTED + CHECKS
        self._round = 0
        self._begin_blocks = min(-(-sites.half // STREAM_SITES), 2 * card.limits.multiprocessors)

    def begin(self, residual: DeviceBuffer, keep: bool) -> None:
        kernel = f"cg_begin_{'kept' if keep else 'new'}"
        self._launch(kernel, self._begin_blocks, STREAM_THREADS, shared=STREAM_SHARED, source=residual)

    def iterate(self, solutions: Sequence[DeviceBuffer], wanted: Iterations) -> Iterated:
        return self.iterate_chains(solutions, wanted)[0]

    def iterate_chains(self, solutions: Sequence[DeviceBuffer], wanted: Iterations) -> list[Iterated]:
        """Return what each chain of the grid did; they have one mass, and end each by itself."""
        every, since = wanted.every, wanted.since
        record = self._launch.record
        record["first"][: self._shifts] = [x.address for x in solutions]
        record["numbers"][: self._shifts] = wanted.shifts
        for name in ("diagonal", "target2", "parity", "every", "since"):
            record[name] = getattr(wanted, name)
        record["most"] = min(wanted.most, CHECKS * every - since)
        way, self._round = self.way, self._round ^ 1
        kernel, threads = way.kernel + "_shifts" * (self._shifts > 1), way.warps * BLOCK
        self._launch(kernel, way.blocks, threads, shared=way.shared, meeting=way.meeting, round=self._round)
        found = []
        for row in self._sites.card.read(self._report.memory).reshape(self._sites.chains, -1):
            done, residual2, state, updates = row[:REPORTED]
            checks = row[REPORTED : REPORTED + (since + int(done)) // every]
            found.append(Iterated(int(done), float(residual2), int(state), int(updates), checks.tolist()))
        return found
