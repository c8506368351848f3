"""Steps of the plasma on one core, with LAMMPS `yukawa` in the same run, at kappa 2 with r_c 5.6.

Floors, counted for a pair within the cut-off (half lists: r_c^3/2 = 89 pairs per particle):

    arithmetic   sqrt and 1/r^2 keep the divider of a Zen 4 core for 27 cycles for 8 pairs in double; beside it go 26
                 multiply-adds (r^2 3, 2^f 14, force 3, sums on both sides 6): 27 cycles for 8 pairs in double, about 13
                 for 16 in float, were every pair that is looked at within the cut-off
    lists        clusters of four make 1.6 pairs that are looked at of each that counts, the skin of the lists (0.18)
                 makes it 1.7; a single skin that lasts 20 steps (0.5) would make it 1.9
    waiting      a pair's chain (root, power, force) is 100 cycles long, and a core looks ahead by about a group and a
                 half: roots of the next group are begun before the forces of this one (pair_forces.hpp)
    memory       96 bytes read and 192 read and written for a group of 8 pairs: 2,000 particles are 200 kB, in cache

So the floor is 27 x 1.7 / 8 = 5.7 cycles a pair in double: 1.6 ns at 3.7 GHz, 7 M atom-steps/s. The ceiling that is
shown is the multiply-add rate measured in this run over the multiply-adds of a pair; it has no divider in it.

Machines are shared, so times are of the CPU's clock for this process and the codes take turns; the best of eight.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.rows import BenchRow, load_benchmark
from metalforge.core import Measured
from metalforge.native import kernels
from metalforge.native.cpu_engine import cpu_engine
from metalforge.plasma import PlasmaSpec, begin, open_box

lammps = load_benchmark(Path(__file__).parents[2] / "experiments" / "lammps.py")
PARTICLES, KAPPA, GAMMA = 2000, 2.0, 158.0
STEPS, ROUNDS = 100, 8
FLOPS_A_PAIR = 52.0
HOW = f"CPU time, best of {ROUNDS} in turn with the peer"


def rows() -> Iterator[BenchRow]:
    specs = {p: PlasmaSpec(gamma=GAMMA, kappa=KAPPA, particles=PARTICLES, precision=p) for p in ("f64", "f32")}
    engine = cpu_engine(threads=1)
    boxes = {name: open_box(spec, engine) for name, spec in specs.items()}
    spec, particles = specs["f64"], begin(specs["f64"])
    particles.advance(boxes["f64"], spec.langevin(), 1000)
    samples, frames = STEPS // spec.sample_steps, STEPS // spec.sample_steps // spec.frame_samples
    works: dict[str, Callable[[], object]] = {
        name: lambda name=name: particles.advance(boxes[name], specs[name].nve, STEPS) for name in specs
    }
    peaks = {name: getattr(kernels(), f"fma_{name}") for name in specs}
    works |= {f"fma {name}": lambda peak=peak: peak(1 << 17, 1) for name, peak in peaks.items()}
    works["f64, sampled"] = lambda: particles.advance(boxes["f64"], spec.nve, STEPS, samples=samples, frames=frames)
    if lammps.lammps_is_here():
        with lammps.Lammps(spec, particles) as peer:
            peer.begin()
            works["lammps"] = lambda: peer.run(STEPS)
            seconds = _in_turn(works)
    else:
        seconds = _in_turn(works)
    rates = {
        name: Measured(value=PARTICLES * STEPS / s / 1e6, unit="M atom-steps/s", how=HOW)
        for name, s in seconds.items()
        if "fma" not in name
    }
    pairs = spec.cutoff**3 / 2
    for name in rates:
        if name == "lammps":
            continue
        precision = name[:3]
        listed = boxes[precision].listed / PARTICLES
        flops = peaks[precision](1 << 17, 1) / seconds[f"fma {precision}"]
        ceiling = flops / (FLOPS_A_PAIR * listed)
        nanoseconds = seconds[name] / STEPS / PARTICLES / pairs * 1e9
        yield BenchRow(
            name=f"kappa 2, r_c {spec.cutoff:.2f}, N {PARTICLES}, {name}: "
            f"{nanoseconds:.2f} ns/pair, {listed / pairs:.2f} listed",
            value=rates[name],
            peer_name="LAMMPS yukawa" if "lammps" in rates else "",
            peer=rates.get("lammps"),
            ceiling_name="FMA",
            ceiling=Measured(
                value=ceiling / 1e6, unit="M atom-steps/s", how="measured peak over counted multiply-adds"
            ),
        )


def _in_turn(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - began)
    return best
