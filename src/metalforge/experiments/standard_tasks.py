"""The field's standard tasks: each with two networks of 200 units, training and test series, and simpler models.

- `narma10`: ten steps of memory and a product (A. Atiya, A. Parlos, 2000).
- `mackey-glass 17, 84 ahead`: the chaotic series, sampled every 1; the value 84 samples ahead is read out directly.
- `lorenz, 10 ahead`: all three coordinates, sampled every 0.03; those 0.3 ahead.
- `vowel-like (synthetic)`: nine speakers by their way through two vowels, read from the last state (`vowels`).

Scales, radius, leak and bias were chosen by hand on seeds 100 to 102, which no table shows.
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
from metalforge.reservoir.flows import lorenz, mackey_glass
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import nrmse, nrmse_interval
from metalforge.reservoir.readout import Readout, select_ridge
from metalforge.reservoir.vowels import vowel_like
from metalforge.reservoir.weights import EsnWeights

from .scores import Metric, Score

__all__ = ["STANDARD_TASKS", "Network", "StandardTask", "best_readout", "ring"]

UNITS = 200
WASHOUT = 100
FOLDS = 4
RIDGES = tuple(float(r) for r in 10.0 ** np.arange(-9, 2))
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a network of a task is made with."""

    radius: float
    input_scaling: float
    bias: float
    leak: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandardTask:
    """One instance: `random` has tanh, `ring` a bounded ReLU and weights that four bits keep (experiment parity).

    `literature` is a published figure and how it was got, or why there is none. `baselines` hold for the test series.
    """

    name: str
    metric: Metric
    made_with: Network
    random: EsnWeights
    ring: EsnWeights
    train: Task
    test: Task
    baselines: dict[str, float]
    literature: str

    def score(self, outputs: Reals) -> Score:
        """Return the metric of readout rows on the test series."""
        if self.test.classes:
            right = np.argmax(outputs, axis=1) == self.test.targets
            return Score(*wilson(int(right.sum()), right.size))
        wanted = self.test.targets[0, self.test.washout :]
        return Score(*nrmse_interval(wanted, outputs, resamples=100), len(wanted))


def best_readout(features: Reals, targets: Reals) -> Readout:
    """Return a ridge readout; its penalty is the best of eleven, each quarter of the training rows left out in turn.

    One quarter alone would not do: a chaotic series may spend all of it in one place.
    """
    quarters = list(zip(np.array_split(features, FOLDS), np.array_split(targets, FOLDS), strict=True))
    return select_ridge(quarters, RIDGES).readout


def ring(inputs: int, *, seed: int, radius: float, input_scaling: float, leak: float, units: int = UNITS) -> EsnWeights:
    """Return a ring of equal weights, inputs of one size and random sign, bounded ReLU with a bias towards mid-range.

    (A. Rodan, P. Tino, IEEE Transactions on Neural Networks 22, 2011.)
    """
    signs = np.random.default_rng([seed, 11]).choice([-1.0, 1.0], (units, inputs))
    return EsnWeights(
        w_in=input_scaling * signs,
        w_res=np.roll(np.eye(units), 1, axis=0) * radius,
        bias=np.full(units, 0.5 * (1 - radius)),
        leak=leak,
        activation="bounded_relu",
    )


def _random(inputs: int, seed: int, made: Network) -> EsnWeights:
    return make_esn(
        UNITS,
        inputs,
        seed=seed,
        spectral_radius=made.radius,
        input_scaling=made.input_scaling,
        bias_scaling=made.bias,
        leak=made.leak,
        connectivity=1.0,
    )


