"""The Yukawa plasma against LAMMPS on one core: the same particles, forces and steps, in turns.

Both begin where our warm-up ended; 200 steps of constant energy a turn, three turns each, the quickest counts. Rows
appear where the package `lammps` is installed (group `bench`): without it there is nothing to divide by.
"""

from collections.abc import Iterator

from metalforge.core import BenchRow, Measured, best_of
from metalforge.experiments.lammps import Lammps, lammps_is_here
from metalforge.native import cpu_engine
from metalforge.native.engine import Motion
from metalforge.plasma import MASS, PlasmaSpec, begin, open_box

STEPS, TURNS = 200, 3


def rows() -> Iterator[BenchRow]:
    for particles in (400, 2000) if lammps_is_here() else ():
        spec = PlasmaSpec(gamma=158, kappa=2, particles=particles)
        ours, box = begin(spec), open_box(spec, cpu_engine(threads=1))
        ours.advance(box, spec.langevin(), STEPS)
        motion = Motion(spec.step_time, MASS)
        seconds = [float("inf"), float("inf")]
        with Lammps(spec, ours) as peer:
            peer.begin()
            for _ in range(TURNS):
                for n, work in enumerate((lambda: ours.advance(box, motion, STEPS), lambda: peer.run(STEPS))):
                    seconds[n] = min(seconds[n], best_of(work, repeats=1, minimum_s=0.2))
        rates = [
            Measured(value=particles * STEPS / one / 1e6, unit="M atom-steps/s", how=f"best of {TURNS}, 1 thread")
            for one in seconds
        ]
        yield BenchRow(
            name=f"Yukawa plasma, kappa 2, {particles} particles", value=rates[0], peer_name="LAMMPS", peer=rates[1]
        )
