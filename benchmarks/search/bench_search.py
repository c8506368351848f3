"""Candidates a second on NARMA10 against the same job in reservoirpy and in NumPy, in one run.

A candidate is 100 units: states of 12 series of 350 steps, a ridge solve of 2,000 rows, the error on 1,000 others.
Floor: 4,200 steps x 2 x 100 x 101 = 85 Mflop of states in float32, and in float64 the symmetric half of 2 x 2,000 x
100 x 100 = 20 Mflop of sums, 0.3 Mflop of a Cholesky factorisation and 0.2 Mflop of predictions. The ceiling is
candidates per second if only those cost time, at the measured peaks of multiply-adds. Activations (420,000 of them),
centring and conversions are not in it.

Peers get the networks ready made and are given what suits them: reservoirpy its float64, NumPy all series as one batch.
They run on one thread, and the first two rows do so too; these count CPU seconds, for a candidate takes long enough to
be disturbed on a shared machine. A study asks Optuna besides, the same sampler on both sides, and counts wall time on
all cores: that it can use them is part of the comparison, for the peers hold the interpreter while they run.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import optuna
from threadpoolctl import threadpool_limits

from benchmarks.rows import BenchRow
from metalforge.core import Measured
from metalforge.core.threads import one_thread
from metalforge.hybrid.search import Parameters, Space, build, run_study, search_task
from metalforge.hybrid.search.candidates import Candidate
from metalforge.hybrid.search.study import quiet
from metalforge.native import kernels, thread_count
from metalforge.reservoir.metrics import nrmse

UNITS, POINTS, ROUNDS = 100, 4, 40
STATE_FLOPS = 4200 * 2 * UNITS * (UNITS + 1)
SOLVE_FLOPS = 2000 * UNITS * UNITS + UNITS**3 / 3 + 2 * 1000 * UNITS
TASK = search_task("narma10")


def points(count: int = POINTS) -> list[Parameters]:
    rng = np.random.default_rng(1)
    return [
        Parameters(
            units=UNITS,
            spectral_radius=rng.uniform(0.5, 1.1),
            leak=rng.uniform(0.5, 1.0),
            input_scaling=rng.uniform(0.02, 0.5),
            bias_scaling=rng.uniform(0.0, 0.5),
            connectivity=1.0,
            activation="tanh",
            ridge=1e-4,
        )
        for _ in range(count)
    ]


def evaluate_many(drawn: Sequence[Parameters], threads: int | None = None) -> list[float]:
    """Return the validation error of each candidate on all the data, without any search."""
    with one_thread(), ThreadPoolExecutor(max_workers=thread_count(threads)) as pool:
        return list(pool.map(lambda parameters: Candidate(parameters, TASK, 1).finish(), drawn))


def fastest(work: Callable[[], object], rounds: int = ROUNDS, clock: Callable[[], float] = time.process_time) -> float:
    """Return the fewest seconds of a call; CPU time unless another clock is given."""
    best = float("inf")
    work()
    for _ in range(rounds):
        start = clock()
        work()
        best = min(best, clock() - start)
    return best


def rate(count: int, seconds: float, how: str) -> Measured:
    return Measured(value=count / seconds, unit="candidate/s", how=how)


def with_reservoirpy(p: Parameters) -> float:
    """The job as reservoirpy's own examples write it: run, fit, predict, over lists of series."""
    from reservoirpy.nodes import Reservoir, Ridge

    w = build(p, TASK.inputs, seed=1).astype(np.float64)
    reservoir = Reservoir(units=w.units, lr=w.leak, W=w.w_res, Win=w.w_in, bias=w.bias)
    readout = Ridge(ridge=p.ridge)

    def states(inputs: np.ndarray) -> list[np.ndarray]:
        return [x[TASK.training.washout :] for x in reservoir.run(list(inputs.astype(np.float64)))]

    washout = TASK.training.washout
    readout.fit(states(TASK.training.inputs), list(TASK.training.targets[:, washout:].astype(np.float64)))
    said = [readout.run(x) for x in states(TASK.validation.inputs)]
    return nrmse(TASK.validation.counted(TASK.validation.targets), np.concatenate(said))


