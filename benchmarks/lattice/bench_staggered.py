"""The staggered operator and its solvers against the machine's own ceilings.

Floors, counted per site of one parity (`iteration_cost`; a link is 18 reals, a colour vector 6):

    H (one parity)      8 products of 66 + 7 sums of 6                   570 flop    8 links + 2 vectors  = 156 reals
    CG iteration        2 H + 90                                        1230 flop    16 links + 11 vectors = 354 reals
    ten shifts          2 H + 60 + 10 x 30                              1500 flop    16 links + 47 vectors = 570 reals
    force, ten fields   10 H + 8 links x (10 x 78 + 198 + 30)          13800 flop    16 links + 30 vectors + 2 x 64

Links that no cache holds are two rows, 12 reals, and the third is made from them: 108 and 258 reals for 820 and 1730
flop in place of the first two lines. The table counts whole links everywhere, so its rates compare.

At 0.3 to 0.5 flops per byte (double precision) all but the force are bound by memory. The ceiling is the larger of
two times: flops at the multiply-add rate, and bytes at the bandwidth of a copy that touches as much memory as the
operator's links, both measured in the same run. So on a small lattice it is the bandwidth of a cache, and reading
alone, which is most of what H does, can be a little faster.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from metalforge.lattice.solvers import SolveInfo, SolverError, cg, multishift_cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from metalforge.native import kernels

LATTICES = ((8, 8, 8, 4), (16, 16, 16, 16))
MASS = 0.1
FIELDS = 10
BYTES_OF = {"f64": 8, "f32": 4}


def quickest(work: Callable[[], object], rounds: int) -> float:
    """Seconds of one call; many short rounds, since other work on the machine comes and goes."""
    return best_of(work, repeats=rounds, minimum_s=0.0)


@cache
def flops_ceiling(precision: str, threads: int) -> float:
    peak, rounds = getattr(kernels(), f"fma_{precision}"), 1 << 15
    return peak(rounds, threads) / quickest(lambda: peak(rounds, threads), 20)


@cache
def copy_ceiling(nbytes: int, threads: int) -> float:
    """Bytes a second of a copy whose source and target are `nbytes` together."""
    source, target = np.ones(nbytes // 16), np.ones(nbytes // 16)
    return nbytes / quickest(lambda: kernels().copy(source, target, threads), 50)


def field_of(dims: tuple[int, int, int, int], precision: str, threads: int) -> GaugeField:
    field = GaugeField.hot(dims, seed=1, precision=precision, threads=threads)
    for step in range(1, 6):
        field.heatbath(5.5, seed=1, stream=0, step=step)
    return field


def noise(operator: StaggeredOperator) -> ColourField:
    eta = ColourField(operator, 0, operator.precision)
    eta.gaussian(seed=1, stream=0, step=0, draw=5 << 28)
    return eta


def iteration_cost(sites: int, precision: str, updates: float = 1.0) -> tuple[float, float]:
    """Return flops and bytes of one iteration on `sites` sites of one parity that updates so many solutions.

    H is 570 flop per site (eight products of 66 and seven sums of 6) and reads eight links of 18 reals
    (an engine that keeps two rows of each, a third less). The passes are
    those of staggered_solver.cpp: y = H p (reads p, writes y), r (reads y, p, r, writes r), and for each solution x and
    p (reads r once, reads and writes x and p).
    """
    flops = 2 * 570 + 12 + 24 + 12 + updates * (12 + 18) + 12
    reals = 2 * 8 * 18 + 6 * (2 + 4 + 1 + 4 * updates)
    return sites * flops, sites * reals * (8.0 if precision == "f64" else 4.0)


def in_vain(solve: Callable[[], SolveInfo]) -> None:
    """Make all iterations of a solve to a tolerance that cannot be reached."""
    with suppress(SolverError):
        solve()


def works(field: GaugeField) -> Iterator[tuple[str, Callable[[], object], float, float, float]]:
    """Name, call, and of one unit of it: how many a call makes, flops, bytes."""
    operator = StaggeredOperator(field, MASS, precision=field.precision)
    source, size = noise(operator), BYTES_OF[field.precision]
    sites, small = source.sites, field.volume < 10_000
    odd, out = ColourField(operator, 1, field.precision), ColourField(operator, 0, field.precision)
    outs = [ColourField(operator, 0, field.precision) for _ in range(FIELDS)]
    fields, momenta = [noise(operator) for _ in range(FIELDS)], Momenta(field)
    shifts = [0.01 * 2**k for k in range(FIELDS)]
    n = 100 if small else 20
    # No solve gets this far, so each makes n iterations; the true residual at the end is one more.
    options = {"tolerance": 1e-300, "max_iterations": n}
    yield "H", lambda: operator.hop(odd, source), 1, sites * 570.0, sites * 156.0 * size
    yield (
        "CG iteration",
        lambda: in_vain(lambda: cg(operator, source, out, **options)),
        n + 1,
        *iteration_cost(sites, field.precision),
    )
    yield (
        f"CG iteration, {FIELDS} shifts",
        lambda: in_vain(lambda: multishift_cg(operator, source, outs, shifts, **options)),
        n,
        *iteration_cost(sites, field.precision, FIELDS),
    )
    yield (
        f"force, {FIELDS} fields",
        lambda: operator.force(momenta, fields, [1e-3] * FIELDS),
        1,
        sites * (FIELDS * 570.0 + 8 * (FIELDS * 78 + 198 + 30)),
        sites * (16 * 18 + 6 * 3 * FIELDS + 2 * 64.0) * size,
    )


def rows() -> Iterator[BenchRow]:
    for precision in ("f64", "f32"):
        for threads in (1, 2):
            for dims in LATTICES:
                field = field_of(dims, precision, threads)
                for name, work, units, flops, moved in works(field):
                    seconds = quickest(work, 40 if field.volume < 10_000 else 12) / units
                    yield row(name, field, threads, seconds, flops, moved)
    for threads in (1, 2):
        yield from mixed_rows(threads)


def row(name: str, field: GaugeField, threads: int, seconds: float, flops: float, moved: float) -> BenchRow:
    def rate(s: float, how: str) -> Measured:
        return Measured(value=flops / s / 1e9, unit="GF/s", how=how)

    arithmetic = flops / flops_ceiling(field.precision, threads)
    memory = moved / copy_ceiling(field.links.nbytes, threads)
    return BenchRow(
        name=f"{name}, {'x'.join(map(str, field.dims))}, {field.precision}, {threads} thread(s): "
        f"{seconds * 1e6:.1f} us, {moved / seconds / 1e9:.0f} GB/s",
        value=rate(seconds, "shortest of many"),
        ceiling_name="FMA" if arithmetic > memory else "copy in the same cache",
        ceiling=rate(max(arithmetic, memory), "measured peak rates over the counted floor"),
    )


def mixed_rows(threads: int) -> Iterator[BenchRow]:
    """Solves to 1e-10 in mixed precision against double precision."""
    for dims in LATTICES:
        field = field_of(dims, "f64", threads)
        operator, single = (StaggeredOperator(field, MASS, precision=p) for p in ("f64", "f32"))
        source, out = noise(operator), ColourField(operator, 0)
        options = {"tolerance": 1e-10, "max_iterations": 10_000}
        rounds = 15 if field.volume < 10_000 else 4
        double = quickest(lambda: cg(operator, source, out, **options), rounds)
        mixed = quickest(lambda: cg(operator, source, out, single=single, **options), rounds)
        counts = [
            info.iterations
            for info in (cg(operator, source, out, **options), cg(operator, source, out, single=single, **options))
        ]
        yield BenchRow(
            name=f"mixed-precision solve to 1e-10, {'x'.join(map(str, dims))}, {threads} thread(s): "
            f"{mixed * 1e3:.1f} ms, {counts[1]} iterations against {counts[0]}",
            value=Measured(value=1 / mixed, unit="solves/s", how="shortest of many"),
            peer_name="double precision",
            peer=Measured(value=1 / double, unit="solves/s", how="shortest of many"),
        )
