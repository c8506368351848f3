"""What decides a run of the plasma: its coupling, screening and size, and what follows from them."""

import math
from typing import Literal, get_args

import msgspec

from metalforge.core import SpecError, require_one_of
from metalforge.native import Motion, Precision

from .references import einstein_frequency

MASS = 3.0
"""omega_p^2 = 4 pi n Q^2 / m in units where a, omega_p and Q^2 / a are 1 and n = 3 / (4 pi)."""
DENSITY = 3 / (4 * math.pi)
NEAREST = 1.7
"""About where the nearest neighbours are in a strongly coupled fluid: the force there is what a cut-off is held to."""
SAMPLE_TIME, FRAME_TIME, BLOCK_TIME, SEGMENT_TIME = 0.1, 0.5, 10.0, 200.0
"""Between sums over all particles, between looks at each of them, between new lists that a run can begin at; and the
least of a segment of transport."""
MOST_PARTICLES = 1 << 24
Start = Literal["random", "bcc", "fcc", "two-phase"]


def force(r: float, kappa: float) -> float:
    """Return F = exp(-kappa r) (1 + kappa r) / r^2."""
    return math.exp(-kappa * r) * (1 + kappa * r) / r**2


def cutoff_of(kappa: float, tol: float) -> float:
    """Return r_c with F(r_c) = tol F(1.7)."""
    low, high, wanted = NEAREST, NEAREST / tol, tol * force(NEAREST, kappa)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if force(middle, kappa) > wanted else (low, middle)
    return high


def length_of(particles: int) -> float:
    """Return the box of so many particles, L = (4 pi N / 3)^(1/3)."""
    return math.cbrt(particles / DENSITY)


def least_particles(cutoff: float) -> int:
    """Return how many particles a box of two cut-offs has."""
    n = math.ceil(DENSITY * (2 * cutoff) ** 3)
    return n if length_of(n) >= 2 * cutoff else n + 1


class PlasmaSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a trajectory; (seed, stream) names it among those of a state point.

    `gamma` is the coupling that the warm-up aims at: a run quotes the one it measured. `dt` of 0 follows from it.
    """

    gamma: float
    kappa: float
    particles: int
    dt: float = 0.0
    seed: int = 1
    stream: int = 0
    start: Start = "random"
    precision: Precision = "f64"
    tol: float = 1e-4
    """The force at the cut-off, as a part of that at a nearest neighbour."""

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1e6:
            raise SpecError(f"`gamma` must be a number > 0 and <= 1e6. Got {self.gamma}")
        if self.kappa == 0:
            raise SpecError(
                "`kappa` 0 is the unscreened plasma, whose forces have no cut-off: it needs Ewald sums. Got 0\n"
                "hint: kappa from 0.5 to 4 is what this engine is for"
            )
        if not 0.05 <= self.kappa <= 20:
            raise SpecError(f"`kappa` must be a number from 0.05 to 20. Got {self.kappa}")
        if not 1e-12 <= self.tol <= 0.1:
            raise SpecError(f"`tol` must be a number from 1e-12 to 0.1. Got {self.tol}")
        if not 32 <= self.particles <= MOST_PARTICLES:
            raise SpecError(f"`particles` must be an integer from 32 to {MOST_PARTICLES}. Got {self.particles}")
        if self.length < 2 * self.cutoff:
            raise SpecError(
                f"`particles` {self.particles} have a box of {self.length:.4g}, less than two cut-offs of "
                f"{self.cutoff:.4g} (kappa {self.kappa:g}, tol {self.tol:g})\n"
                f"hint: {least_particles(self.cutoff)} particles would do"
            )
        if not (self.dt == 0 or 1e-5 <= self.dt <= SAMPLE_TIME):
            raise SpecError(f"`dt` must be a number from 1e-5 to {SAMPLE_TIME}, or 0. Got {self.dt}")
        if not 0 <= self.seed < 2**64 or not 0 <= self.stream < 2**32:
            raise SpecError(f"`seed` and `stream` must be of 64 and 32 bits. Got {self.seed} and {self.stream}")
        require_one_of(*get_args(Start), start=self.start)
        cells = {"bcc": 2, "fcc": 4, "two-phase": 2}.get(self.start)
        if cells is not None:
            side = max(1, round(math.cbrt(self.particles / cells)))
            even = 2 if self.start == "two-phase" else 1
            if cells * side**3 != self.particles or side % even:
                fits = sorted(cells * n**3 for n in range(even, side + 3) if n % even == 0)
                near = [n for n in fits if n >= self.particles][:1] or fits[-1:]
                raise SpecError(
                    f"`start` {self.start} needs {cells} n^3 particles{', n even' * (even - 1)}. Got {self.particles}\n"
                    f"hint: {near[0]} would do"
                )

    @property
    def length(self) -> float:
        """Of the box."""
        return length_of(self.particles)

    @property
    def cutoff(self) -> float:
        """Beyond which pairs do not see each other."""
        return cutoff_of(self.kappa, self.tol)

    @property
    def sample_steps(self) -> int:
        """Steps between two samples, which are at most 0.1 / omega_p apart."""
        dt = self.dt or (
            0.05 if self.gamma >= 50 else 0.1 / 3 if self.gamma >= 20 else 0.02 if self.gamma >= 2 else 0.01
        )
        return max(1, math.floor(SAMPLE_TIME / dt * (1 + 1e-9)))

    @property
    def step_time(self) -> float:
        """The time step: close pairs of weak coupling need small ones."""
        return self.dt or SAMPLE_TIME / self.sample_steps

    @property
    def sample_time(self) -> float:
        """Between two samples."""
        return self.sample_steps * self.step_time

    @property
    def frame_samples(self) -> int:
        """Samples between two frames."""
        return max(1, round(FRAME_TIME / self.sample_time))

    @property
    def block_frames(self) -> int:
        """Frames in a block: the least that a run does between two borders."""
        return max(1, round(BLOCK_TIME / (self.frame_samples * self.sample_time)))

    @property
    def block_steps(self) -> int:
        """Steps in a block."""
        return self.block_frames * self.frame_samples * self.sample_steps

    @property
    def block_time(self) -> float:
        """Time of a block."""
        return self.block_steps * self.step_time

    @property
    def segment_blocks(self) -> int:
        """Blocks in a segment, the unit of errors of transport: long against what stress and displacements remember."""
        return math.ceil(max(SEGMENT_TIME, 64 / einstein_frequency(self.kappa)) / self.block_time - 1e-9)

    @property
    def nve(self) -> Motion:
        """Velocity Verlet."""
        return Motion(dt=self.step_time, mass=MASS)

    def langevin(self, friction: float = 1.0, gamma: float | None = None) -> Motion:
        """Return motion in a bath of the coupling's temperature, or of another's; `friction` in omega_p."""
        keep = math.exp(-friction * self.step_time)
        noise = math.sqrt((1 - keep**2) / (MASS * (self.gamma if gamma is None else gamma)))
        return Motion(self.step_time, MASS, keep, noise, self.seed, self.stream)
