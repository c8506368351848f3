"""The CUDA engine against its card's ceilings, measured in the same run.

On a machine with a CUDA device, CuPy and this package:

    python benchmarks/gpu/bench_engine.py [--json FILE] [--quick] [--only ceilings gauge strategies staggered batches]

A force counts 2,808 flop per link, Symanzik's 14,472; bytes are the fewest that must come from memory. Goals are those
of an H200.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import cupy
import numpy as np

from metalforge.lattice import Chain, ChainSpec, GaugeField, HmcSpec
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.solvers import SolveInfo, cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from metalforge.native.cuda.card import DeviceBuffer
from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.grid import STEPS, CudaGrid, measured_choice
from metalforge.native.cuda.precision import SHARES
from metalforge.native.cuda.staggered import CudaStaggered
from metalforge.native.engine import Dims, Iterations, Precision

FORCE_FLOPS, RECTANGLE_FLOPS = 2808, 14472
SMALL, MIDDLE, WIDE, LARGE = (8, 8, 8, 4), (16, 16, 16, 8), (32, 32, 32, 8), (32, 32, 32, 32)
ITERATION_GOALS: dict[Dims, tuple[str, str]] = {
    LARGE: ("260", "130"),
    WIDE: ("70", "40"),
    (16, 16, 16, 16): ("", ""),
    MIDDLE: ("6.5 (5.4)", "5.2 (4.3)"),
    (12, 12, 12, 4): ("", ""),
    SMALL: ("3.6 (3.0)", "2.6"),
}
"""Microseconds of an iteration of conjugate gradients, in double and in single precision."""
SOLVED_TOGETHER, SOLVED = (16, 256), (SMALL, MIDDLE, WIDE)
"""Chains of one solve, and lattices whose whole solves are timed."""
CEILINGS = r"""
template <class T> __device__ void rounds(T* out, int n) {
  T x[8];
  for (int i = 0; i < 8; ++i) x[i] = T(threadIdx.x + i);
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fma(x[i], T(0.999), T(1e-3));
  T sum = 0;
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == T(-1)) out[0] = sum;
}
extern "C" __global__ void fma_f64(double* out, int n) { rounds(out, n); }
extern "C" __global__ void fma_f32(float* out, int n) { rounds(out, n); }
extern "C" __global__ void copied(const double2* from, double2* to, long long n) {
  const long long all = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += all) to[i] = from[i];
}
"""


class Row(NamedTuple):
    """One figure."""

    name: str
    value: float
    unit: str
    goal: str
    note: str = ""


engine = cuda_engine(0)
card: Any = engine.card


def seconds(work: Callable[[], None], inner: int = 10, repeats: int = 5) -> float:
    """The median time of one `work`, of `inner` recorded ones repeated."""
    work()

    def several() -> None:
        for _ in range(inner):
            work()

    replay = card.capture(several)
    replay()
    times = []
    for _ in range(repeats):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(card._stream)
        replay()
        last.record(card._stream)
        last.synchronize()
        times.append(cupy.cuda.get_elapsed_time(first, last) * 1e-3 / inner)
    return statistics.median(times)


def ceilings(quick: bool) -> Iterator[Row]:
    """What the card can do at all."""
    a = card.zeros(1 << 28, np.float64)
    b = card.zeros(1 << 28, np.float64)
    module = cupy.RawModule(code=CEILINGS)
    copied = module.get_function("copied")
    with card._stream:
        took = seconds(lambda: copied((132 * 16,), (512,), (a, b, np.int64(a.size // 2))), 4)
        yield Row("copy", 2 * a.nbytes / took / 1e12, "TB/s", "ceiling")
        for name, kind in (("fma_f64", np.float64), ("fma_f32", np.float32)):
            out, kernel = cupy.zeros(1, kind), module.get_function(name)
            work = lambda kernel=kernel, out=out: kernel((132 * 8,), (256,), (out, np.int32(4096)))  # noqa: E731
            rate = 132 * 8 * 256 * 4096 * 8 * 2 / seconds(work, 2)
            yield Row(name, rate / 1e12, "TF/s", "ceiling")


def warm(grid: CudaGrid, links: DeviceBuffer) -> None:
    """Links of a few heat-bath sweeps."""
    grid.on_links("set_hot", links=links, one=(5.7, 1, 0, 0))
    for n in range(3):
        grid.sweep("heatbath", links, 255, one=(5.7, 1, 0, n + 1))


def gauge(quick: bool) -> Iterator[Row]:
    """Kernels of the gauge field."""
    force = {
        (LARGE, "f64", 1): "13.5",
        ((16,) * 4, "f64", 1): "13.5",
        (MIDDLE, "f64", 1): "14",
        (SMALL, "f64", 1): "4.4",
        (SMALL, "f64", 32): "14.5 (18)",
        (SMALL, "f64", 256): "16 (18)",
        (LARGE, "f32", 1): "26",
    }
    for (dims, precision, chains), goal in force.items():
        if quick and dims == LARGE:
            continue
        grid = CudaGrid(engine, dims, precision, chains)
        links, momenta, to = grid.new("links"), grid.new("momenta"), grid.new("links")
        warm(grid, links)
        n = 4 * grid.volume * chains
        shape = f"{'x'.join(map(str, dims))} {precision}" + (f", {chains} chains" if chains > 1 else "")
        kick = {"links": links, "momenta": momenta, "one": (5.7, 0, 0, 0), "keep": 1.0, "coefficient": 1e-4}
        took = seconds(lambda g=grid, k=kick: g.on_links("kick_wilson", **k))
        yield Row(f"force {shape}", n * FORCE_FLOPS / took / 1e12, "TF/s", goal, f"{took * 1e6:.1f} us")
        took = seconds(lambda g=grid, k=kick, t=to: g.on_links("kick_move", to=t, eps=1e-4, **k))
        yield Row(f"kick + move {shape}", took * 1e6, "us", "")
        took = seconds(lambda g=grid, k=kick: g.on_links("kick_rectangle", c1=-1 / 12, **k), 2)
        yield Row(f"force, Symanzik's {shape}", n * RECTANGLE_FLOPS / took / 1e12, "TF/s", "", f"{took * 1e6:.1f} us")
        took = seconds(lambda g=grid, u=links, p=momenta: g.move_links(u, p, 1e-4))
        rate = n / 4 * 1408 * (1 if precision == "f64" else 0.5) / took / 1e12
        yield Row(f"link move {shape}", rate, "TB/s", "4.0" if dims == LARGE else "")
        if precision == "f64":
            took = seconds(lambda g=grid, u=links: g.sweep("overrelax", u, 255), 2)
            goal = {(LARGE, 1): "0.42 (0.30)", (SMALL, 32): "0.34 (0.31)"}.get((dims, chains), "")
            yield Row(f"overrelaxation {shape}", took / n * 1e9, "ns per link", goal)
            took = seconds(lambda g=grid, u=links: g.sweep("heatbath", u, 255, one=(5.7, 1, 0, 9)), 2)
            goal = {(LARGE, 1): "0.50 (0.43)", (SMALL, 32): "0.55 (0.46)"}.get((dims, chains), "")
            yield Row(f"heat bath {shape}", took / n * 1e9, "ns per link", goal)
            took = seconds(lambda g=grid, u=links: g.sum("plaquettes", links=u, width=2))
            yield Row(f"plaquettes {shape}", took * 1e6, "us", "")
            took = seconds(lambda g=grid, u=links: g.launch("sum_polyakov", g.line_blocks, 128, links=u, width=2))
            yield Row(f"Polyakov loops {shape}", took * 1e6, "us", "")


def strategies(quick: bool) -> Iterator[Row]:
    """Trajectories in doubles, in pairs of floats, and with every share of the blocks in either."""
    choice = measured_choice(card, "auto")
    for share, took in choice.measured.items():
        name = {0: "native", SHARES: "hybrid"}.get(share, f"concurrent {share}/{SHARES}")
        rate = 4 * 16**4 * FORCE_FLOPS * STEPS / took / 1e12
        yield Row(f"10 kicks and moves, 16x16x16x16, {name}", took * 1e6, "us", "", f"force alone: {rate:.2f} TF/s")
    print(f"auto: {choice.line}", flush=True)


def staggered(quick: bool) -> Iterator[Row]:
    """The operator and its solvers: 108 reals per site of one parity, 258 per iteration and even site."""
    hop_goals = {LARGE: "95 % of copy"}
    for dims, wanted in ITERATION_GOALS.items():
        if quick and dims == LARGE:
            continue
        for precision, goal in zip(("f64", "f32"), wanted, strict=True):
            grid, operator, x = quarks(dims, precision)
            y = grid.new("colours")
            size = 8 if precision == "f64" else 4
            shape = f"{'x'.join(map(str, dims))} {precision}"
            took = seconds(lambda o=operator, a=x, b=y: o.hop(b, a, 1))
            rate = grid.half * (8 * 12 + 2 * 6) * size / took / 1e12
            yield Row(f"D-slash {shape}, one parity", rate, "TB/s", hop_goals.get(dims, ""), f"{took * 1e6:.1f} us")
            took, way = iteration(grid, operator, x)
            floor = f"{way}, {grid.half * 258 * size / took / 1e12:.2f} TB/s"
            yield Row(f"CG iteration {shape}", took * 1e6, "us", goal, floor)
            took, way = iteration(grid, operator, x, 10)
            yield Row(f"CG iteration, 10 shifts, {shape}", took * 1e6, "us", "", way)
    for precision, goal in (("f64", "0.25 (0.20)"), ("f32", "0.12")):
        for chains in SOLVED_TOGETHER:
            took, way = iteration(*quarks(SMALL, precision, chains))
            name = f"CG iteration 8x8x8x4 {precision}, {chains} chains, of one"
            yield Row(name, took / chains * 1e6, "us", goal if chains == 256 else "", way)
    for dims in SOLVED:
        field = GaugeField.hot(dims, seed=1, engine=engine)
        operators = [StaggeredOperator(field, 0.05, precision=precision) for precision in ("f64", "f32")]
        source, out = ColourField(field, 0), ColourField(field, 0)
        source.gaussian(seed=1, stream=2, step=3, draw=4)
        for name, solve in (
            ("CG", partial(cg, operators[0])),
            ("mixed", partial(cg, operators[0], single=operators[1])),
        ):
            took, info = whole_solve(lambda s=solve, a=source, b=out: s(a, b, tolerance=1e-10, max_iterations=4000))
            note = f"{took * 1e3:.2f} ms, {info.iterations} iterations"
            shape = "x".join(map(str, dims))
            yield Row(f"solve, {name}, {shape}, an iteration of it", took / info.iterations * 1e6, "us", "", note)


def quarks(dims: Dims, precision: Precision, chains: int = 1) -> tuple[CudaGrid, CudaStaggered, DeviceBuffer]:
    """A lattice with links, an operator of them, and a source."""
    grid = CudaGrid(engine, dims, precision, chains)
    links, source = grid.new("links"), grid.new("colours")
    warm(grid, links)
    operator = grid.staggered()
    operator.refresh(links, precision)
    grid.gaussian(source, 0, 1, 2, 3, 4)
    return grid, operator, source


def iteration(grid: CudaGrid, operator: CudaStaggered, source: DeviceBuffer, shifts: int = 1) -> tuple[float, str]:
    """The time of an iteration of conjugate gradients, and its way: long runs less short ones."""
    solver, outs = operator.solver(shifts), [grid.new("colours") for _ in range(shifts)]
    differences, short, long = 0.01 * np.arange(shifts), 8, 40 if grid.volume > 1 << 17 else 136
    times: dict[int, list[float]] = {short: [], long: []}
    for most in (short, long) * 9:
        solver.begin(source, False)
        card.wait()
        start = time.perf_counter()
        did = solver.iterate_chains(outs, Iterations(differences, 1e-4, 0, 0.0, most, most, 0))
        times[most].append(time.perf_counter() - start)
        if {run.iterations for run in did} != {most}:
            raise RuntimeError(f"{most} iterations were asked for. Got {did[0]}")
    taken = [statistics.median(times[most][2:]) for most in (long, short)]
    return (taken[0] - taken[1]) / (long - short), solver.way.kernel.removeprefix("cg_")


def whole_solve(solve: Callable[[], SolveInfo]) -> tuple[float, SolveInfo]:
    """The time of a solve from its call to its end, and what it did."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        info = solve()
        times.append(time.perf_counter() - start)
    return min(times), info


