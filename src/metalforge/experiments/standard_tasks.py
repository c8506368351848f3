"""The field's standard tasks: each with two networks of 200 units, training and test series, and simpler models.

- `narma10`: ten steps of memory and a product (A. Atiya, A. Parlos, 2000).
- `mackey-glass 17, 84 ahead`: the chaotic series, sampled every 1; the value 84 samples ahead is read out directly.
- `lorenz, 10 ahead`: all three coordinates, sampled every 0.03; those 0.3 ahead.
- `vowel-like (synthetic)`: nine speakers by their way through two vowels, read from the last state (`vowels`).

Scales, radius, leak and bias were chosen by hand on seeds 100 to 102, which no table shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.reservoir.datasets import lorenz, mackey_glass, narma, to_forecasting, vowel_like
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.readout import Readout, select_ridge
from metalforge.reservoir.weights import EsnWeights

from . import problems
from .problems import Problem, Split, halves, simple_classifiers

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

    def made(self, inputs: int, seed: int) -> EsnWeights:
        """Return it with random weights and tanh."""
        return make_esn(
            UNITS,
            inputs,
            seed=seed,
            spectral_radius=self.radius,
            input_scaling=self.input_scaling,
            bias_scaling=self.bias,
            leak=self.leak,
            connectivity=1.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StandardTask(Problem):
    """One instance: `weights` have tanh, `ring` a bounded ReLU and weights that four bits keep (experiment parity).

    `literature` is a published figure and how it was got, or why there is none. `baselines` hold for the test series.
    """

    made_with: Network
    ring: EsnWeights
    literature: str = "none under this protocol that we are sure of"


def best_readout(features: Reals, targets: Reals) -> Readout:
    """Return a ridge readout; its penalty is the best of eleven, each quarter of the training rows left out in turn.

    One quarter alone would not do: a chaotic series may spend all of it in one place.
    """
    quarters = list(zip(np.array_split(features, FOLDS), np.array_split(targets, FOLDS), strict=True))
    return select_ridge(quarters, RIDGES).readout


def ring(inputs: int, *, seed: int, radius: float, input_scaling: float, leak: float, units: int = UNITS) -> EsnWeights:
    """Return a ring whose signs come from the seed."""
    return problems.ring(inputs, signs=[seed, 11], units=units, radius=radius, input_scaling=input_scaling, leak=leak)


def _series(name: str, u: Reals, y: Reals, made: Network, designed: EsnWeights, seed: int, lags: int) -> StandardTask:
    """Return a regression; its baselines are linear on the last steps, and the mean."""
    split = len(u) // 2
    data = halves(u, y, WASHOUT)
    # Row t holds the steps up to t + lags - 1.
    past = np.concatenate([u[lags - 1 - k : len(u) - k] for k in range(lags)], axis=1)
    seen, wanted = past[WASHOUT - lags + 1 : split - lags + 1], y[WASHOUT:split]
    later = y[split + WASHOUT :]
    linear = best_readout(seen, wanted)(past[split + WASHOUT - lags + 1 :])
    return StandardTask(
        name=name,
        metric="nrmse",
        made_with=made,
        weights=made.made(u.shape[1], seed),
        ring=designed,
        train=data.train,
        test=data.test,
        baselines={
            f"linear on {lags} lags": nrmse(later, linear),
            "mean": nrmse(later, np.broadcast_to(wanted.mean(axis=0), later.shape)),
        },
    )


def _narma(seed: int, quick: bool) -> StandardTask:
    u, y = narma(600 if quick else 4000, seed=seed)
    made = Network(radius=0.9, input_scaling=0.3, bias=0.2, leak=1.0)
    designed = ring(1, seed=seed, radius=0.9, input_scaling=0.2, leak=1.0)
    return _series("narma10", 2 * (u - 0.25), y, made, designed, seed, 50)


def _mackey_glass(seed: int, quick: bool) -> StandardTask:
    x = (mackey_glass((600 if quick else 4000) + 84, seed=seed) - 0.93) / 0.4  # about mean 0 and within -1 .. 1
    made = Network(radius=0.9, input_scaling=1.0, bias=0.5, leak=0.5)
    designed = ring(1, seed=seed, radius=0.95, input_scaling=0.4, leak=0.5)
    task = _series("mackey-glass 17, 84 ahead", *to_forecasting(x, 84), made, designed, seed, 50)
    published = "NRMSE84 about 10^-4.2: H. Jaeger, H. Haas, Science 304, 2004; 1000 units, run freely for 84 steps"
    return replace(task, literature=published)


def _lorenz(seed: int, quick: bool) -> StandardTask:
    x = lorenz((1200 if quick else 4000) + 10, seed=seed)
    made = Network(radius=0.8, input_scaling=1.0, bias=0.0, leak=1.0)
    designed = ring(3, seed=seed, radius=0.9, input_scaling=0.4, leak=1.0)
    scaled = (x - [0.0, 0.0, 23.5]) / [8.0, 9.0, 8.6]  # about mean 0 and variance 1
    return _series("lorenz, 10 ahead", *to_forecasting(scaled, 10), made, designed, seed, 20)


def _vowels(seed: int, quick: bool) -> StandardTask:
    x, y = vowel_like(270 + (100 if quick else 740), seed=seed)
    data = Split.at(270, x, y)
    made = Network(radius=0.9, input_scaling=0.3, bias=0.0, leak=0.1)
    majority, logistic = simple_classifiers(data).values()
    return StandardTask(
        name="vowel-like (synthetic)",
        metric="accuracy",
        made_with=made,
        weights=made.made(x.shape[2], seed),
        ring=ring(x.shape[2], seed=seed, radius=0.9, input_scaling=0.06, leak=0.1),
        train=data.train,
        test=data.test,
        baselines={"logistic on the mean frame": logistic, "majority": majority},
        literature="none: the sequences are synthetic",
    )


STANDARD_TASKS: dict[str, Callable[[int, bool], StandardTask]] = {
    "narma10": _narma,
    "mackey-glass 17, 84 ahead": _mackey_glass,
    "lorenz, 10 ahead": _lorenz,
    "vowel-like (synthetic)": _vowels,
}
"""Makers of tasks from (seed, quick)."""