def _series(
    name: str, u: Reals, y: Reals, made: Network, designed: EsnWeights, seed: int, lags: int, literature: str
) -> StandardTask:
    """Return a regression: the first half trains, the second tests."""
    split = len(u) // 2
    train, test = (
        Task(inputs=u[np.newaxis, part], targets=y[np.newaxis, part], washout=WASHOUT)
        for part in (slice(split), slice(split, None))
    )
    past = np.concatenate(
        [u[lags - 1 - k : len(u) - k] for k in range(lags)], axis=1
    )  # row t: steps up to t + lags - 1
    seen, wanted = past[WASHOUT - lags + 1 : split - lags + 1], y[WASHOUT:split]
    later = y[split + WASHOUT :]
    linear = best_readout(seen, wanted)(past[split + WASHOUT - lags + 1 :])
    return StandardTask(
        name=name,
        metric="nrmse",
        made_with=made,
        random=_random(u.shape[1], seed, made),
        ring=designed,
        train=train,
        test=test,
        baselines={
            f"linear on {lags} lags": nrmse(later, linear),
            "mean": nrmse(later, np.broadcast_to(wanted.mean(axis=0), later.shape)),
        },
        literature=literature,
    )


def _narma(seed: int, quick: bool) -> StandardTask:
    u, y = narma(600 if quick else 4000, seed=seed)
    return _series(
        "narma10",
        2 * (u - 0.25),
        y,
        Network(radius=0.9, input_scaling=0.3, bias=0.2, leak=1.0),
        ring(1, seed=seed, radius=0.9, input_scaling=0.2, leak=1.0),
        seed,
        50,
        "none under this protocol that we are sure of",
    )


def _mackey_glass(seed: int, quick: bool) -> StandardTask:
    x = (mackey_glass((600 if quick else 4000) + 84, seed=seed) - 0.93) / 0.4  # about mean 0 and within -1 .. 1
    return _series(
        "mackey-glass 17, 84 ahead",
        *to_forecasting(x, 84),
        Network(radius=0.9, input_scaling=1.0, bias=0.5, leak=0.5),
        ring(1, seed=seed, radius=0.95, input_scaling=0.4, leak=0.5),
        seed,
        50,
        "NRMSE84 about 10^-4.2: H. Jaeger, H. Haas, Science 304, 2004; 1000 units, run freely for 84 steps",
    )


def _lorenz(seed: int, quick: bool) -> StandardTask:
    x = lorenz((1200 if quick else 4000) + 10, seed=seed)
    return _series(
        "lorenz, 10 ahead",
        *to_forecasting((x - [0.0, 0.0, 23.5]) / [8.0, 9.0, 8.6], 10),  # about mean 0 and variance 1
        Network(radius=0.8, input_scaling=1.0, bias=0.0, leak=1.0),
        ring(3, seed=seed, radius=0.9, input_scaling=0.4, leak=1.0),
        seed,
        20,
        "none under this protocol that we are sure of",
    )


def _vowels(seed: int, quick: bool) -> StandardTask:
    train = 270
    x, y = vowel_like(train + (100 if quick else 740), seed=seed)
    made = Network(radius=0.9, input_scaling=0.3, bias=0.0, leak=0.1)
    simple = LogisticRegression(max_iter=500).fit(x[:train].mean(axis=1), y[:train])
    return StandardTask(
        name="vowel-like (synthetic)",
        metric="accuracy",
        made_with=made,
        random=_random(x.shape[2], seed, made),
        ring=ring(x.shape[2], seed=seed, radius=0.9, input_scaling=0.06, leak=0.1),
        train=Task(inputs=x[:train], targets=y[:train]),
        test=Task(inputs=x[train:], targets=y[train:]),
        baselines={
            "logistic on the mean frame": float(simple.score(x[train:].mean(axis=1), y[train:])),
            "majority": float(np.mean(y[train:] == np.bincount(y[:train]).argmax())),
        },
        literature="none: the sequences are synthetic",
    )


STANDARD_TASKS: dict[str, Callable[[int, bool], StandardTask]] = {
    "narma10": _narma,
    "mackey-glass 17, 84 ahead": _mackey_glass,
    "lorenz, 10 ahead": _lorenz,
    "vowel-like (synthetic)": _vowels,
}
"""Makers of tasks from (seed, quick)."""
