"""Networks of 50 inputs and 128 units on the emulated NPU and in software, against calls, loops and NumPy; one thread.

A step is 178 x 128 = 22,784 products of small integers (W4; twice as many digits for W8, three times for W12), the
encoding of 178 lines and 128 activations. Its weights, 22 KiB per digit, stay in the first- or second-level cache.
With W_in on the host 6,400 of the products are multiply-adds of doubles, 50 KiB more. The floor is the bare loop,
which does the same arithmetic and keeps no books; `bench npu` compares that one with its products.

The peer of the emulator's rows is the same network by calls of the device, one per step, as a board has them: encoding,
call and decoding in NumPy. Both give the same bits and the same books. Goals: a run within twice the bare loop, a step
in 8 us (125 kstep/s) and one of the executor in software in 15 us (67 kstep/s), on a core that does the NumPy step
of `bench npu` in 6.2 us.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.model.graph import graph_from_esn
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu import EmulatedDevice

INPUTS, UNITS, STEPS, LEAK = 50, 128, 1000, 0.3
fastest = partial(best_of, repeats=15, minimum_s=0.004)


class CalledDevice(EmulatedDevice):
    """An emulator that is called for every step, as a board is."""

    compute = None


def rate(seconds: float) -> Measured:
    return Measured(value=1e-3 / seconds, unit="kstep/s", how="best of 15, 1 thread")


def emulator_rows(u: np.ndarray) -> Iterator[BenchRow]:
    rng = np.random.default_rng(1)
    bare = make_esn(UNITS, INPUTS, seed=1, leak=LEAK, input_scaling=0.3)
    read = bare.with_readout(rng.normal(size=(1, UNITS)))
    for weights, precision, place in (
        (bare, "W4A8", "device"),
        (bare, "W4A8", "host"),
        (bare, "W12A16", "device"),
        (bare.astype(np.float32), "W8A8", "host"),
        (read, "W4A8", "device"),
    ):
        given = u.astype(weights.dtype)
        with EmulatedDevice() as device, CalledDevice() as called:
            ours, theirs = (
                HybridEsn.from_weights(weights).with_hardware_linear(d, precision=precision, inputs=place)
                for d in (device, called)
            )
            assert np.array_equal(ours.run(given), theirs.run(given))
            assert device.statistics() == called.statistics()
            loop = ours.path.exact.loop
            state = np.zeros(UNITS, weights.dtype)
            name = f"{precision}, W_in on the {place}, {weights.dtype}" + ", one output" * (weights is read)
            for what, run, peer, top, steps in (
                ("run", ours.run, theirs.run, loop.run, STEPS),
                ("step", ours.step, theirs.step, lambda u, state=state: loop.step(u, state), 1),
            ):
                rows = given if steps > 1 else given[0]
                few = given[:100] if steps > 1 else rows
                by_calls = best_of(lambda peer=peer, few=few: peer(few), repeats=3, minimum_s=0.004)
                yield BenchRow(
                    name=f"{what}, {name}",
                    value=rate(fastest(lambda run=run, rows=rows: run(rows)) / steps),
                    peer_name="by calls",
                    peer=rate(by_calls / (100 if steps > 1 else 1)),
                    ceiling_name="bare loop" if steps > 1 else "bare step",
                    ceiling=rate(fastest(lambda top=top, rows=rows: top(rows)) / steps),
                )


def software_rows(u: np.ndarray) -> Iterator[BenchRow]:
    weights = make_esn(UNITS, INPUTS, seed=1, leak=LEAK, input_scaling=0.3)
    weights = weights.with_readout(np.random.default_rng(1).normal(size=(1, UNITS)))
    w_in, w_res, w_out = weights.w_in, weights.w_res, weights.w_out
    state, engine = np.zeros(UNITS), EsnEngine(weights, threads=1)

    def numpy_step() -> np.ndarray:
        s = (1 - LEAK) * state + LEAK * np.tanh(w_in @ u[0] + w_res @ state)
        return w_out @ s

    peer, top = rate(fastest(numpy_step)), rate(fastest(lambda: engine.step(state, u[0])))
    esn = HybridEsn.from_weights(weights)
    with HybridExecutor(OperationRouter().plan(graph_from_esn(weights))) as executor:
        for name, step in (("HybridEsn.step", esn.step), ("HybridExecutor.step", executor.step)):
            yield BenchRow(
                name=f"{name} in software, one output",
                value=rate(fastest(lambda step=step: step(u[0]))),
                peer_name="NumPy f64 step",
                peer=peer,
                ceiling_name="kernel alone",
                ceiling=top,
            )


def rows() -> Iterator[BenchRow]:
    u = np.random.default_rng(0).uniform(-1, 1, (STEPS, INPUTS))
    with threadpool_limits(1):  # whoever loaded NumPy's BLAS first: a thread per step would be slower
        yield from emulator_rows(u)
        yield from software_rows(u)
