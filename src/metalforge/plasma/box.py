"""Particles in their box: where they begin, how they move through an engine, and what checkpoints have of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from metalforge.core import Form, MetalforgeError, PathLike, PlacementError, Sealed, SpecError, write_sealed
from metalforge.native import (
    Engine,
    Motion,
    ParticleBoxes,
    ParticleEngine,
    ParticleSamples,
    ParticleState,
    Stream,
)

from .spec import MASS, PlasmaSpec

Floats = NDArray[np.float64]
SKIN = 0.5
"""How far beyond the cut-off neighbours are looked for: that lasts until a particle has gone half of it."""
CORE_SKIN = 0.9
"""The same on cores, which list those within a part of it and look at those lists again every few steps."""
APART = 1.0
"""Between any two particles of a random start; most are 1.2 to 2 apart in a fluid."""
ROOMS = 2
"""Numbers of boxes for which room is kept."""
PLACES = ("positions", "boxes", "velocities")
"""What says where particles are, in checkpoints."""
_SPECS = msgspec.json.Decoder(PlasmaSpec)
START_DRAWS = 8 << 28
"""Which draws of a stream place particles: `native/draws.hpp` has the list."""


class LostParticleError(MetalforgeError):
    """A particle went where none can be: steps too long, or particles on top of each other."""


class Asked(NamedTuple):
    """What a block is: how particles move, by how many steps, and how often they are looked at."""

    motion: Motion
    steps: int
    samples: int
    frames: int


@dataclass(eq=False)
class Particles:
    """Positions within the box, how many boxes each coordinate has gone, velocities; `step` counts all steps."""

    positions: Floats
    boxes: NDArray[np.int32]
    velocities: Floats
    length: float
    step: int = 0

    def copy(self) -> "Particles":
        """Return an independent copy."""
        moving = (self.positions.copy(), self.boxes.copy(), self.velocities.copy())
        return Particles(*moving, self.length, self.step)

    @property
    def unwrapped(self) -> Floats:
        """Positions as if the box had no borders."""
        return self.positions + self.length * self.boxes

    def advance(
        self, box: ParticleBoxes, motion: Motion, steps: int, *, samples: int = 0, frames: int = 0
    ) -> ParticleSamples:
        """Move in a box of `open_box`, and return what was seen; a failure leaves the particles where they were."""
        state = ParticleState(self.positions[None], self.boxes[None], self.velocities[None], [self.step])
        (seen,) = box.advance(state, [motion], steps, samples=samples, frames=frames)
        self.note(motion, steps, seen)
        return seen

    def note(self, motion: Motion, steps: int, seen: ParticleSamples) -> None:
        """Count steps that were made; raises where they ended nowhere."""
        if seen.lists < 0:
            raise LostParticleError(
                f"a particle left the finite numbers within {steps} steps of {motion.dt:g} after step {self.step}\n"
                "hint: a smaller `dt`"
            )
        self.step += steps

    def stop_drifting(self) -> None:
        """Take the mean velocity away."""
        self.velocities -= self.velocities.mean(axis=0)


def open_box(spec: PlasmaSpec, engine: Engine, replicas: int = 1) -> ParticleBoxes:
    """Return an engine's room for the particles of a spec, or of so many replicas of it."""
    if not isinstance(engine, ParticleEngine):
        raise PlacementError(f"engine `{engine.name}` has no kernels for particles\nhint: the CPU's has")
    skin = min(CORE_SKIN if engine.name.startswith("cpu:") else SKIN, spec.length / 4)
    return engine.particles(replicas, spec.particles, spec.length, spec.kappa, spec.cutoff, skin, spec.precision)


class Rooms:
    """Room of an engine for boxes like that of a spec, as many as move at once; each has the bits that it has alone."""

    def __init__(self, spec: PlasmaSpec, engine: Engine, count: int) -> None:
        self._spec, self._engine = spec, engine
        self._kept: dict[int, ParticleBoxes] = {}
        self._for(count)

    def _for(self, count: int) -> ParticleBoxes:
        """Return room for so many: fewer move at once where one was lost, has ended, or is held."""
        if count not in self._kept:
            while len(self._kept) >= ROOMS:
                del self._kept[next(iter(self._kept))]
            self._kept[count] = open_box(self._spec, self._engine, count)
        return self._kept[count]

    def advance(
        self, particles: Sequence[Particles], asked: Sequence[Asked]
    ) -> list[ParticleSamples | LostParticleError]:
        """Move boxes in one launch, all by as many steps; return what was seen in each, or why one stays where it was.

        Those that moved get arrays of their own: who looks at the old ones is not disturbed.
        """
        positions, boxes, velocities = (np.stack([getattr(one, name) for one in particles]) for name in PLACES)
        state = ParticleState(positions, boxes, velocities, [one.step for one in particles])
        motions, steps = [one.motion for one in asked], asked[0].steps
        looks = {"samples": asked[0].samples, "frames": max(one.frames for one in asked)}
        seen = self._for(len(asked)).advance(state, motions, steps, **looks)
        found: list[ParticleSamples | LostParticleError] = []
        for r, (one, motion, its) in enumerate(zip(particles, motions, seen, strict=True)):
            try:
                one.note(motion, steps, its)
            except LostParticleError as error:
                found.append(error)
                continue
            one.positions, one.boxes, one.velocities = positions[r], boxes[r], velocities[r]
            found.append(its)
        return found


