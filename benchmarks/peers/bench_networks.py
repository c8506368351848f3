"""Reservoirs and their training against reservoirpy and PyTorch on one thread, in turns.

The networks and the programs are those of `bench reservoir` and `bench learning`: 50 inputs, 128 units, dense; 1,000
units at 10 %. Flops of a row: the step 2 x 178 x 128; least squares 4 x 128^2 more for the inverse; through time the
step, its transpose and the gradients of both matrices.
"""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow, Turn, load_benchmark, rows_in_turns, timed
from metalforge.hybrid.learning.backpropagation import BackpropagationTrainer
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.least_squares import LeastSquares, absorb

SUITES = Path(__file__).parents[1]
floors = load_benchmark(Path(__file__).with_name("floors.py"))
esn, training = (load_benchmark(SUITES / name) for name in ("reservoir/bench_esn.py", "learning/bench_training.py"))
STEP_FLOPS = 2.0 * training.UNITS * (training.INPUTS + training.UNITS)


def rows(rounds: int = 8) -> Iterator[BenchRow]:
    with threadpool_limits(1):
        yield from step_rows(rounds)
        yield from training_rows(rounds)


def if_here(package: str, make) -> Turn | None:
    return timed(make()) if find_spec(package) else None


def step_rows(rounds: int) -> Iterator[BenchRow]:
    dense, (free, blocks) = esn.dense(128), esn.sparse(1000, 0.1)
    recurrent, w_in = 128 * 128, 128 * esn.INPUTS
    stored, thousand_in = 1000 * 100, 1000 * esn.INPUTS
    in_blocks = -(-1000 // esn.BLOCK) * 100
    cases = (
        ("dense 50 -> 128, f32", dense.astype(np.float32), 400,
         esn.Work(STEP_FLOPS, 4 * (recurrent + w_in / 24)), dense.astype(np.float32)),
        ("dense 50 -> 128, f64", dense, 400,
         esn.Work(2 * STEP_FLOPS, 8 * (recurrent + w_in / 24)), dense),
        ("1,000 units at 10 %, block-16 (peers: free pattern), f32", blocks, 40,
         esn.Work(2 * (in_blocks * esn.BLOCK + thousand_in), in_blocks * (4 * esn.BLOCK + 4) + thousand_in / 6), free),
        ("1,000 units at 10 %, free pattern, f32", free, 40,
         esn.Work(2 * (stored + thousand_in), 8 * stored + thousand_in / 6), free),
    )  # fmt: skip
    for name, weights, steps, work, theirs in cases:
        ours, peer = esn.Case(weights, steps), esn.Case(theirs, steps)
        precision = "f32" if weights.dtype == np.float32 else "f64"
        peers = {
            "reservoirpy, f64": if_here("reservoirpy", peer.reservoirpy),
            f"PyTorch, {precision}": if_here("torch", lambda: peer.torch()[0]),
        }
        yield from rows_in_turns(
            f"{name}: steps of a sequence", timed(ours.sequence()), peers,
            ("multiply-adds and cache", lambda: steps * work.seconds()),
            amount=1e-6 * steps, unit="Mstep/s", rounds=rounds,
        )  # fmt: skip


def training_rows(rounds: int) -> Iterator[BenchRow]:
    engine = EsnEngine(training.WEIGHTS, threads=1)
    zeros, start = np.zeros((training.OUTPUTS, training.UNITS)), np.eye(training.UNITS) / training.ALPHA

    def least_squares(block: int) -> None:
        states, solved = engine.run(training.U), LeastSquares(zeros, start, 0)
        for first in range(0, training.STEPS, block):
            these = slice(first, first + block)
            solved = absorb(solved, states[these], training.Y[these], 1.0)

    def their_least_squares():
        from reservoirpy.nodes import RLS

        return training.reservoirpy_model(RLS(alpha=training.ALPHA, fit_bias=False))

    flops = training.STEPS * (STEP_FLOPS + 4 * training.UNITS**2)
    for block in (1, 64):
        peers = {"reservoirpy, RLS": if_here("reservoirpy", their_least_squares)}
        yield from rows_in_turns(
            f"least squares of a readout, ready every {block} rows" if block > 1 else
            "least squares of a readout, ready every row",
            timed(partial(least_squares, block)), peers, floors.arithmetic(flops),
            amount=1e-3 * training.STEPS, unit="k rows/s", rounds=rounds,
        )  # fmt: skip

    window = training.WINDOW
    trainer = BackpropagationTrainer(training.WEIGHTS, rate=training.RATE, optimiser="plain", clip=None)
    yield from rows_in_turns(
        f"all weights through {window} rows, one step of gradient descent",
        timed(lambda: trainer.step(training.U[:window], training.Y[:window])),
        {"PyTorch, f64": if_here("torch", training.torch_through_time)},
        floors.arithmetic(window * (2 * STEP_FLOPS + 2.0 * training.UNITS**2)),
        amount=1e-3 * window, unit="k rows/s", rounds=rounds,
    )  # fmt: skip
