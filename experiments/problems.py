"""The tasks of the hybrid experiments: each with a reservoir, training and test series, and baselines to beat.

- `seed`: Experiment 004's own. Labels +1 and -1 in turn, six inputs of 0.5 label + U(-0.3, 0.3), sign of the output
  against the label. Nearly memoryless and easy: it was scored with an untrained readout; here it is trained.
- `patterns`: four classes of noisy sequences that differ in the order of their motifs.
- `narma10` and `mackey-glass`: the field's usual series; ten steps of memory, and a chaotic forecast.
- `phase`: windows of lattice runs, confined or deconfined by the measured Polyakov loop (`phase_windows`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir.datasets import mackey_glass, narma, sequence_classification, to_forecasting
from metalforge.reservoir.generate import make_esn
from metalforge.reservoir.metrics import Interval, Proportion, wilson
from metalforge.reservoir.weights import EsnWeights

from .intervals import mean_interval, nrmse_interval
from .phase_windows import PhaseCorpusSpec, phase_windows
from .protocol import ResultRow, row_of

Metric: TypeAlias = Literal["accuracy", "nrmse"]
METRICS = ("accuracy", "nrmse")


Scores: TypeAlias = dict[tuple[str, str, bool], list[Proportion]]
"""(approach, precision, readout refitted) to a metric of every instance, with the number of cases behind it."""


def figure_of(scores: Sequence[Proportion], metric: Metric, *, shared_test: bool = False) -> Interval:
    """Return the figure of scores from several instances.

    Accuracies are pooled, with Wilson's interval for all cases, or for one instance's where they share their cases.
    NRMSEs are averaged, with Student's interval over the instances, or the only instance's own.
    """
    if metric == "accuracy":
        value = pooled(scores)
        cases = scores[0].n if shared_test else sum(s.n for s in scores)
        return Interval(value, *wilson(round(value * cases), cases)[1:3])
    return Interval(*scores[0][:3]) if len(scores) == 1 else mean_interval([s.value for s in scores])


def pooled(scores: Sequence[Proportion]) -> float:
    """Return the mean weighted by cases; of one score exactly its value."""
    cases = sum(s.n for s in scores)
    return float(sum(s.value * (s.n / cases) for s in scores))


UNITS = 128
QUICK_CORPUS = PhaseCorpusSpec(
    dims=(4, 4, 4, 2), train=(4.9, 5.05, 5.15, 5.3), test=(5.0, 5.2), warmup=40, updates=200, window=10
)
"""A lattice of Nt = 2, whose transition is near beta 5.09, small enough for seconds."""
Reals: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """One instance of a task. `baselines` are accuracies or NRMSEs of something simpler on the same test series."""

    name: str
    metric: Metric
    weights: EsnWeights
    train: Task
    test: Task
    baselines: dict[str, float]
    ridge: float = 1e-6
    shared_test: bool = False
    """Whether all instances have the same test series: then they add no cases to each other."""

    def score(self, outputs: Reals) -> Proportion:
        """Return the metric of readout rows on the test series."""
        test = self.test
        wanted = test.targets if test.classes else np.concatenate(list(test.targets[:, test.washout :]))
        if self.metric == "nrmse":
            return Proportion(*nrmse_interval(wanted, outputs, resamples=100), len(wanted))
        right = np.argmax(outputs, axis=1) == wanted if test.classes else (outputs >= 0) == (wanted > 0)
        return wilson(int(right.sum()), right.size)

    def baseline_scores(self, cases: int) -> dict[str, Proportion]:
        """Return what is simpler, by the name of its approach."""
        return {f"baseline: {name}": Proportion(value, value, value, cases) for name, value in self.baselines.items()}

    def rows(self, scores: Scores, reference: tuple[str, str, bool]) -> Iterator[ResultRow]:
        """Give a row for every approach, of all instances together; gaps are those to the reference."""
        usual, less = pooled(scores[reference]), self.metric != "accuracy"
        for (approach, precision, refitted), found in scores.items():
            figure = figure_of(found, self.metric, shared_test=self.shared_test)
            where = self.name, approach, self.metric
            yield row_of(*where, figure, usual, precision=precision, refit=refitted, less=less)


class Split(NamedTuple):
    """Labelled sequences to train on and to test with."""

    train: Task
    test: Task

    @classmethod
    def at(cls, n: int, inputs: Reals, labels: NDArray[np.int64]) -> "Split":
        """Return the first n sequences for training, the others for the test."""
        return cls(Task(inputs=inputs[:n], targets=labels[:n]), Task(inputs=inputs[n:], targets=labels[n:]))


def halves(u: Reals, y: Reals, washout: int) -> Split:
    """Return a series of which the first half trains and the second tests."""
    split = len(u) // 2
    parts = (slice(split), slice(split, None))
    return Split(*(Task(inputs=u[np.newaxis, p], targets=y[np.newaxis, p], washout=washout) for p in parts))


def simple_classifiers(data: Split, *, max_iter: int = 500) -> dict[str, float]:
    """Return the accuracies of the most frequent label, and of a logistic regression on the mean frame."""
    (train, labels), (test, wanted) = ((task.inputs.mean(axis=1), task.targets) for task in data)
    flat = LogisticRegression(max_iter=max_iter).fit(train, labels)
    majority = float(np.mean(wanted == np.bincount(labels).argmax()))
    return {"majority": majority, "logistic on the mean": float(flat.score(test, wanted))}


def ring(inputs: int, *, signs: Any, units: int, radius: float, input_scaling: float, leak: float) -> EsnWeights:
    """Return a ring of equal weights, inputs of one size and random sign, bounded ReLU with a bias towards mid-range.

    `signs` seeds the signs. (A. Rodan, P. Tino, IEEE Transactions on Neural Networks 22, 2011, 131.)
    """
    return EsnWeights(
        w_in=input_scaling * np.random.default_rng(signs).choice([-1.0, 1.0], (units, inputs)),
        w_res=np.roll(np.eye(units), 1, axis=0) * radius,
        bias=np.full(units, 0.5 * (1 - radius)),
        leak=leak,
        activation="bounded_relu",
    )


def _seed_task(seed: int, quick: bool) -> Problem:
    rng = np.random.default_rng([seed, 4])
    n = 200 if quick else 1100
    labels = np.where(np.arange(n) % 2, -1.0, 1.0)[:, np.newaxis]
    u = 0.5 * labels + rng.uniform(-0.3, 0.3, (n, 6))
    return Problem(
        name="seed",
        metric="accuracy",
        weights=make_esn(UNITS, 6, seed=seed, leak=0.3, spectral_radius=0.9, distribution="uniform", connectivity=1.0),
        **halves(u, labels, washout=50)._asdict(),
        baselines={"sign of the mean input": float(np.mean(np.sign(u.mean(axis=1)) == labels[:, 0]))},
    )


def _patterns(seed: int, quick: bool) -> Problem:
    n_train, n_test = (400, 400) if quick else (2000, 4000)
    x, y = sequence_classification(n_train + n_test, seed=seed)
    data = Split.at(n_train, x, y)
    weights = make_esn(UNITS, x.shape[2], seed=seed, input_scaling=0.3, leak=0.3, connectivity=1.0)
    return Problem(
        name="patterns",
        metric="accuracy",
        weights=weights,
        **data._asdict(),
        ridge=0.1,
        baselines=simple_classifiers(data),
    )


def _series(name: str, u: Reals, y: Reals, weights: EsnWeights) -> Problem:
    """Return a regression; repeating the last value is the baseline."""
    data = halves(u, y, washout=100)._asdict()
    split = len(u) // 2
    persistence = float(np.sqrt(np.mean((y[split:] - y[split - 1 : -1]) ** 2)) / y[split:].std())
    return Problem(name=name, metric="nrmse", weights=weights, baselines={"last value": persistence}, **data)


def _narma(seed: int, quick: bool) -> Problem:
    u, y = narma(500 if quick else 4000, seed=seed)
    weights = make_esn(UNITS, 1, seed=seed, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
    return _series("narma10", 2 * (u - 0.25), y, weights)


def _mackey_glass(seed: int, quick: bool) -> Problem:
    x = mackey_glass(500 if quick else 4000, seed=seed)
    u, y = to_forecasting((x - x.mean()) / np.abs(x - x.mean()).max(), 10)
    return _series("mackey-glass", u, y, make_esn(UNITS, 1, seed=seed, connectivity=1.0, leak=0.6, bias_scaling=0.2))


def _phase(seed: int, quick: bool) -> Problem:
    data = Split(
        *(Task(inputs=w.inputs, targets=w.labels) for w in phase_windows(QUICK_CORPUS if quick else PhaseCorpusSpec()))
    )
    inputs = data.train.inputs.shape[2]
    return Problem(
        name="phase",
        metric="accuracy",
        weights=make_esn(UNITS, inputs, seed=seed, input_scaling=0.3, connectivity=1.0, leak=0.5),
        **data._asdict(),
        ridge=1.0,
        shared_test=True,
        baselines=simple_classifiers(data, max_iter=100),
    )


PROBLEMS: dict[str, Callable[[int, bool], Problem]] = {
    "seed": _seed_task,
    "patterns": _patterns,
    "narma10": _narma,
    "mackey-glass": _mackey_glass,
    "phase": _phase,
}
"""Makers of problems from (seed, quick)."""
