"""The Yukawa plasma against LAMMPS on one core: the same particles, forces and steps, in turns.

Both begin where our warm-up ended, 200 steps of constant energy in a turn. The ceiling is that of `bench plasma`:
multiply-adds of the pairs in our lists.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.rows import BenchRow, load_benchmark, rows_in_turns, timed
from metalforge.native import cpu_engine
from metalforge.native.engine import Motion
from metalforge.plasma import MASS, PlasmaSpec, begin, open_box

floors = load_benchmark(Path(__file__).with_name("floors.py"))
lammps = load_benchmark(Path(__file__).parents[2] / "experiments" / "lammps.py")
plasma = load_benchmark(Path(__file__).parents[1] / "plasma" / "bench_plasma.py")
STEPS = 200


def rows(rounds: int = 8) -> Iterator[BenchRow]:
    for particles in (400, 2000):
        spec = PlasmaSpec(gamma=158, kappa=2, particles=particles)
        ours, box = begin(spec), open_box(spec, cpu_engine(threads=1))
        ours.advance(box, spec.langevin(), STEPS)
        motion = Motion(spec.step_time, MASS)
        floor = floors.arithmetic(plasma.FLOPS_A_PAIR * box.listed * STEPS)
        with ExitStack() as stack:
            theirs = None
            if lammps.lammps_is_here():
                peer = stack.enter_context(lammps.Lammps(spec, ours))
                peer.begin()
                theirs = timed(lambda: peer.run(STEPS))
            yield from rows_in_turns(
                f"Yukawa plasma, kappa 2, {particles} particles, f64",
                timed(lambda: ours.advance(box, motion, STEPS)), {"LAMMPS": theirs}, floor,
                amount=1e-6 * particles * STEPS, unit="M atom-steps/s", rounds=rounds,
            )  # fmt: skip
