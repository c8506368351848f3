"""A reservoir step of 50 inputs and 128 units, W4 A8, against the NumPy float64 step, one thread.

Floor: 178 x 128 = 22,784 products. At 64 products an instruction (VNNI) and one instruction a cycle that is 356 cycles,
0.1 us at 3.5 GHz; the weights are 22 KiB and stay in the first-level cache. The activation adds 128 tanh.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy loads its BLAS: a thread per step would be slower

from collections.abc import Iterator

import numpy as np

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.native import kernels
from metalforge.substrates.npu.products import CompiledLayer
from metalforge.substrates.npu.program import FullyConnected
from metalforge.substrates.npu.sequence import SequenceLoop

INPUTS, UNITS, STEPS, LEAK = 50, 128, 1000, 0.3


def rate(seconds: float, how: str = "best of 5, 1 thread") -> Measured:
    return Measured(value=1e-6 / seconds, unit="Mstep/s", how=how)


def rows() -> Iterator[BenchRow]:
    rng = np.random.default_rng(1)
    full = rng.normal(size=(UNITS, INPUTS + UNITS)) * 0.1
    scale = np.abs(full).max(axis=1) / 7
    weights = np.ascontiguousarray(np.rint(full / scale[:, None]).astype(np.int8).T)
    w_in, w_res = full[:, :INPUTS].copy(), full[:, INPUTS:].copy()
    u = rng.uniform(-1, 1, (STEPS, INPUTS))

    def numpy_steps() -> None:
        s = np.zeros(UNITS)
        for row in u:
            s = (1 - LEAK) * s + LEAK * np.tanh(w_in @ row + w_res @ s)

    peer = rate(best_of(numpy_steps) / STEPS)
    x = rng.integers(0, 16, (1, INPUTS + UNITS)).astype(np.uint8)
    batch = rng.integers(0, 16, (64, INPUTS + UNITS)).astype(np.uint8)
    module = kernels()
    tiled = module.NpuWeights(weights)
    out, out64 = np.empty((1, UNITS), np.int32), np.empty((64, UNITS), np.int32)
    bare = rate(best_of(lambda: module.npu_product(tiled, batch, out64, 255, 32, "auto")) / 64, "batch of 64")
    for precision in ("f64", "f32"):
        loop = SequenceLoop(weights, scale / 127, inputs=INPUTS, leak=LEAK, precision=precision)
        yield BenchRow(
            name=f"native sequence loop, W4 A8, host {precision}",
            value=rate(best_of(lambda loop=loop: loop.run(u)) / STEPS),
            peer_name="NumPy f64 step",
            peer=peer,
            ceiling_name="bare product",
            ceiling=bare,
        )
    single = SequenceLoop(weights, scale / 127, inputs=INPUTS, leak=LEAK)
    state = np.zeros(UNITS)
    yield BenchRow(
        name="one step per Python call, W4 A8, host f64",
        value=rate(best_of(lambda: single.step(u[0], state))),
        peer_name="NumPy f64 step",
        peer=peer,
        ceiling_name="bare product",
        ceiling=bare,
    )
    layer = CompiledLayer(FullyConnected(name="res", weights=weights))
    yield BenchRow(
        name="one layer through Python, batch of 1",
        value=rate(best_of(lambda: layer.run(x))),
        peer_name="NumPy f64 step",
        peer=peer,
        ceiling_name="bare product",
        ceiling=bare,
    )
    yield BenchRow(
        name="one native product call, batch of 1",
        value=rate(best_of(lambda: module.npu_product(tiled, x, out, 15, 20, "auto"))),
        peer_name="NumPy f64 step",
        peer=peer,
        ceiling_name="bare product",
        ceiling=bare,
    )
