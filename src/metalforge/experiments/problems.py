"""The tasks of the hybrid experiments: each with a reservoir, training and test series, and baselines to beat.

- `seed`: Experiment 004's own. Labels +1 and -1 in turn, six inputs of 0.5 label + U(-0.3, 0.3), sign of the output
  against the label. Nearly memoryless and easy: it was scored with an untrained readout; here it is trained.
- `patterns`: four classes of noisy sequences that differ in the order of their motifs.
- `narma10` and `mackey-glass`: the field's usual series; ten steps of memory, and a chaotic forecast.
- `phase`: windows of lattice runs, confined or deconfined by the measured Polyakov loop (`corpus`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir.accuracy import wilson
from metalforge.reservoir.datasets import narma, to_forecasting
from metalforge.reservoir.flows import mackey_glass
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import nrmse_interval
from metalforge.reservoir.sequences import sequence_classification
from metalforge.reservoir.weights import EsnWeights

from .corpus import CorpusSpec, phase_windows
from .scores import Metric, Score

__all__ = ["PROBLEMS", "Problem"]

UNITS = 128
QUICK_CORPUS = CorpusSpec(
    dims=(4, 4, 4, 2), train=(4.9, 5.05, 5.15, 5.3), test=(5.0, 5.2), warmup=40, updates=200, window=10
)
"""A lattice of Nt = 2, whose transition is near beta 5.09, small enough for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """One instance of a task. `baselines` are accuracies or NRMSEs of something simpler on the same test series."""

    name: str
    metric: Metric
    weights: EsnWeights
    train: Task
    test: Task
    ridge: float
    baselines: dict[str, float]
    shared_test: bool = False
    """Whether all instances have the same test series: then they add no cases to each other."""

    def score(self, outputs: NDArray[Any]) -> Score:
        """Return the metric of readout rows on the test series."""
        test = self.test
        if test.classes:
            return _accuracy(np.argmax(outputs, axis=1) == test.targets)
        wanted = np.concatenate(list(test.targets[:, test.washout :]))
        if self.metric == "accuracy":
            return _accuracy((outputs >= 0) == (wanted > 0))
        return Score(*nrmse_interval(wanted, outputs, resamples=100), len(wanted))


def _accuracy(right: NDArray[np.bool_]) -> Score:
    return Score(*wilson(int(right.sum()), right.size))


def _seed_task(seed: int, quick: bool) -> Problem:
    rng = np.random.default_rng([seed, 4])
    n = 200 if quick else 1100
    labels = np.where(np.arange(n) % 2, -1.0, 1.0)[:, np.newaxis]
    u = 0.5 * labels + rng.uniform(-0.3, 0.3, (n, 6))
    split = n // 2
    weights = make_esn(UNITS, 6, seed=seed, leak=0.3, spectral_radius=0.9, distribution="uniform", connectivity=1.0)
    return Problem(
        name="seed",
        metric="accuracy",
        weights=weights,
        train=Task(inputs=u[np.newaxis, :split], targets=labels[np.newaxis, :split], washout=50),
        test=Task(inputs=u[np.newaxis, split:], targets=labels[np.newaxis, split:], washout=50),
        ridge=1e-6,
        baselines={"sign of the mean input": float(np.mean(np.sign(u.mean(axis=1)) == labels[:, 0]))},
    )


def _patterns(seed: int, quick: bool) -> Problem:
    n_train, n_test = (400, 400) if quick else (2000, 4000)
    data = sequence_classification(n_train + n_test, seed=seed)
    weights = make_esn(UNITS, data.inputs.shape[2], seed=seed, input_scaling=0.3, leak=0.3, connectivity=1.0)
    x, y = data.inputs, data.labels
    flat = LogisticRegression(max_iter=500).fit(x[:n_train].mean(axis=1), y[:n_train])
    return Problem(
        name="patterns",
        metric="accuracy",
        weights=weights,
        train=Task(inputs=x[:n_train], targets=y[:n_train]),
        test=Task(inputs=x[n_train:], targets=y[n_train:]),
        ridge=0.1,
        baselines={
            "majority": float(np.mean(y[n_train:] == np.bincount(y[:n_train]).argmax())),
            "logistic on the mean": float(flat.score(x[n_train:].mean(axis=1), y[n_train:])),
        },
    )


def _series(name: str, u: NDArray[np.float64], y: NDArray[np.float64], weights: EsnWeights, ridge: float) -> Problem:
    """Return a regression: the first half trains, the second tests; repeating the last value is the baseline."""
    split = len(u) // 2
    persistence = np.sqrt(np.mean((y[split:] - y[split - 1 : -1]) ** 2)) / y[split:].std()
    return Problem(
        name=name,
        metric="nrmse",
        weights=weights,
        train=Task(inputs=u[np.newaxis, :split], targets=y[np.newaxis, :split], washout=100),
        test=Task(inputs=u[np.newaxis, split:], targets=y[np.newaxis, split:], washout=100),
        ridge=ridge,
        baselines={"last value": float(persistence)},
    )


def _narma(seed: int, quick: bool) -> Problem:
    u, y = narma(500 if quick else 4000, seed=seed)
    weights = make_esn(UNITS, 1, seed=seed, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
    return _series("narma10", 2 * (u - 0.25), y, weights, 1e-6)


def _mackey_glass(seed: int, quick: bool) -> Problem:
    x = mackey_glass(500 if quick else 4000, seed=seed)
    u, y = to_forecasting((x - x.mean()) / np.abs(x - x.mean()).max(), 10)
    weights = make_esn(UNITS, 1, seed=seed, connectivity=1.0, leak=0.6, bias_scaling=0.2)
    return _series("mackey-glass", u, y, weights, 1e-6)


def _phase(seed: int, quick: bool) -> Problem:
    train, test = phase_windows(QUICK_CORPUS if quick else CorpusSpec())
    weights = make_esn(UNITS, train.inputs.shape[2], seed=seed, input_scaling=0.3, connectivity=1.0, leak=0.5)
    flat = LogisticRegression().fit(train.inputs.mean(axis=1), train.labels)
    return Problem(
        name="phase",
        metric="accuracy",
        weights=weights,
        train=Task(inputs=train.inputs, targets=train.labels),
        test=Task(inputs=test.inputs, targets=test.labels),
        ridge=1.0,
        shared_test=True,
        baselines={
            "majority": float(np.mean(test.labels == np.bincount(train.labels).argmax())),
            "logistic on the mean": float(flat.score(test.inputs.mean(axis=1), test.labels)),
        },
    )


PROBLEMS: dict[str, Callable[[int, bool], Problem]] = {
    "seed": _seed_task,
    "patterns": _patterns,
    "narma10": _narma,
    "mackey-glass": _mackey_glass,
    "phase": _phase,
}
"""Makers of problems from (seed, quick)."""
