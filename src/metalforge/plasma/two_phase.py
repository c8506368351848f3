"""Half a crystal beside half a fluid of the same temperature: the warm-up of a box that begins as a bcc crystal.

It has four stages of one length, all of them in a bath of low friction:

    crystal     all particles, at the coupling: the crystal gets its thermal displacements
    melting     those of the upper half far above the melting temperature, the lower half held where it stands
    cooling     the upper half at the coupling, the lower half still held
    together    all particles, at the coupling: the two interfaces find their shape

A random half would set several kT a particle free beside the crystal, and melt what it should grow on. Half is held by
putting it back after every frame, within which particles go a hundredth of their distance.
"""

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError
from metalforge.native import Motion, ParticleSamples

from .box import Asked, Particles
from .spec import PlasmaSpec

STAGES = 4
FRICTION = 0.2
"""Of the bath, in omega_p: one of 1 overdamps the long waves of a crystal, which then take hundreds of 1/omega_p."""
MELTING = 0.25
"""Part of the coupling at which the upper half melts: within some 10/omega_p."""


def stage_of(spec: PlasmaSpec, done: int, total: int) -> tuple[Motion, bool]:
    """Return how particles move after some of `total` parts of a warm-up, and whether the lower half is held."""
    number = done * STAGES // total
    coupling = spec.gamma * MELTING if number == 1 else spec.gamma
    return spec.langevin(FRICTION, gamma=coupling), number in (1, 2)


def require_stages(total: int) -> None:
    """Raise where a warm-up is too short for its stages, or has parts of two in one."""
    if total < STAGES or total % STAGES:
        raise SpecError(
            f"the warm-up of a two-phase start has {STAGES} stages of one length. Got {total} segments\n"
            f"hint: `warmup.longest` of {max(STAGES, total // STAGES * STAGES)}"
        )


def lower_half(places: NDArray[np.float64], length: float) -> NDArray[np.bool_]:
    """Return which particles of a perfect crystal stand in the lower half of the box."""
    return np.asarray(places[:, 2] < length / 2, np.bool_)


def holding(
    particles: Particles, held: NDArray[np.bool_], spec: PlasmaSpec, motion: Motion
) -> Generator[Asked, ParticleSamples, list[ParticleSamples]]:
    """Ask for the moves of a block, with those that are held put back after every frame."""
    kept = [(name, getattr(particles, name)[held].copy()) for name in ("positions", "boxes", "velocities")]
    seen = []
    for _ in range(spec.block_frames):
        steps = spec.block_steps // spec.block_frames
        seen.append((yield Asked(motion, steps, spec.frame_samples, 1)))
        for name, values in kept:
            getattr(particles, name)[held] = values
    return seen