def batches(quick: bool) -> Iterator[Row]:
    """Whole updates, decided and measured on the card."""
    goals = {1: "3,230", 8: "24,100", 16: "43,300", 32: "55,000 (68,000)", 64: "", 256: ""}
    for chains, goal in goals.items():
        batch = ChainBatch(
            [Chain(ChainSpec(dims=SMALL, beta=5.5 + 0.01 * n, seed=n), engine=engine) for n in range(chains)]
        )
        rate, host = updates_per_second(batch, 64)
        yield Row(
            f"updates 8x8x8x4, {chains} chains", chains * rate, "a second", goal, f"host {host * 1e6:.1f} us for 8"
        )
    trajectories = {
        (SMALL, 1): "150 us",
        (SMALL, 32): "1,280 us",
        (SMALL, 256): "",
        (MIDDLE, 1): "750 us",
        (WIDE, 1): "6,200 us",
        (LARGE, 1): "25,000 us",
    }
    for (dims, chains), goal in trajectories.items():
        if quick and dims in (WIDE, LARGE):
            continue
        specs = [
            ChainSpec(dims=dims, beta=5.6, seed=n, algorithm="hmc", hmc=HmcSpec(n_steps=10)) for n in range(chains)
        ]
        batch = ChainBatch([Chain(spec, engine=engine) for spec in specs])
        rate, _ = updates_per_second(batch, 16)
        shape = "x".join(map(str, dims))
        yield Row(
            f"trajectory, 10 steps, {shape}, {chains} chains", 1e6 / rate, "us", goal, f"{chains * rate:,.0f} a second"
        )


