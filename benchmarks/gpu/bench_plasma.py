"""The Yukawa plasma on a card: batches of boxes and one small box, each way of cutting up the work.

On a machine with a CUDA device, CuPy and this package:

    python benchmarks/gpu/bench_plasma.py [--json FILE] [--quick]

The floor, written down before: 36 FP64 instructions per pair and a full list. 132 multiprocessors x 64 per clock
x 1.98 GHz are 0.46 T pairs/s; lists of 176 neighbours within r_c (227 with the skin) give 2.6 (2.0) G atom-steps/s in
double precision. One box of 4,096 is 0.93 M pairs per step: 2 us of arithmetic and one meeting of all blocks.
A step's time is the slope between a short and a long call, so that copies to and from the host stand apart.
"""

import argparse
import json
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from metalforge.native.cuda.engine import cuda_engine
from metalforge.native.cuda.particles import SORT_THREADS, CudaParticles, Tuning
from metalforge.native.engine import ParticleState, Precision
from metalforge.plasma import PlasmaSpec, begin
from metalforge.plasma.box import SKIN

GAMMA, KAPPA, N, REPLICAS = 158.0, 2.0, 4096, 64


class Row(NamedTuple):
    """One figure."""

    name: str
    value: float
    unit: str


class State:
    """Replicas of a warm fluid on the host."""

    def __init__(self, replicas: int, spec: PlasmaSpec) -> None:
        start = begin(spec)
        self.spec, self.replicas = spec, replicas
        copies = [np.stack([array] * replicas) for array in (start.positions, start.boxes, start.velocities)]
        self.state = ParticleState(*copies, [0] * replicas)

    def batch(self, tuning: Tuning, skin: float = SKIN, precision: Precision = "f64") -> CudaParticles:
        spec = self.spec
        of = (spec.particles, spec.length, spec.kappa, spec.cutoff, skin, precision)
        return CudaParticles(cuda_engine(0).card, self.replicas, *of, tuning)

    def advance(self, batch: CudaParticles, steps: int, **looks: int) -> tuple[float, float]:
        """Return the seconds of a call and the lists a replica made in it."""
        motions = [self.spec.nve._replace(seed=r) for r in range(self.replicas)]
        began = time.perf_counter()
        seen = batch.advance(self.state, motions, steps, **looks)
        seconds = time.perf_counter() - began
        return seconds, statistics.mean(one.lists for one in seen)

    def warm_up(self, batch: CudaParticles, steps: int) -> None:
        motions = [self.spec.langevin()._replace(seed=r) for r in range(self.replicas)]
        batch.advance(self.state, motions, steps)
        velocities = self.state.velocities
        velocities -= velocities.mean(axis=1, keepdims=True)


