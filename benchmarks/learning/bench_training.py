"""Training steps per second against reservoirpy and NumPy (PyTorch, where it can be imported), one thread, in one run.

50 inputs, 128 units, 2 outputs, float64. One step is one row: the state update, and the readout's learning of the row.

- Least squares: recursive, with a readout that is wanted after every row, every 11 rows (what `plan_updates` finds for
  the published device) or every 64. Rows between are learned together (`learning.least_squares`), with the same result.
- Gradient: least mean squares, a row at a time.
- Whole network: gradient of all weights by backpropagation through time over a window of 50 rows, a plain step.
- On the emulated NPU: the trainer with everything it does (forward on the emulator, loss, rule, guard, requantised
  pushes); the peer is the same job in software by reservoirpy. The emulator's own time is in it: it is no claim about a
  chip. What a chip would take is modelled, and stands in the row's name.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow, best_of
from metalforge.core import Measured
from metalforge.hybrid.learning.backpropagation import BackpropagationTrainer
from metalforge.hybrid.learning.network import DeviceNetwork
from metalforge.hybrid.learning.rules import GradientStep, RecursiveLeastSquares
from metalforge.hybrid.learning.trainer import OnlineTrainer, plan_updates
from metalforge.reservoir.engine import EsnEngine
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.least_squares import LeastSquares, absorb
from metalforge.reservoir.online import Lms, learn
from metalforge.substrates.npu.emulator import EmulatedDevice

INPUTS, UNITS, OUTPUTS, STEPS, WINDOW = 50, 128, 2, 256, 50
LEAK, ALPHA, RATE = 0.3, 1e-3, 1e-4
fastest = partial(best_of, repeats=20, minimum_s=0.02)

RNG = np.random.default_rng(1)
WEIGHTS = make_esn(UNITS, INPUTS, seed=1, connectivity=1.0, leak=LEAK, input_scaling=0.3).with_readout(
    RNG.normal(0, 0.1, (OUTPUTS, UNITS))
)
U, Y = RNG.uniform(-1, 1, (STEPS, INPUTS)), RNG.normal(size=(STEPS, OUTPUTS))


def rate(work: Callable[[], object], steps: int = STEPS) -> Measured:
    return Measured(value=1e-3 * steps / fastest(work), unit="kstep/s", how="best of 20, 1 thread")


def reservoirpy_model(readout: object) -> Callable[[], object]:
    from reservoirpy.nodes import Reservoir

    node = Reservoir(units=UNITS, lr=LEAK, W=WEIGHTS.w_res, Win=WEIGHTS.w_in, bias=WEIGHTS.bias)
    model = node >> readout
    return lambda: model.partial_fit(U, Y)


def numpy_states(s: np.ndarray) -> Iterator[np.ndarray]:
    for u in U:
        s = (1 - LEAK) * s + LEAK * np.tanh(WEIGHTS.w_in @ u + WEIGHTS.w_res @ s + WEIGHTS.bias)
        yield s


def numpy_least_squares() -> None:
    """The usual loop: the inverse is updated with one outer product a row."""
    p, w = np.eye(UNITS) / ALPHA, np.zeros((OUTPUTS, UNITS))
    for s, y in zip(numpy_states(np.zeros(UNITS)), Y, strict=True):
        spread = p @ s
        gain = spread / (1 + s @ spread)
        p -= np.outer(gain, spread)
        w += np.outer(y - w @ s, gain)


def numpy_gradient() -> None:
    w, b = np.zeros((OUTPUTS, UNITS)), np.zeros(OUTPUTS)
    for s, y in zip(numpy_states(np.zeros(UNITS)), Y, strict=True):
        error = y - w @ s - b
        w += RATE * np.outer(error, s)
        b += RATE * error


def numpy_through_time() -> None:
    """Forward, backward and a plain step for all weights, over one window."""
    w_in, w_res, bias, w_out = WEIGHTS.w_in, WEIGHTS.w_res, WEIGHTS.bias, WEIGHTS.w_out
    before, after, slopes = [], [], []
    s = np.zeros(UNITS)
    for u in U[:WINDOW]:
        f = np.tanh(w_in @ u + w_res @ s + bias)
        before.append(s)
        slopes.append(LEAK * (1 - f * f))
        s = (1 - LEAK) * s + LEAK * f
        after.append(s)
    states = np.stack(after)
    g = 2 * (states @ w_out.T + WEIGHTS.out_bias - Y[:WINDOW]) / (WINDOW * OUTPUTS)
    back, carried, d = g @ w_out, np.zeros(UNITS), np.empty((WINDOW, UNITS))
    for t in reversed(range(WINDOW)):
        lift = back[t] + carried
        d[t] = slopes[t] * lift
        carried = (1 - LEAK) * lift + d[t] @ w_res
    for part, slope in ((w_in, d.T @ U[:WINDOW]), (w_res, d.T @ np.stack(before)), (w_out, g.T @ states)):
        part - RATE * slope
    bias - RATE * d.sum(axis=0)


def torch_through_time() -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    parts = [
        torch.tensor(x, requires_grad=True)
        for x in (WEIGHTS.w_in, WEIGHTS.w_res, WEIGHTS.bias, WEIGHTS.w_out, WEIGHTS.out_bias)
    ]
    u, y = torch.from_numpy(U[:WINDOW]), torch.from_numpy(Y[:WINDOW])
    optimiser = torch.optim.SGD(parts, lr=RATE)

    def step() -> None:
        w_in, w_res, bias, w_out, out_bias = parts
        s, outputs = torch.zeros(UNITS, dtype=torch.float64), []
        for line in u @ w_in.T + bias:
            s = torch.lerp(s, torch.tanh(line + w_res @ s), LEAK)
            outputs.append(w_out @ s + out_bias)
        optimiser.zero_grad()
        torch.mean((torch.stack(outputs) - y) ** 2).backward()
        optimiser.step()

    return step


def readout_rows() -> Iterator[BenchRow]:
    from reservoirpy.nodes import LMS, RLS

    engine = EsnEngine(WEIGHTS, threads=1)

    def least_squares(block: int) -> None:
        states, solved = engine.run(U), LeastSquares(np.zeros((OUTPUTS, UNITS)), np.eye(UNITS) / ALPHA, 0)
        for start in range(0, STEPS, block):
            rows = slice(start, start + block)
            solved = absorb(solved, states[rows], Y[rows], 1.0)

    peers = [
        ("reservoirpy RLS", rate(reservoirpy_model(RLS(alpha=ALPHA, fit_bias=False)))),
        ("NumPy loop", rate(numpy_least_squares)),
    ]
    for block in (1, 11, 64):
        ours = rate(partial(least_squares, block))
        for name, peer in peers:
            yield BenchRow(name=f"least squares, every {block} rows", value=ours, peer_name=name, peer=peer)
    ours = rate(lambda: learn(Lms(rate=RATE), engine.run(U), Y))
    yield BenchRow(
        name="gradient, every row",
        value=ours,
        peer_name="reservoirpy LMS",
        peer=rate(reservoirpy_model(LMS(learning_rate=RATE))),
    )
    yield BenchRow(name="gradient, every row", value=ours, peer_name="NumPy loop", peer=rate(numpy_gradient))


def network_rows() -> Iterator[BenchRow]:
    trainer = BackpropagationTrainer(WEIGHTS, rate=RATE, optimiser="plain", clip=None)
    ours = rate(lambda: trainer.step(U[:WINDOW], Y[:WINDOW]), WINDOW)
    name = f"whole network through {WINDOW} rows"
    yield BenchRow(name=name, value=ours, peer_name="NumPy loop", peer=rate(numpy_through_time, WINDOW))
    if find_spec("torch"):
        yield BenchRow(name=name, value=ours, peer_name="PyTorch", peer=rate(torch_through_time(), WINDOW))


def device_rows() -> Iterator[BenchRow]:
    from reservoirpy.nodes import LMS, RLS

    jobs = (
        ("least squares", RecursiveLeastSquares(alpha=ALPHA), "reservoirpy RLS, software", RLS(alpha=ALPHA)),
        ("gradient", GradientStep(rate=RATE), "reservoirpy LMS, software", LMS(learning_rate=RATE)),
    )
    for name, rule, peer_name, node in jobs:
        peer = rate(reservoirpy_model(node))
        for profile in ("akd1000-published", "akd1000-claimed"):
            with EmulatedDevice(profile) as device, DeviceNetwork(WEIGHTS, device, calibration=U) as network:
                plan = plan_updates(profile, network)
                trainer = OnlineTrainer(network, rule, push_every=plan.every)
                yield BenchRow(
                    name=f"{name} on the emulator, push every {plan.every} (modelled: {plan.rate.value:.0f} steps/s)",
                    value=rate(lambda: trainer.run(U, Y)),
                    peer_name=peer_name,
                    peer=peer,
                )


def rows() -> Iterator[BenchRow]:
    with threadpool_limits(1):  # whoever loaded NumPy's BLAS first: a thread per step would be slower
        yield from readout_rows()
        yield from network_rows()
        yield from device_rows()