def begin(spec: PlasmaSpec) -> Particles:
    """Return particles where the spec starts them, with velocities of its temperature and no total momentum."""
    stream = Stream(spec.seed, spec.stream)
    drawn = stream.normal(step=0, sites=spec.particles, draws=4, first_draw=START_DRAWS)
    velocities = np.ascontiguousarray(drawn[:, :3]) / math.sqrt(MASS * spec.gamma)
    made = Particles(places(spec), np.zeros((spec.particles, 3), np.int32), velocities, spec.length)
    made.stop_drifting()
    return made


def places(spec: PlasmaSpec) -> Floats:
    """Return where particles are placed: a two-phase start is a bcc crystal, half of which its warm-up melts."""
    length = spec.length
    if spec.start == "random":
        return _random(spec.particles, length, Stream(spec.seed, spec.stream))
    corners = [(0.0, 0.0, 0.0), (0.5, 0.5, 0.5)]
    if spec.start == "fcc":
        corners = [(0.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.5, 0.0, 0.5), (0.0, 0.5, 0.5)]
    side = round(math.cbrt(spec.particles / len(corners)))
    cells = np.array(list(product(range(side), repeat=3)), np.float64)
    sites: Floats = (cells[:, None, :] + np.array(corners) + 0.25).reshape(-1, 3) * (length / side)
    return sites


def _random(n: int, length: float, stream: Stream) -> Floats:
    """Return random places that are not too near to each other."""
    placed = np.empty((0, 3))
    for turn in range(1000):
        drawn = stream.uniform(step=turn, sites=4 * n, draws=4, first_draw=START_DRAWS + 2)[:, :3] * length
        if len(placed):
            nearest, _ = cKDTree(placed, boxsize=length).query(drawn, distance_upper_bound=APART)
            drawn = drawn[nearest >= APART]
        keep = np.ones(len(drawn), bool)
        for i, j in sorted(cKDTree(drawn, boxsize=length).query_pairs(APART)):
            keep[j] &= not keep[i]
        placed = np.concatenate([placed, drawn[keep]])[:n]
        if len(placed) == n:
            return np.ascontiguousarray(placed)
    raise LostParticleError(f"{n} particles found no places that are {APART:g} apart")


def write_checkpoint(
    path: PathLike,
    form: Form,
    spec: PlasmaSpec,
    engine: Engine,
    particles: Particles,
    arrays: Mapping[str, NDArray[Any]],
    notes: Mapping[str, msgspec.Struct],
) -> None:
    """Write a checkpoint of this form with its owner's arrays and notes; an old one is replaced whole or not at all."""
    places = {name: np.asarray(getattr(particles, name), np.float64) for name in PLACES}
    texts = {name: msgspec.json.encode(record).decode() for name, record in {"spec_json": spec, **notes}.items()}
    write_sealed(path, form, Sealed({**places, **arrays}, texts, engine.name, engine.family, spec.precision))


def spec_of(sealed: Sealed) -> PlasmaSpec:
    """Return the spec of a checkpoint."""
    return _SPECS.decode(sealed.texts["spec_json"])


def particles_of(sealed: Sealed, spec: PlasmaSpec, step: int) -> Particles:
    """Return the particles of a checkpoint; raises where they are not those of the spec, or nowhere."""
    shape = (spec.particles, 3)
    for name in PLACES:
        if sealed.arrays[name].shape != shape or not np.isfinite(sealed.arrays[name]).all():
            raise SpecError(f"{name}: wanted {shape} finite numbers, got {sealed.arrays[name].shape}")
    positions, boxes, velocities = (sealed.arrays[name] for name in PLACES)
    return Particles(
        positions.astype(np.float64), boxes.astype(np.int32), velocities.astype(np.float64), spec.length, step
    )
