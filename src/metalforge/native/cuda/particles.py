"""Particles on a card: replicas of one box that move together, each with the bits it would have alone (plasma.cu).

Few particles walk all steps of a call in one launch, whose blocks meet after each; many take three launches per step,
recorded once and repeated. Both give the same bits, and so does any number of replicas.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from metalforge.native.engine import PARTICLE_SUMS, Floats, Motion, ParticleSamples, ParticleState, Precision

from .card import Card, DeviceBuffer

FILE = "plasma.cu"
REPLICA = np.dtype(
    [("seed", "u8"), ("stream", "u4"), ("step", "u4"), *((name, "f8") for name in ("dt", "half_kick", "keep", "noise"))]
)
PLAN = np.dtype(
    [
        *((name, "u8") for name in ("samples", "frame_positions", "frame_velocities", "forces")),
        *((name, "i4") for name in ("steps", "sample_every", "frame_every", "measure")),
    ]
)
POINTERS = (
    *("replica", "plan", "host_positions", "host_velocities", "host_boxes", "x", "v", "listed", "places_0", "places_1"),
    *("boxes", "id", "cell", "members", "begin", "fill", "list", "count", "clock", "stale", "lost", "crowded", "made"),
    *("partial", "arrived"),
)
WORK = np.dtype(
    [
        *((name, "i4") for name in ("n", "replicas", "blocks", "lanes", "cells", "reach", "round", "capacity")),
        *((name, "f8") for name in ("length", "width", "radius", "moved2", "kappa", "cutoff")),
        *((name, "u8") for name in POINTERS),
    ]
)
"""The records of plasma.cu."""
COLUMNS = len(PARTICLE_SUMS)
ARRAYS = {"positions": np.float64, "boxes": np.int32, "velocities": np.float64}
"""Those of a `ParticleState`, with their types."""
SORT_THREADS, COPY_THREADS = 512, 256
"""Of a block of the kernels that have a block per replica, and of those that copy."""
MOST_PLACES = 1 << 27
"""Of a box: what an entry of a list has bits for."""
RECORDED = 16
"""Steps that are recorded as one."""
RESIDENT_THREADS = 512
"""Of a multiprocessor, that are there at once whatever else (the launch bounds of plasma.cu)."""
IMAGE_BYTES = 28 * 32
"""Of shared memory, before the sums of a block's particles."""


class Tuning(NamedTuple):
    """How the work is cut up. Lanes and threads decide the order of sums, and so the last bits; so do cells.

    The defaults are what was fastest for batches on an H200: lanes of 16 are a quarter faster for one box of 4,096, and
    an eighth slower for 64. A run must not depend on how many go with it, so one choice serves both.
    """

    lanes: int = 8
    """Threads that share the neighbours of a particle: 4, 8, 16 or 32."""
    unroll: int = 4
    """Neighbours that a lane has in hand at once: 1, 2 or 4."""
    threads: int = 128
    """Of a block: 128 or 256."""
    fine: int = 2
    """Cells to the radius of a list."""
    walk_rounds: float = 4.0
    """Walks are for particles whose blocks come so often to each that is there at once; more take launches."""


DEFAULT = Tuning()


