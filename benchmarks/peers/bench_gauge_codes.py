"""Gauge kernels and the staggered solver against openQCD, MILC and Grid, where their paths are given.

One thread, double precision, in turns. `programs.py` says how each is called. Without a path the row has ours and the
ceiling: multiply-adds in registers, or for the solver the copy rate of memory where that is slower.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import BenchRow, load_benchmark, rows_in_turns, timed
from metalforge.lattice import GaugeField, scheme
from metalforge.lattice.field import Momenta
from metalforge.lattice.solvers import cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator

floors, programs = (load_benchmark(Path(__file__).with_name(name)) for name in ("floors.py", "programs.py"))
gauge, staggered = (
    load_benchmark(Path(__file__).parents[1] / "lattice" / f"bench_{name}.py") for name in ("gauge", "staggered")
)
LATTICES = ((8, 8, 8, 4), (16, 16, 16, 16))
STEPS, ITERATIONS = 10, 20


def rows(rounds: int = 8) -> Iterator[BenchRow]:
    for dims in LATTICES:
        field = staggered.field_of(dims, "f64", 1)
        yield from leapfrog(field, rounds)
        yield from sweeps(field, rounds)
        yield from solver(field, rounds)


def compared(name, code, field, ours, unit, links, floor, rounds):
    theirs = programs.turn_of(code, field.dims)
    peers = {{"openqcd": "openQCD", "milc": "MILC", "grid": "Grid"}[code]: theirs}
    yield from rows_in_turns(
        f"{name}, {programs.size_of(field.dims)}", ours, peers, floor, amount=links, unit=unit, rounds=rounds
    )


def leapfrog(field: GaugeField, rounds: int) -> Iterator[BenchRow]:
    momenta = Momenta(field)
    momenta.refresh(seed=1, stream=0, step=1)
    stages = scheme("leapfrog").stages(0.01, STEPS)
    ours = timed(lambda: momenta.evolve(5.7, stages), 0.2)
    floor = floors.arithmetic(field.volume * (gauge.FLOPS["force + kick"] + gauge.FLOPS["link move"]))
    links = 4e-6 * field.volume
    yield from compared(
        "leapfrog step", "openqcd", field, lambda: ours() / STEPS, "Mlink/s", links, floor, rounds
    )  # fmt: skip


def sweeps(field: GaugeField, rounds: int) -> Iterator[BenchRow]:
    step = iter(range(1, 1 << 30))

    def sweep() -> None:
        field.heatbath(5.7, seed=1, stream=0, step=next(step))
        for _ in range(4):
            field.overrelax()

    floor = floors.arithmetic(field.volume * (gauge.FLOPS["heat bath"] + 4 * gauge.FLOPS["overrelaxation"]))
    links = 5 * 4e-6 * field.volume
    yield from compared(
        "1 heat bath + 4 overrelaxation", "milc", field, timed(sweep, 0.2), "Mlink/s", links, floor, rounds
    )


def solver(field: GaugeField, rounds: int) -> Iterator[BenchRow]:
    operator = StaggeredOperator(field, staggered.MASS)
    source, out = staggered.noise(operator), ColourField(operator, 0)
    # No solve gets this far, so each makes all iterations; the true residual at the end is one more.
    options = {"tolerance": 1e-300, "max_iterations": ITERATIONS}
    ours = timed(lambda: staggered.in_vain(lambda: cg(operator, source, out, **options)), 0.2)
    flops, moved = staggered.iteration_cost(source.sites, "f64")
    name, arithmetic = floors.arithmetic(flops)
    memory = moved / staggered.copy_ceiling(field.links.nbytes, 1)
    floor = ("copy" if memory > arithmetic() else name, lambda: max(arithmetic(), memory))
    yield from compared(
        "staggered CG", "grid", field, lambda: ours() / (ITERATIONS + 1), "iterations/s", 1.0, floor, rounds
    )
