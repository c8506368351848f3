"""Conjugate gradients of the staggered operator on a GPU (solver.cu): which way a lattice goes on which card."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from metalforge.native.engine import Floats, Iterated, Precision

from .card import BLOCK, LATTICE, SUMS, CardLimits, DeviceBuffer, Launcher, Meeting, Sites

__all__ = ["MOST_SHIFTS", "CudaSolver", "Way", "filled", "way_of"]

MOST_SHIFTS = 64
"""Fields of one kernel (recurrence.hpp)."""
SOLVE_BYTES = 8192
"""Room for the state of a solve of a chain, which kernels alone read."""
REPORTED, CHECKS = 4, 256
"""Numbers of a report, and residuals on the way that it has room for."""
CLUSTER_BLOCKS, MOST_CHUNKS = 8, 8
"""Blocks of a cluster (together.cuh), and how often 32 resident blocks can meet (solver.cu)."""
PASS_THREADS, PASS_WARPS = 256, 8
PASSES = 8
"""Iterations that are recorded together."""
LOOK_INTERVAL = 32
"""Iterations between two looks: those launched past the end find nothing to do."""
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
    """How iterations are made: by a kernel that does all of them, or by passes."""

    kernel: str
    meeting: Meeting
    blocks: int
    warps: int
    shared: int


def way_of(limits: CardLimits, sites: int, precision: Precision, chains: int = 1) -> Way:
    """Return the way for so many sites of one parity: the first of a cluster, resident blocks, passes that has room.

    A warp has 32 sites. Two rows of its sixteen links a site are 48 KB of doubles, its four vectors 6 KB.
    """
    tiles, size = -(-sites // BLOCK), 8 if precision == "f64" else 4
    links, vectors = 16 * 12 * BLOCK * size, 4 * 6 * BLOCK * size
    most_warps = 4 if precision == "f64" else 8
    for warps in (1, 2, 4, 8)[: most_warps.bit_length()]:
        shared = warps * (links + vectors) + 4 * CLUSTER_BLOCKS * most_warps * 8
        if limits.clusters and tiles <= CLUSTER_BLOCKS * warps and shared <= limits.shared_bytes:
            return Way("cg_cluster", "cluster", CLUSTER_BLOCKS, warps, shared)
    for warps in (1, 2, 4, 8)[: most_warps.bit_length()]:
        shared, blocks = warps * links + 2 * (most_warps + MOST_CHUNKS) * 8, -(-tiles // warps)
        fit = blocks * chains <= limits.multiprocessors and blocks <= BLOCK * MOST_CHUNKS
        if fit and shared <= limits.shared_bytes:
            return Way("cg_resident", "grid", blocks, warps, shared)
    # As many blocks as are on the card at once: each goes over many tiles, and waits for its sums once.
    at_once = limits.multiprocessors * (2 if precision == "f64" else 4)
    return Way("", "", max(1, min(-(-tiles // PASS_WARPS), -(-at_once // chains))), PASS_WARPS, 0)


def filled(values: Sequence[float]) -> list[float]:
    """As many values as a record has room for."""
    return [*values, *[0] * (MOST_SHIFTS - len(values))]


class CudaSolver:
    """Conjugate gradients whose numbers stay on the card: a run of iterations is launched, then looked at.

    A pass moves the fewest bytes it can: y = H p, then r, read eight links of 12 reals a site each, and six vectors
    between them; x and p read r once and are read and written. That is 258 reals an iteration and even site for one
    shift, 2,064 bytes in f64.
    """

    def __init__(self, sites: Sites, hopping: DeviceBuffer, shifts: int) -> None:
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
        if way.meeting == "grid":
            self._kept["spare"] = DeviceBuffer(card, chains * numbers, real)
            self._kept["slots"] = slots = DeviceBuffer(card, chains * 12 * way.blocks, np.float64)
            card.write(slots.memory, np.full(chains * 12 * way.blocks, EMPTY, np.uint64).view(np.float64))
        record = self._launch.record
        for name, buffer in self._kept.items():
            record[name] = buffer.address
        record["stride"], record["count"] = chains * numbers // 2, shifts
        record["report_width"] = REPORTED + CHECKS
        self._round = 0
        self._recorded: dict[int, Callable[[], None]] = {}

    def begin(self, residual: DeviceBuffer, keep: bool) -> None:
        self._pass(f"cg_begin_{'kept' if keep else 'new'}", source=residual)

    def iterate(
        self,
        solutions: Sequence[DeviceBuffer],
        shifts: Floats,
        diagonal: float,
        target2: float,
        most: int,
        parity: int,
        every: int,
        since: int,
    ) -> Iterated:
        return self.iterate_chains(solutions, shifts, diagonal, target2, most, parity, every, since)[0]

    def iterate_chains(
        self,
        solutions: Sequence[DeviceBuffer],
        shifts: Floats,
        diagonal: float,
        target2: float,
        most: int,
        parity: int,
        every: int,
        since: int,
    ) -> list[Iterated]:
        """Return what each chain of the grid did; they have one mass, and end each by itself."""
        most = min(most, CHECKS * every - since)
        values: dict[str, Any] = {
            "first": filled([x.address for x in solutions]),
            "numbers": filled([float(shift) for shift in shifts]),
            "diagonal": diagonal,
            "target2": target2,
            "most": most,
            "parity": parity,
            "every": every,
            "since": since,
        }
        if self.way.kernel:
            self._round ^= 1
            way = self.way
            self._launch.together(
                way.kernel + "_shifts" * (self._shifts > 1),
                way.meeting,
                way.blocks,
                way.warps * BLOCK,
                way.shared,
                round=self._round,
                **values,
            )
            return self._look(every, since)
        self._launch("cg_start", 1, 1, **values)
        launched = 0
        if parity not in self._recorded:
            # Kernels are loaded by their first launch, which a recording must not do.
            self._passes(parity, 1)
            launched = 1
            self._recorded[parity] = self._sites.card.capture(partial(self._passes, parity, PASSES))
        while True:
            for _ in range(-(-min(most - launched, LOOK_INTERVAL) // PASSES)):
                self._recorded[parity]()
                launched += PASSES
            self._launch("cg_result", 1, 1)
            found = self._look(every, since)
            if launched >= most or all(chain.state for chain in found):
                return found

    def _passes(self, parity: int, times: int) -> None:
        for _ in range(times):
            for number in (1, 2, 3):
                self._pass(f"cg_pass_{number}", parity=parity)

    def _pass(self, kernel: str, **values: Any) -> None:
        tiles = self._sites.padded // BLOCK
        blocks = self.way.blocks if not self.way.kernel else max(1, min(tiles // PASS_WARPS, 64))
        self._launch(kernel, blocks, PASS_THREADS, **values)

    def _look(self, every: int, since: int) -> list[Iterated]:
        found = []
        for row in self._sites.card.read(self._report.memory).reshape(self._sites.chains, -1):
            done, residual2, state, updates = row[:REPORTED]
            checks = row[REPORTED : REPORTED + (since + int(done)) // every]
            found.append(Iterated(int(done), float(residual2), int(state), int(updates), checks.tolist()))
        return found