class CudaParticles:
    """Replicas of a box on a card: `ParticleBoxes` of native/engine.py."""

    def __init__(
        self,
        card: Card,
        replicas: int,
        n: int,
        length: float,
        kappa: float,
        cutoff: float,
        skin: float,
        precision: Precision,
        tuning: Tuning = DEFAULT,
    ) -> None:
        _check_number("n", n, MOST_PLACES - 1)
        _check_number("length", length, 1e5)
        _check_number("kappa", kappa, 100)
        _check_number("cutoff", cutoff, length / 2)
        _check_number("skin", skin, length / 4)
        self._card, self._precision, self._tuning = card, precision, tuning
        self._replicas, self._n, self._length = replicas, n, length
        radius = cutoff + skin
        cells = max(1, int(length / (radius / tuning.fine)))
        blocks = -(-n * tuning.lanes // tuning.threads)
        self._blocks = blocks
        resident = card.limits.multiprocessors * (RESIDENT_THREADS // tuning.threads)
        self._walk_blocks = min(resident, replicas * blocks)
        self.walks = replicas * blocks <= tuning.walk_rounds * resident
        self._shared = max(IMAGE_BYTES + tuning.threads // tuning.lanes * COLUMNS * 8, SORT_THREADS * 4)
        record = self._record = np.zeros((), WORK)
        record["n"], record["replicas"], record["blocks"], record["lanes"] = n, replicas, blocks, tuning.lanes
        record["cells"], record["reach"] = cells, math.ceil(radius * cells / length)
        record["round"] = tuning.lanes * tuning.unroll
        record["length"], record["width"], record["radius"] = length, length / cells, radius
        record["moved2"], record["kappa"], record["cutoff"] = skin**2 / 4, kappa, cutoff
        self._buffers: dict[str, DeviceBuffer] = {}
        places, real = replicas * n, np.float64 if precision == "f64" else np.float32
        for name in ("x", "v", "listed"):
            self._take(name, 4 * places, np.float64)
        for name in ("places_0", "places_1"):
            self._take(name, 4 * places, real)
        for name in ("host_positions", "host_velocities"):
            self._take(name, 3 * places, np.float64)
        for name in ("host_boxes", "boxes"):
            self._take(name, 3 * places, np.int32)
        for name in ("id", "cell", "members", "count"):
            self._take(name, places, np.uint32)
        self._take("begin", replicas * (cells**3 + 1), np.uint32)
        self._take("fill", replicas * cells**3, np.uint32)
        self._take("clock", replicas, np.int32)
        for name in ("stale", "lost", "crowded", "made"):
            self._take(name, replicas, np.uint32)
        self._take("arrived", 1, np.uint32)
        self._take("partial", 2 * replicas * blocks * COLUMNS, np.float64)
        self._take("replica", replicas * REPLICA.itemsize, np.uint8)
        self._take("plan", PLAN.itemsize, np.uint8)
        near = n * 4 / 3 * math.pi * (radius / length) ** 3
        self._make_lists(int(near + 6 * math.sqrt(near) + 16))
        self._replay: Callable[[], None] | None = None
        self._loaded = False

    @property
    def replicas(self) -> int:
        """How many boxes there are."""
        return self._replicas

    def measure(self, positions: Floats, velocities: Floats) -> tuple[Floats, Floats]:
        """Return the forces (replicas, n, 3) and a row of sums each."""
        still = [0] * self._replicas
        state = ParticleState(positions, np.zeros(positions.shape, np.int32), velocities, still)
        seen = self._call(state, [Motion(1.0, 1.0)] * self._replicas, 0, 1, 0)
        shape = (self._replicas, self._n, 3)
        return self._card.read(self._buffers["forces"].memory).reshape(shape), seen.reshape(self._replicas, COLUMNS)

    def advance(
        self, state: ParticleState, motions: Sequence[Motion], steps: int, *, samples: int = 0, frames: int = 0
    ) -> list[ParticleSamples]:
        """Move all replicas, in place, and look at each so often on the way; one that is lost stays as it was."""
        for motion in motions:
            _check_number("dt", motion.dt, 10)
            _check_number("mass", motion.mass, 1e6)
            if not (0 <= motion.keep <= 1 and 0 <= motion.noise < 1e6):
                raise ValueError("`keep` must be in [0, 1] and `noise` >= 0")
        for name, rows in (("samples", samples), ("frames", frames)):
            if rows and steps % rows:
                raise ValueError(f"`steps` must be a multiple of the rows of `{name}`. Got {steps} and {rows}")
        card, own, shape = self._card, self._buffers, (self._replicas, self._n, 3)
        sums = self._call(state, motions, steps, samples, frames)
        lost, made = card.read(own["lost"].memory) != 0, card.read(own["made"].memory)
        found = ~lost
        for name in ARRAYS:
            getattr(state, name)[found] = card.read(own[f"host_{name}"].memory).reshape(shape)[found]
        places = speeds = np.empty((self._replicas, 0, self._n, 3))
        if frames:
            places, speeds = (
                card.read(own[name].memory).reshape(self._replicas, frames, self._n, 3)
                for name in ("frame_positions", "frame_velocities")
            )
        sums = sums.reshape(self._replicas, samples, COLUMNS)
        return [
            ParticleSamples(sums[r], places[r], speeds[r], -1 if lost[r] else int(made[r]))
            for r in range(self._replicas)
        ]

    @property
    def listed(self) -> int:
        """Places of neighbours in the lists that were made last, filled or not."""
        return int(self._card.read(self._buffers["count"].memory).sum(dtype=np.int64))

    def _call(self, state: ParticleState, motions: Sequence[Motion], steps: int, samples: int, frames: int) -> Floats:
        """Do what is asked for; what came of it, besides the sums that are returned, is on the card."""
        measure = steps == 0
        self._check_arrays(state)
        if len(motions) != self._replicas or len(state.steps) != self._replicas:
            raise ValueError(f"wanted {self._replicas} motions and steps. Got {len(motions)} and {len(state.steps)}")
        rows = np.zeros(self._replicas, REPLICA)
        for row, motion, first in zip(rows, motions, state.steps, strict=True):
            row["seed"], row["stream"], row["step"] = motion.seed, motion.stream, first
            row["dt"], row["half_kick"] = motion.dt, motion.dt / motion.mass / 2
            row["keep"], row["noise"] = motion.keep, motion.noise
        card, own = self._card, self._buffers
        card.write(own["replica"].memory, rows.view(np.uint8).reshape(-1))
        self._write_plan(steps, samples, frames, measure)
        for name in ARRAYS:
            card.write(own[f"host_{name}"].memory, getattr(state, name).reshape(-1))
        while True:
            self._walk(steps)
            if not card.read(own["crowded"].memory).any():
                break
            self._make_lists(2 * int(self._record["capacity"]))
            self._replay = None
        if not measure:
            self._launch("give_host", self._copy_blocks, COPY_THREADS)
        return card.read(own["samples"].memory) if samples else np.empty(0)

    def _walk(self, steps: int) -> None:
        """All steps, from what the host wrote."""
        self._launch("sort_host", 1, SORT_THREADS)
        self._launch("take_host", self._copy_blocks, COPY_THREADS)
        if self.walks:
            kernel, threads = f"walk_{self._tuning.unroll}", self._tuning.threads
            shape = (self._walk_blocks, 1)
            self._card.launch(FILE, self._precision, kernel, shape, threads, self._record, self._shared, "grid")
            return
        # One more than the steps that there are: the last sums are joined by what would prepare the next one.
        for _ in range(-(-(steps + 2) // RECORDED)):
            if self._loaded and self._replay is None:
                self._replay = self._card.capture(self._steps)
            if self._replay is None:
                self._steps()  # kernels are loaded, which cannot be recorded
                self._loaded = True
            else:
                self._replay()

    def _steps(self) -> None:
        blocks, threads = self._blocks, self._tuning.threads
        for _ in range(RECORDED):
            self._launch("prepare", 1, SORT_THREADS)
            self._launch("relist", blocks, threads)
            self._launch(f"step_{self._tuning.unroll}", blocks, threads)

    @property
    def _copy_blocks(self) -> int:
        return min(-(-self._n // COPY_THREADS), 1024)

    def _launch(self, kernel: str, blocks: int, threads: int) -> None:
        shape = (blocks, self._replicas)
        self._card.launch(FILE, self._precision, kernel, shape, threads, self._record, self._shared)

    def _take(self, name: str, count: int, kind: Any) -> None:
        """Memory of a name; other memory, where it has to be more."""
        self._buffers[name] = DeviceBuffer(self._card, count, kind)
        if name in POINTERS:
            self._record[name] = self._buffers[name].address

    def _make_lists(self, wanted: int) -> None:
        whole = int(self._record["round"])
        capacity = -(-wanted // whole) * whole
        self._buffers.pop("list", None)  # before there is more
        self._take("list", self._replicas * self._n * capacity, np.uint32)
        self._record["capacity"] = capacity

    def _write_plan(self, steps: int, samples: int, frames: int, measure: bool) -> None:
        plan = np.zeros((), PLAN)
        plan["steps"], plan["measure"] = steps, measure
        wanted = {
            "samples": samples * COLUMNS,
            "frame_positions": 3 * frames * self._n,
            "frame_velocities": 3 * frames * self._n,
            "forces": 3 * self._n * measure,
        }
        for name, count in wanted.items():
            count *= self._replicas
            if name not in self._buffers or (count and self._buffers[name].memory.size != count):
                self._take(name, max(1, count), np.float64)
            plan[name] = self._buffers[name].address
        if not measure:
            plan["sample_every"] = steps // samples if samples else 0
            plan["frame_every"] = steps // frames if frames else 0
        self._card.write(self._buffers["plan"].memory, plan.reshape(1).view(np.uint8))

    def _check_arrays(self, state: ParticleState) -> None:
        shape = (self._replicas, self._n, 3)
        for name, kind in ARRAYS.items():
            array = getattr(state, name)
            if array.shape != shape or array.dtype != kind:
                raise ValueError(f"`{name}` must be {shape} of {np.dtype(kind)}. Got {array.shape} of {array.dtype}")
            if not np.isfinite(array).all():
                raise ValueError(f"`{name}` must be finite")
        if np.abs(state.positions).max() > 1e6 * self._length:
            raise ValueError("`positions` must lie within a million boxes of the box")


def _check_number(name: str, value: float, most: float) -> None:
    if not 0 < value <= most:
        raise ValueError(f"`{name}` must be a number > 0 and <= {most:g}. Got {value}")
