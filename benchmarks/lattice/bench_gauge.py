"""The gauge kernels against the machine's own ceilings.

Floors, counted per site (3x3 product: 198 flop, counted as written; a link 144 bytes in double precision):

    plaquette           6 planes x (2 products + trace 36)             2.6 kflop    read 576 B
    force + kick        4 links x (12 staple products + 1 + TA)       10.5 kflop    read 576, update 512 B = 1.6 kB
    link move           4 links x (exp 330 + product 198)              2.1 kflop    1152 + 256 B = 1.4 kB
    overrelaxation      4 links x (13 products + 3 x 150)             12.1 kflop    read and write 1152 B
    heat bath           the same, plus 12 draws of SU(2)              12.1 kflop    and 36+ Philox blocks per link

With perfect reuse the force needs 0.15 bytes a flop, so in cache everything here is bound by arithmetic; from memory
one core's copy bandwidth is close to binding too. The ceiling shown is the larger of the two times, from the
multiply-add rate and the copy bandwidth measured in the same run.
"""

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.lattice import GaugeField, scheme
from metalforge.lattice.field import Momenta
from metalforge.native import kernels

LATTICES = ((8, 8, 8, 4), (6, 6, 6, 2), (10, 10, 10, 4), (8, 8, 8, 8), (16, 16, 16, 4), (16, 16, 16, 16))
FLOPS = {"plaquette": 2.6e3, "force + kick": 10.5e3, "link move": 2.1e3, "overrelaxation": 12.1e3, "heat bath": 12.1e3}
BYTES = {"plaquette": 576, "force + kick": 1600, "link move": 1408, "overrelaxation": 1152, "heat bath": 1152}
BYTES_OF = {"f64": 8, "f32": 4}

# What to aim for at level v4 on the machine of BENCHMARKS.md, ns per link in double precision on one thread. Extents of
# the form 4 k + 2 may cost 1.5 times what 8^3x4 does.
GOALS = {
    ("overrelaxation", (16, 16, 16, 16)): 110,
    ("heat bath", (8, 8, 8, 4)): 100,
    ("heat bath", (16, 16, 16, 16)): 190,
}


def ceilings(precision: str, threads: int) -> tuple[float, float]:
    """Flops and bytes per second of this machine: multiply-adds in registers, a copy far larger than the cache."""
    module, rounds = kernels(), 1 << 15
    peak = getattr(module, f"fma_{precision}")
    flops = peak(rounds, threads) / best_of(lambda: peak(rounds, threads))
    source, target = np.ones(1 << 24), np.ones(1 << 24)
    seconds = best_of(lambda: module.copy(source, target, threads), repeats=3)
    return flops, 2 * source.nbytes / seconds


def works(field: GaugeField) -> dict[str, Callable[[], object]]:
    momenta = Momenta(field)
    momenta.refresh(seed=1, stream=0, step=1)
    step = iter(range(1, 1 << 30))
    leapfrog = scheme("leapfrog").stages(0.01, 10)
    return {
        "plaquette": field.plaquette_sums,
        "force + kick": lambda: momenta.kick(1e-3),
        "link move": lambda: momenta.move_links(1e-3),
        "overrelaxation": field.overrelax,
        "heat bath": lambda: field.heatbath(5.7, seed=1, stream=0, step=next(step)),
        "leapfrog step": lambda: momenta.evolve(5.7, leapfrog),
    }


def rows() -> Iterator[BenchRow]:
    for precision in ("f64", "f32"):
        for threads in (1, 2):
            flops_per_s, bytes_per_s = ceilings(precision, threads)
            for dims in LATTICES:
                field = GaugeField.hot(dims, seed=1, precision=precision, threads=threads)
                for _ in range(10):
                    field.heatbath(5.7, seed=1, stream=1, step=_ + 1)
                links = 4 * field.volume
                for name, work in works(field).items():
                    repeats = 10 if name == "leapfrog step" else 1
                    seconds = best_of(work, repeats=3, minimum_s=0.03) / repeats
                    yield row(name, dims, precision, threads, links, seconds, flops_per_s, bytes_per_s)


def row(name, dims, precision, threads, links, seconds, flops_per_s, bytes_per_s) -> BenchRow:
    def per_second(ns: float, how: str) -> Measured:
        return Measured(value=1e3 / ns, unit="Mlink/s", how=how)

    flops = FLOPS["force + kick"] + FLOPS["link move"] if name == "leapfrog step" else FLOPS[name]
    moved = BYTES["force + kick"] + BYTES["link move"] if name == "leapfrog step" else BYTES[name]
    fits = links * 18 * BYTES_OF[precision] < 16e6  # links and momenta stay in a 32 MB cache
    floor = max(flops / flops_per_s, 0 if fits else moved * BYTES_OF[precision] / 8 / bytes_per_s) / 4
    nanoseconds = seconds / links * 1e9
    note = ""
    if (precision, threads) == ("f64", 1) and (name, dims) in GOALS:
        note = f" (goal: {GOALS[name, dims]})"
    return BenchRow(
        name=f"{name}, {'x'.join(map(str, dims))}, {precision}, {threads} thread(s): {nanoseconds:.0f} ns/link{note}",
        value=per_second(nanoseconds, "best of 3, perf_counter"),
        ceiling_name="FMA" if fits or flops / flops_per_s > moved / bytes_per_s else "copy",
        ceiling=per_second(floor * 1e9, "measured peak rates over the counted floor"),
    )