def of_a_step(state: State, batch: CudaParticles, short: int, every: int = 0, repeats: int = 3) -> float:
    """Return the seconds of a step, between calls of `short` steps and of three times as many."""
    found = []
    state.advance(batch, short, samples=short // every if every else 0)
    for _ in range(repeats):
        took = {}
        for steps in (short, 3 * short):
            took[steps], _ = state.advance(batch, steps, samples=steps // every if every else 0)
        found.append((took[3 * short] - took[short]) / (2 * short))
    return statistics.median(found)


def kernels(state: State, batch: CudaParticles, tuning: Tuning) -> list[Row]:
    """Return what single launches take, all replicas at once: of a step, with and without sums, and of new lists."""
    card, own, rows = batch._card, batch._buffers, []
    state.advance(batch, 4, samples=2)

    def timed(name: str, launch: Any, before: Any = lambda: None, times: int = 20) -> None:
        spent = []
        for _ in range(times):
            before()
            card.wait()
            began = time.perf_counter()
            launch()
            card.wait()
            spent.append(time.perf_counter() - began)
        rows.append(Row(f"  {name}", 1e6 * statistics.median(spent), "us"))

    def begin_again() -> None:
        card.write(own["clock"].memory, np.full(batch.replicas, -1, np.int32))
        card.clear(own["stale"].memory)

    step = f"step_{tuning.unroll}"
    batch._write_plan(1000, 0, 0, False)
    timed("nothing to do", lambda: batch._launch("relist", batch._blocks, tuning.threads))
    timed("cells of all", lambda: batch._launch("prepare", 1, SORT_THREADS), begin_again)
    begin_again()
    batch._launch("prepare", 1, SORT_THREADS)
    timed("lists of all", lambda: batch._launch("relist", batch._blocks, tuning.threads))
    timed("step", lambda: batch._launch(step, batch._blocks, tuning.threads))
    batch._write_plan(1000, 1000, 0, False)
    card.write(own["clock"].memory, np.full(batch.replicas, 2, np.int32))
    timed("step with sums", lambda: batch._launch(step, batch._blocks, tuning.threads))
    listed = batch.listed / (batch.replicas * batch._n)
    rows.append(Row("  listed neighbours", listed, "a particle"))
    return rows


def batches(quick: bool) -> list[Row]:
    """Return atom-steps per second of many boxes."""
    rows: list[Row] = []
    state = State(REPLICAS, PlasmaSpec(gamma=GAMMA, kappa=KAPPA, particles=N))
    launches = {"walk_rounds": 0.0}
    base = Tuning(**launches)
    state.warm_up(state.batch(base), 600)
    atoms = REPLICAS * N
    show(Row(f"{REPLICAS} x {N}, kappa {KAPPA:g}, r_c {state.spec.cutoff:.2f}", atoms, "particles"))

    def rate(name: str, tuning: Tuning, skin: float, precision: Precision, every: int = 0) -> float:
        batch = state.batch(tuning, skin, precision)
        seconds = of_a_step(state, batch, 60, every)
        rows.append(show(Row(f"{precision} {name}", atoms / seconds / 1e9, "G atom-steps/s")))
        return atoms / seconds

    for precision in ("f64", "f32"):
        speed = {}
        for lanes in (4, 8, 16) if quick else (4, 8, 16, 32):
            for unroll in (1, 2, 4):
                for threads in (128, 256):
                    tuning = Tuning(lanes, unroll, threads, **launches)
                    name = f"lanes {lanes} unroll {unroll} threads {threads}"
                    speed[tuning] = rate(name, tuning, SKIN, precision)
        best = max(speed, key=lambda tuning: speed[tuning])
        for fine in (1, 3):
            rate(f"best, cells {fine} to the radius", best._replace(fine=fine), SKIN, precision)
        for skin in (0.3, 0.4, 0.7, 0.9):
            rate(f"best, skin {skin:g}", best, skin, precision)
        rate("best, a sample every 2 steps", best, SKIN, precision, 2)
        rate("best, walking", best._replace(walk_rounds=1e9), SKIN, precision)
        rows += [show(row) for row in kernels(state, state.batch(best, SKIN, precision), best)]
        batch = state.batch(best, SKIN, precision)
        state.advance(batch, 200, samples=100, frames=20)
        took, lists = state.advance(batch, 200, samples=100, frames=20)
        name = f"{precision} best, call of 200 steps with 100 samples, 20 frames"
        rows.append(show(Row(name, atoms * 200 / took / 1e9, "G atom-steps/s")))
        rows.append(show(Row("  lists a replica in it", lists, "")))
    return rows


def one_box(quick: bool) -> list[Row]:
    """Return steps per second of few boxes."""
    rows: list[Row] = []
    for replicas in (1, 4):
        state = State(replicas, PlasmaSpec(gamma=GAMMA, kappa=KAPPA, particles=N))
        state.warm_up(state.batch(Tuning()), 1000)
        for precision in ("f64", "f32"):
            speed = {}
            for lanes in (8, 16, 32):
                for unroll in (1, 2, 4):
                    for threads in (128, 256):
                        tuning = Tuning(lanes, unroll, threads, walk_rounds=1e9)
                        batch = state.batch(tuning, SKIN, precision)
                        speed[tuning] = 1 / of_a_step(state, batch, 300)
                        name = f"{replicas} x {N} {precision} lanes {lanes} unroll {unroll} threads {threads}"
                        rows.append(show(Row(name, speed[tuning], "steps/s")))
            best = max(speed, key=lambda tuning: speed[tuning])
            for name, tuning, every, skin in (
                ("a sample every 2 steps", best, 2, SKIN),
                ("three launches per step", best._replace(walk_rounds=0.0), 0, SKIN),
                ("cells 3 to the radius", best._replace(fine=3), 0, SKIN),
                ("skin 0.7", best, 0, 0.7),
                ("skin 0.9", best, 0, 0.9),
            ):
                seconds = of_a_step(state, state.batch(tuning, skin, precision), 300, every)
                rows.append(show(Row(f"{replicas} x {N} {precision} best, {name}", 1 / seconds, "steps/s")))
            took, _ = state.advance(state.batch(best, SKIN, precision), 200, samples=100, frames=20)
            batch = state.batch(best, SKIN, precision)
            state.advance(batch, 200, samples=100, frames=20)
            took, lists = state.advance(batch, 200, samples=100, frames=20)
            name = f"{replicas} x {N} {precision} best, call of 200 steps with 100 samples, 20 frames"
            rows.append(show(Row(name, 200 / took, "steps/s")))
            rows.append(show(Row("  lists a replica in it", lists, "")))
        if quick:
            break
    return rows


def show(row: Row) -> Row:
    print(f"{row.name:70s} {row.value:12.4g} {row.unit}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true", help="fewer variants")
    arguments = parser.parse_args()
    rows = [*one_box(arguments.quick), *batches(arguments.quick)]
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump([row._asdict() for row in rows], out, indent=1)


if __name__ == "__main__":
    main()