def updates_per_second(batch: ChainBatch, updates: int) -> tuple[float, float]:
    """Updates a second of each chain, and the host's time to start eight."""
    for _ in range(2):
        batch.run(8)
    card.wait()
    best, host = 0.0, 1.0
    for _ in range(3):
        begin = time.perf_counter()
        batch.start(updates)
        started = time.perf_counter()
        card.wait()
        best = max(best, updates / (time.perf_counter() - begin))
        host = min(host, (started - begin) * 8 / updates)
        batch.collect()
    return best, host


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true", help="leave out the largest lattices")
    parts = {part.__name__: part for part in (ceilings, gauge, strategies, staggered, batches)}
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    arguments = parser.parse_args()
    table = []
    begin = time.perf_counter()
    for part in arguments.only:
        try:
            for row in parts[part](arguments.quick):
                table.append(row)
                figure = f"{row.value:12,.3f} {row.unit:10} {row.goal:16} {row.note}"
                print(f"[{time.perf_counter() - begin:5.1f}] {row.name:44} {figure}", flush=True)
        except Exception as error:  # what remains is worth its time on the card
            print(f"{part}: {type(error).__name__}: {error}", flush=True)
        cupy.get_default_memory_pool().free_all_blocks()
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump([row._asdict() for row in table], out, indent=1)


if __name__ == "__main__":
    main()