def with_numpy(p: Parameters) -> float:
    """The job in arrays: all series as one batch, float32 states, normal equations in float64."""
    w = build(p, TASK.inputs, seed=1)
    keep, leak = np.float32(1 - w.leak), np.float32(w.leak)
    w_in, w_res = np.ascontiguousarray(w.w_in.T), np.ascontiguousarray(w.w_res.T)
    inputs = np.concatenate([TASK.training.inputs, TASK.validation.inputs])
    s = np.zeros((len(inputs), w.units), np.float32)
    states = np.empty((*inputs.shape[:2], w.units), np.float32)
    for t in range(inputs.shape[1]):
        s = keep * s + leak * np.tanh(inputs[:, t] @ w_in + s @ w_res + w.bias)
        states[:, t] = s
    cut = len(TASK.training.inputs)
    x, y = (TASK.training.counted(a).astype(np.float64) for a in (states[:cut], TASK.training.targets))
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    x, y = x - mean_x, y - mean_y
    weights = np.linalg.solve(x.T @ x + p.ridge * np.eye(w.units), x.T @ y)
    said = (TASK.validation.counted(states[cut:]) - mean_x) @ weights + mean_y
    return nrmse(TASK.validation.counted(TASK.validation.targets), said)


def ceiling(threads: int = 1) -> Measured:
    module, rounds = kernels(), 20_000
    single = module.fma_f32(rounds, 1) / fastest(lambda: module.fma_f32(rounds, 1), 50)
    # Half as many lanes in double precision.
    seconds = STATE_FLOPS / single + SOLVE_FLOPS / (single / 2)
    return rate(threads, seconds, "counted flops at the measured FMA peak")


def evaluation_rows() -> Iterator[BenchRow]:
    drawn = points()
    ours = fastest(lambda: evaluate_many(drawn, threads=1))
    peers = {"reservoirpy f64": (with_reservoirpy, 10), "NumPy f32": (with_numpy, ROUNDS)}
    same = evaluate_many(drawn[:2])
    for name, (job, rounds) in peers.items():
        assert np.allclose([job(p) for p in drawn[:2]], same, rtol=1e-2), f"{name} does another job"
        seconds = fastest(lambda: job(drawn[0]), rounds)
        yield BenchRow(
            name="candidates, 100 units, 1 thread",
            value=rate(len(drawn), ours, f"CPU time, best of {ROUNDS}"),
            peer_name=name,
            peer=rate(1, seconds, f"CPU time, best of {rounds}"),
            ceiling_name="FMA",
            ceiling=ceiling(),
        )


def study_rows() -> Iterator[BenchRow]:
    """A whole study: suggestions, pruning and all, against Optuna's own loop around reservoirpy."""
    space = Space(units=(UNITS, UNITS, 1), connectivity=(1.0,), activation=("tanh",))
    count, few = 256, 24
    ours = fastest(lambda: run_study(TASK, trials=count, space=space), 2, time.perf_counter)

    def objective(trial: optuna.Trial) -> float:
        return with_reservoirpy(
            Parameters(
                units=UNITS,
                spectral_radius=trial.suggest_float("spectral_radius", *space.spectral_radius),
                leak=trial.suggest_float("leak", *space.leak),
                input_scaling=trial.suggest_float("input_scaling", *space.input_scaling, log=True),
                bias_scaling=trial.suggest_float("bias_scaling", *space.bias_scaling),
                connectivity=1.0,
                activation="tanh",
                ridge=trial.suggest_float("ridge", *space.ridge, log=True),
            )
        )

    with quiet():
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, multivariate=True))
        theirs = fastest(lambda: study.optimize(objective, n_trials=few), 1, time.perf_counter)
    yield BenchRow(
        name=f"study of {count} candidates with Optuna, all cores",
        value=rate(count, ours, "best of 2"),
        peer_name="Optuna + reservoirpy",
        peer=rate(few, theirs, "1 thread"),
    )


def rows() -> Iterator[BenchRow]:
    with threadpool_limits(1):
        yield from evaluation_rows()
        yield from study_rows()
