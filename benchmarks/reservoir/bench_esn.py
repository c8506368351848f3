"""Reservoir steps per second against reservoirpy, NumPy/SciPy and PyTorch, one thread, in one run.

Dense, 50 inputs and 128 units, float32: 2 x 178 x 128 = 45,568 flops per step. A single step reads 91 KB of weights; a
sequence multiplies the inputs of 24 steps at once and reads the 66 KB of recurrent weights per step; a batch of 64
reads 1.4 KB per sample and is bound by arithmetic.

1,000 units at 10 %, float32: 100,000 recurrent weights. Block-16 stores 4 bytes per weight and 4 per column of a block,
428 KB, and does 2 x (63 x 16 x 100 + 50,000) = 301,600 flops. CSR stores 8 bytes per weight, 800 KB, and must load
100,000 states one by one on top.

The ceiling is steps per second if nothing but the larger of the two cost time: flops at the measured peak of
multiply-adds, or those bytes at the measured rate of reading an array of their size. Activations are not in it. Kernels
that alternate in the order of units find part of the weights in the first-level cache, so they can come close to it.

PyTorch is not a dependency; its rows appear where it can be imported. The calls of one unit measure Python's share.
Rounds are short and many: on a shared machine the shortest one is the one that nobody disturbed.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.native import kernels
from metalforge.reservoir.engine import EsnEngine, init
from metalforge.reservoir.sparse import BLOCK, BlockSparse
from metalforge.reservoir.weights import EsnWeights

INPUTS, LEAK, SAMPLES = 50, 0.3, 64
fastest = partial(best_of, repeats=100, minimum_s=0.002)


def rate(seconds: float, how: str = "best of 100, 1 thread") -> Measured:
    return Measured(value=1e-6 / seconds, unit="Mstep/s", how=how)


class Work(NamedTuple):
    """What a step cannot do without."""

    flops: float
    bytes: float

    def seconds(self) -> float:
        """Return the least seconds that one core could do this in, from measurements made now."""
        module, rounds = kernels(), 20_000
        flops_s = module.fma_f32(rounds, 1) / fastest(lambda: module.fma_f32(rounds, 1))
        seconds = self.flops / flops_s
        if self.bytes >= 64 * 64:  # less stays in registers and the first-level cache
            weights = np.zeros(round(self.bytes / 8))
            repeats = max(1, round(4e6 / self.bytes))
            read = module.read(weights, repeats)
            seconds = max(seconds, self.bytes / read * fastest(lambda: module.read(weights, repeats)))
        return seconds

    def ceiling(self) -> Measured:
        """Return the rate that belongs to it."""
        return rate(self.seconds(), "the larger of flops / FMA peak and bytes / read rate")


def row(name: str, seconds: float, peer_name: str, peer_seconds: float, work: Work) -> BenchRow:
    return BenchRow(
        name=name,
        value=rate(seconds),
        peer_name=peer_name,
        peer=rate(peer_seconds),
        ceiling_name="FMA and cache",
        ceiling=work.ceiling(),
    )


class Case:
    """One network and its inputs, with a step, a batch of steps and a sequence of each implementation."""

    def __init__(self, weights: EsnWeights, steps: int) -> None:
        rng = np.random.default_rng(1)
        self.weights, self.engine, self.steps = weights, EsnEngine(weights, threads=1), steps
        self.u = rng.uniform(-1, 1, (steps, INPUTS)).astype(weights.dtype)
        self.batch_u = rng.uniform(-1, 1, (SAMPLES, INPUTS)).astype(weights.dtype)
        self.state = rng.uniform(-1, 1, weights.units).astype(weights.dtype)
        self.batch = rng.uniform(-1, 1, (SAMPLES, weights.units)).astype(weights.dtype)

    def ours(self) -> tuple[float, float, float]:
        """Seconds a step: called one by one, in a batch, in a sequence."""
        state, batch = self.state.copy(), self.batch.copy()
        step, first = self.engine.step, self.u[0].copy()
        return (
            fastest(lambda: step(state, first, state)),
            fastest(lambda: step(batch, self.batch_u, batch)) / SAMPLES,
            fastest(self.sequence()) / self.steps,
        )

    def sequence(self) -> Callable[[], object]:
        """Our sequence of steps, to be timed."""
        states = self.engine.run(self.u)
        return lambda: self.engine.run(self.u, out=states)

    def arrays(self) -> tuple[float, float]:
        """Seconds a step of NumPy, or SciPy where the matrix is sparse: one by one, in a batch."""
        w_in, w_res, bias = self.weights.w_in, self.weights.w_res, self.weights.bias
        keep, leak = self.weights.dtype.type(1 - LEAK), self.weights.dtype.type(LEAK)
        columns, batch_u = np.ascontiguousarray(self.batch.T), np.ascontiguousarray(self.batch_u.T)

        def sequence() -> None:
            s = self.state
            for u in self.u:
                s = keep * s + leak * np.tanh(w_in @ u + w_res @ s + bias)

        def batch() -> object:
            return keep * columns + leak * np.tanh(w_in @ batch_u + w_res @ columns + bias[:, None])

        return fastest(sequence) / self.steps, fastest(batch) / SAMPLES

    def reservoirpy(self) -> Callable[[], object]:
        """A sequence by reservoirpy in float64, where it is faster than in float32, to be timed."""
        from reservoirpy.nodes import Reservoir

        w = self.weights.astype(np.float64)
        node, u = Reservoir(units=w.units, lr=LEAK, W=w.w_res, Win=w.w_in, bias=w.bias), self.u.astype(np.float64)
        return lambda: node.run(u)

    def torch(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """A sequence and a batch by PyTorch, to be timed."""
        import torch

        torch.set_num_threads(1)
        w_in, bias = (torch.from_numpy(x) for x in (self.weights.w_in, self.weights.bias))
        w_res = self.weights.w_res
        if isinstance(w_res, csr_array):
            parts = (torch.from_numpy(x) for x in (w_res.indptr, w_res.indices, w_res.data))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that this is young
                recurrent = torch.sparse_csr_tensor(*parts, w_res.shape)
        else:
            recurrent = torch.from_numpy(w_res)
        u, start, columns, batch_u = (
            torch.from_numpy(np.ascontiguousarray(x)) for x in (self.u, self.state, self.batch.T, self.batch_u.T)
        )

        def sequence() -> None:
            with torch.inference_mode():
                s = start
                for line in u:
                    s = torch.lerp(s, torch.tanh(recurrent @ s + torch.addmv(bias, w_in, line)), LEAK)

        def batch() -> None:
            with torch.inference_mode():
                torch.lerp(columns, torch.tanh(recurrent @ columns + w_in @ batch_u + bias[:, None]), LEAK)

        return sequence, batch

    def peers(self) -> tuple[float, tuple[float, float] | None]:
        """Seconds a step of reservoirpy in a sequence, and of PyTorch, where it is, in a sequence and in a batch."""
        node = fastest(self.reservoirpy()) / self.steps
        if not find_spec("torch"):
            return node, None
        sequence, batch = self.torch()
        return node, (fastest(sequence) / self.steps, fastest(batch) / SAMPLES)


def dense(units: int) -> EsnWeights:
    rng = np.random.default_rng(2)
    w_res = rng.normal(size=(units, units)) * 0.9 / np.sqrt(units)
    w_in = rng.uniform(-1, 1, (units, INPUTS))
    return EsnWeights(w_in=w_in, w_res=w_res, bias=rng.normal(size=units) * 0.1, leak=LEAK)


def sparse(units: int, density: float) -> tuple[EsnWeights, EsnWeights]:
    """The same number of weights in a free pattern and in blocks of sixteen units."""
    rng = np.random.default_rng(3)
    stored, blocks = round(density * units), -(-units // BLOCK)
    columns = np.stack([np.sort(rng.choice(units, stored, replace=False)) for _ in range(blocks)]).astype(np.int32)
    values = rng.normal(size=(blocks, stored, BLOCK)) * 0.9 / np.sqrt(stored)
    values[-1, :, units - BLOCK * (blocks - 1) :] = 0
    free = np.zeros((units, units))
    for i in range(units):
        free[i, rng.choice(units, stored, replace=False)] = rng.normal(size=stored) * 0.9 / np.sqrt(stored)
    common = {"w_in": rng.uniform(-1, 1, (units, INPUTS)), "bias": rng.normal(size=units) * 0.1, "leak": LEAK}
    return (
        EsnWeights(w_res=csr_array(free), **common).astype(np.float32),
        EsnWeights(w_res=BlockSparse(units, units, columns, values), **common).astype(np.float32),
    )


def dense_rows() -> Iterator[BenchRow]:
    weights = dense(128)
    case = Case(weights.astype(np.float32), 400)
    one, batch, sequence = case.ours()
    flops, w_in, w_res = 2 * 128 * (INPUTS + 128), 4 * 128 * INPUTS, 4 * 128 * 128
    single, many = Work(flops, w_in + w_res), Work(flops, (w_in + w_res) / SAMPLES)
    steps = Work(flops, w_res + w_in / 24)
    numpy_one, numpy_batch = case.arrays()
    node, torch = case.peers()
    name = "dense 50 -> 128, f32"
    yield row(f"{name}, sequence", sequence, "reservoirpy f64", node, steps)
    yield row(f"{name}, sequence", sequence, "NumPy f32", numpy_one, steps)
    yield row(f"{name}, one call per step", one, "NumPy f32", numpy_one, single)
    yield row(f"{name}, batch of 64", batch, "NumPy f32", numpy_batch, many)
    if torch:
        yield row(f"{name}, sequence", sequence, "PyTorch f32", torch[0], steps)
        yield row(f"{name}, batch of 64", batch, "PyTorch f32", torch[1], many)
    double = Case(weights, 400)
    twice = Work(2 * flops, 2 * steps.bytes)  # half as many lanes, twice the bytes
    yield row("dense 50 -> 128, f64, sequence", double.ours()[2], "reservoirpy f64", double.peers()[0], twice)


def sparse_rows() -> Iterator[BenchRow]:
    units, stored = 1000, 100
    free, blocks = (Case(weights, 40) for weights in sparse(units, stored / units))
    scipy_one, scipy_batch = free.arrays()
    node, torch = free.peers()
    peers = [("SciPy CSR f32", scipy_one, scipy_batch), ("reservoirpy f64", node, None)]
    if torch:
        peers.append(("PyTorch CSR f32", *torch))
    n_blocks, w_in = -(-units // BLOCK), 4 * units * INPUTS
    forms: tuple[tuple[str, Case, float, float], ...] = (
        ("block-16", blocks, n_blocks * BLOCK * stored, n_blocks * stored * (4 * BLOCK + 4)),
        ("CSR", free, units * stored, units * stored * 8),
    )
    for form, case, weights, n_bytes in forms:
        one, batch, sequence = case.ours()
        flops, name = 2 * (weights + units * INPUTS), f"1,000 units at 10 %, {form}, f32"
        for peer, peer_one, peer_batch in peers:
            yield row(f"{name}, sequence", sequence, peer, peer_one, Work(flops, n_bytes + w_in / 24))
            if peer_batch is not None:
                yield row(f"{name}, batch of 64", batch, peer, peer_batch, Work(flops, (n_bytes + w_in) / SAMPLES))
        yield row(f"{name}, one call per step", one, "SciPy CSR f32", scipy_one, Work(flops, n_bytes + w_in))


def call_rows() -> Iterator[BenchRow]:
    """One unit, one input: a call is all overhead. The peer is NumPy's own cost of a call of one number."""
    one = np.ones((1, 1), np.float32)
    weights = EsnWeights(w_in=one, w_res=one / 2)
    step, state, u = EsnEngine(weights, threads=1).step, init(weights), np.ones(1, np.float32)
    calls = 1000

    def seconds(call: Callable[[], object]) -> float:
        def many() -> None:
            for _ in range(calls):
                call()

        return fastest(many) / calls

    def of(name: str, value: float, peer: float) -> BenchRow:
        return BenchRow(name=name, value=rate(value), peer_name="NumPy tanh(x)", peer=rate(peer))

    tanh, out = np.tanh, np.empty_like(state)
    yield of("a call, 1 unit, new array", seconds(lambda: step(state, u)), seconds(lambda: tanh(u)))
    yield of("a call, 1 unit, out=", seconds(lambda: step(state, u, out=out)), seconds(lambda: tanh(u, out=out)))


def rows() -> Iterator[BenchRow]:
    with threadpool_limits(1):  # whoever loaded NumPy's BLAS first: a thread per step would be slower
        yield from dense_rows()
        yield from sparse_rows()
        yield from call_rows()
