"""One pass of eleven heads on the conductor's features in float32, against NumPy and eleven models; one thread.

With n features, u units and w outputs, a step is 2 (n + u) u flops and reads 4 (n + u) u bytes of weights; a query of
all heads, which see states and inputs, is 2 (n + u) w flops and 4 (n + u) w bytes more. A batch of 8 reads them once.
The ceiling is passes per second if nothing but the larger of the two cost time, by the measured peak of multiply-adds
and the measured rate of reading so many bytes. Eleven separate models do eleven steps.

On the emulator the reservoir is W8A8 and the heads W12A12: products of 2 rows by n + u lines by 2 u units and of 3 rows
by n + u by 3 w. Its ceiling are the two bare integer products; the rest is encoding, decoding, activation and ledgers.

The peers compute the same dictionary of heads. A small pass is mostly calls from Python: that is why decoding all heads
by their activation, not one by one, decides what comes out here. Times of the emulator are times of emulating, not
those of a chip.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow, best_of
from metalforge.conductor.features import SCHEMA
from metalforge.conductor.program import ConductorProgram
from metalforge.conductor.shipped import CONDUCTOR_11, shipped_weights
from metalforge.core import HeadLayout, Measured
from metalforge.native import kernels
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.heads import decoder_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import EmulatedDevice

INPUTS, OUTPUTS, BATCH, UNITS = len(SCHEMA), CONDUCTOR_11.width, 8, shipped_weights().units
LINES = INPUTS + UNITS
STEP, QUERY = LINES * UNITS, LINES * OUTPUTS
"""Weights of the two products."""
fastest = partial(best_of, repeats=60, minimum_s=0.002)


def rate(seconds: float, how: str = "best of 60, 1 thread") -> Measured:
    return Measured(value=1e-3 / seconds, unit="kpass/s", how=how)


def ceiling(weights: int, batch: int = 1) -> Measured:
    """Return the rate at which one core could do a product with so many weights, from measurements made now."""
    module, rounds = kernels(), 20_000
    flops_s = module.fma_f32(rounds, 1) / fastest(lambda: module.fma_f32(rounds, 1))
    n_bytes = 4 * weights
    block = np.zeros(round(n_bytes / 8))
    read = module.read(block, 40)
    seconds = n_bytes / read * fastest(lambda: module.read(block, 40)) / batch
    return rate(max(2 * weights / flops_s, seconds), "the larger of flops / FMA peak and bytes / read rate")


def trained() -> EsnWeights:
    """The shipped reservoir with a readout of random numbers."""
    rng = np.random.default_rng(1)
    w_out = 0.1 * rng.normal(size=(OUTPUTS, LINES)).astype(np.float32)
    bias = rng.normal(size=OUTPUTS).astype(np.float32)
    return shipped_weights().with_readout(w_out, bias, passthrough=True, heads=CONDUCTOR_11)


def separate(weights: EsnWeights) -> list[EsnWeights]:
    """Eleven models of one head each, on the same reservoir: what one pass replaces."""
    models = []
    for head in CONDUCTOR_11.heads:
        rows = CONDUCTOR_11.span(head.name)
        layout = HeadLayout(name=head.name, heads=(head,))
        models.append(weights.with_readout(weights.w_out[rows], weights.out_bias[rows], heads=layout))
    return models


class Peer:
    """The same pass in NumPy float32, as one would write it by hand; states and frames are (batch, n)."""

    def __init__(self, weights: EsnWeights, layout: HeadLayout = CONDUCTOR_11) -> None:
        self.w_in, self.w_res, self.bias = weights.w_in.T.copy(), weights.w_res.T.copy(), weights.bias
        self.w_out, self.out_bias = weights.w_out.T.copy(), weights.out_bias
        self.keep, self.leak = np.float32(1 - weights.leak), np.float32(weights.leak)
        self.heads = [(h.name, layout.span(h.name), h.activation, h.offset, h.scale) for h in layout.heads]

    def step(self, s: np.ndarray, u: np.ndarray) -> np.ndarray:
        return self.keep * s + self.leak * np.tanh(u @ self.w_in + s @ self.w_res + self.bias)

    def query(self, s: np.ndarray, u: np.ndarray) -> dict[str, np.ndarray]:
        y = np.concatenate([s, u], axis=-1) @ self.w_out + self.out_bias
        found = {}
        for name, span, activation, offset, scale in self.heads:
            v = y[..., span]
            if activation == "sigmoid":
                v = 1 / (1 + np.exp(-v))
            elif activation == "relu":
                v = np.maximum(v, 0)
            elif activation == "softmax":
                v = np.exp(v - v.max(axis=-1, keepdims=True))
                v = v / v.sum(axis=-1, keepdims=True)
            found[name] = offset + scale * v
        return found


def agree(run: ConductorProgram, peer: Peer, frames: np.ndarray, tolerance: float) -> None:
    """Return when both say the same of some frames: otherwise their speeds would not compare."""
    run.reset()
    s = np.zeros(UNITS, np.float32)
    for u in frames:
        found, s = run.run_conductor(u), peer.step(s, u)
    wanted = peer.query(s, frames[-1])
    scales = {head.name: abs(head.scale) for head in CONDUCTOR_11.heads}
    worst = max(float(np.abs(found[name] - wanted[name]).max()) / scales[name] for name in wanted)
    assert worst < tolerance, f"heads differ by {worst}"


def row(name: str, seconds: float, peer_name: str, peer_s: float, top_name: str, top: Measured) -> BenchRow:
    return BenchRow(
        name=name,
        value=rate(seconds),
        peer_name=peer_name,
        peer=rate(peer_s),
        ceiling_name=top_name,
        ceiling=top,
    )


def passes(run: ConductorProgram, frame: np.ndarray) -> Callable[[], object]:
    """A pass of a run, from rest at first."""
    run.reset(batch=None if frame.ndim == 1 else len(frame))
    return lambda: run.run_conductor(frame)


def together(runs: list[ConductorProgram], frame: np.ndarray) -> Callable[[], object]:
    calls = [passes(run, frame) for run in runs]
    return lambda: [call() for call in calls]


def software_rows(weights: EsnWeights, frames: np.ndarray) -> Iterator[BenchRow]:
    run, peer = ConductorProgram(weights), Peer(weights)
    eleven = [ConductorProgram(one) for one in separate(weights)]
    agree(run, peer, frames[:20], 1e-4)
    for batch, frame in ((1, frames[0]), (BATCH, frames[:BATCH])):
        state = np.zeros((*frame.shape[:-1], UNITS), np.float32)
        ours = fastest(passes(run, frame)) / batch
        numpy_s = fastest(lambda s=state, u=frame: peer.query(peer.step(s, u), u)) / batch
        apart = fastest(together(eleven, frame)) / batch
        top = ceiling(STEP + QUERY, batch)
        name = "software, 11 heads, " + ("single" if batch == 1 else f"batch of {batch}")
        yield row(name, ours, "NumPy f32", numpy_s, "FMA and cache", top)
        yield row(name, ours, "eleven models", apart, "FMA and cache", top)


def part_rows(weights: EsnWeights, frames: np.ndarray) -> Iterator[BenchRow]:
    """A step and a query apart: along a chain every trajectory is a step, heads are read when somebody asks."""
    engine, peer, decoder = EsnEngine(weights, threads=1), Peer(weights), decoder_of(CONDUCTOR_11)
    frame = frames[0]
    state = engine.run(frames)[-1]
    w_out, bias = weights.w_out.T.copy(), weights.out_bias

    def query() -> object:
        return decoder(np.concatenate([state, frame]) @ w_out + bias)

    step_s, numpy_step = fastest(lambda: engine.step(state, frame)), fastest(lambda: peer.step(state, frame))
    yield row("a step alone, software", step_s, "NumPy f32", numpy_step, "FMA and cache", ceiling(STEP))
    numpy_query = fastest(lambda: peer.query(state, frame))
    yield row("a query alone, 11 heads, software", fastest(query), "NumPy f32", numpy_query, "FMA", ceiling(QUERY))


def bare_products(batch: int) -> Measured:
    """Return the rate of the two integer products of a pass on the emulator, and nothing else."""
    rng, module, seconds = np.random.default_rng(2), kernels(), 0.0
    for nibbles, units in ((2, 2 * UNITS), (3, 3 * OUTPUTS)):
        tiled = module.NpuWeights(rng.integers(-7, 8, (LINES, units)).astype(np.int8))
        x = rng.integers(0, 16, (nibbles * batch, LINES)).astype(np.uint8)
        out = np.empty((nibbles * batch, units), np.int32)
        seconds += fastest(lambda t=tiled, x=x, out=out: module.npu_product(t, x, out, 15, 20, "auto"))
    return rate(seconds / batch, "two bare products")


def emulator_rows(weights: EsnWeights, frames: np.ndarray) -> Iterator[BenchRow]:
    peer = Peer(weights)
    with ExitStack() as held:

        def on_device(weights: EsnWeights) -> ConductorProgram:
            device = held.enter_context(EmulatedDevice())
            return held.enter_context(ConductorProgram(weights, device, calibration=frames))

        run = on_device(weights)
        eleven = [on_device(one) for one in separate(weights)]
        agree(run, peer, frames[:20], 0.2)
        for batch, frame in ((1, frames[0]), (BATCH, frames[:BATCH])):
            state = np.zeros((*frame.shape[:-1], UNITS), np.float32)
            ours = fastest(passes(run, frame)) / batch
            numpy_s = fastest(lambda s=state, u=frame: peer.query(peer.step(s, u), u)) / batch
            apart = fastest(together(eleven, frame)) / batch
            top = bare_products(batch)
            name = "emulator, 11 heads, " + ("single" if batch == 1 else f"batch of {batch}")
            yield row(name, ours, "NumPy f32", numpy_s, "bare products", top)
            yield row(name, ours, "eleven models", apart, "bare products", top)


def rows() -> Iterator[BenchRow]:
    weights = trained()
    frames = np.random.default_rng(3).normal(size=(200, INPUTS)).astype(np.float32)
    with threadpool_limits(1):  # whoever loaded NumPy's BLAS first: a thread per pass would be slower
        yield from software_rows(weights, frames)
        yield from part_rows(weights, frames)
        yield from emulator_rows(weights, frames)
