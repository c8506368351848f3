"""Echo state networks as scikit-learn estimators: `fit`, `partial_fit`, `predict`, `score`, over `training`.

What X may be:

- (T, features): one series of T steps, or T series of one step; parameter `rows` says which;
- (series, T, features), or a list of (T_i, features): several series, each of which starts from rest. Parameter
  `layout` says whether they come as (T, features), "steps_first", or as (channels, T), "channels_first": the form of
  aeon. By default, series of different lengths tell their layout, and others are taken as "steps_first" unless they
  have more features than steps, which is refused: say which it is.

What y is, by parameter `target`: "step", one target for every step, in the form of X; "series", one for every series,
which the readout sees at its last step. scikit-learn's own tools split such lists by series (GridSearchCV and others).

With `rows="samples"` a row meets no other row, and an estimator keeps every promise of scikit-learn. With
`rows="time"` rows are steps of one history: their order matters and a subset is another history, as it must be.

docs/tables/classifier.md has what the defaults of `EsnClassifier` are worth, and what they would be without each part.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from metalforge.core import Reals

from .activations import ACTIVATIONS
from .generate import make_esn
from .online import learn
from .readout import NormalEquations, Pair, select_ridge
from .running import predict as run_outputs
from .series import LAYOUTS, SeriesError, found_layout, like_given, steps_first
from .training import collect
from .weights import EsnWeights

Targets: TypeAlias = list[NDArray[Any]]
FOLDS = 10
"""Groups of series that are left out in turn when `ridge` is a list; each series alone where there are fewer."""
RIDGES = tuple(10.0**k for k in range(-8, 4))
SLOW, PROMPT = 0.1, 1.0
"""Leak of a network that is read once a series, and of one that is read at every step."""
FLAT, SATURATED = 0.01, 0.5
"""A unit is saturated where its activation's slope is below the first; a warning comes above this share of them."""
LOOKED_AT = 1000
"""Steps that are looked at for that, more or less."""
NETWORK = ("spectral_radius", "leak", "input_scaling", "bias_scaling", "connectivity", "activation", "kind")
"""Parameters that `make_esn` has under the same names."""
SIGMOIDS = ("tanh", "piecewise_tanh", "sigmoid")
"""Those with two flat ends; the others are flat or straight by design."""


class SaturatedInputsWarning(UserWarning):
    """Inputs drive most units to the flat ends of their activation, where they say little but their sign."""


@dataclass(eq=False, repr=False)
class _Esn(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share: parameters, series, and a readout that can go on learning.

    `ROWS` and `TARGET` are what `rows` and `target` mean when they are None.
    """

    ROWS: ClassVar[str] = "time"
    TARGET: ClassVar[str] = "step"

    units: int = 100
    _: KW_ONLY
    spectral_radius: float = 0.9
    leak: float | None = None
    standardise: bool = False
    input_scaling: float = 1.0
    bias_scaling: float = 0.0
    connectivity: float = 0.1
    activation: str = "tanh"
    kind: str = "dense"
    passthrough: bool = False
    feedback: bool = False
    ridge: float | Sequence[float] = 1e-6
    washout: int = 0
    rule: Any = None
    weights: EsnWeights | None = None
    rows: str | None = None
    target: str | None = None
    layout: str | None = None
    dtype: Any = "float64"
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803  # scikit-learn's name
        """Return self, with a new network and its readout, of a classifier to the classes in y."""
        return self._take(X, y, anew=True)

    def _take(self, X: Any, y: Any, *, anew: bool, classes: ArrayLike | None = None) -> Self:  # noqa: N803
        """Learn from series, with a new network when `anew`."""
        series, labels = self._labelled(X, y, reset=anew)
        targets = self._encoded(labels, anew, classes)
        if anew:
            self._start(series, targets[0].shape[1], one_each=self._one_each(X))
        self._learn(series, targets, one_each=self._one_each(X))
        return self

    @abstractmethod
    def _encoded(self, labels: Targets, anew: bool, classes: ArrayLike | None) -> Targets:
        """Return the targets of the readout for each series, (rows, outputs)."""

    def _steps_first(self, X: Any, *, reset: bool) -> Any:  # noqa: N803  # scikit-learn's name
        """X with its series as (T_i, features); the first fit finds the layout."""
        if self.layout not in (None, *LAYOUTS):
            raise SeriesError(f"`layout` must be one of {', '.join(LAYOUTS)}, or None. Got {self.layout!r}")
        several = _several(X)
        if reset:
            self.layout_ = self.layout or (found_layout(X) if several else "steps_first")
        return steps_first(X, self.layout_) if several else X

    def _series(self, X: Any, *, reset: bool) -> list[Reals]:  # noqa: N803  # scikit-learn's name
        """X as a list of series (T_i, features); features are counted when `reset`, else compared."""
        if self.rows not in (None, "time", "samples") or self.target not in (None, "step", "series"):
            raise SeriesError(
                "`rows` must be time or samples, `target` step or series. "
                f"Got rows={self.rows!r}, target={self.target!r}"
            )
        if not _several(X):
            table = validate_data(self, X, reset=reset, dtype=np.float64)
            return [table] if (self.rows or self.ROWS) == "time" else list(table[:, None, :])
        series = [check_array(one, dtype=np.float64, input_name=f"X[{i}]") for i, one in enumerate(X)]
        if reset:
            self.n_features_in_ = series[0].shape[1]
        for i, one in enumerate(series):
            if one.shape[1] != self.n_features_in_:
                raise SeriesError(f"X[{i}] has {one.shape[1]} features, {self.n_features_in_} are wanted")
        return series

    def _labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[list[Reals], Targets]:  # noqa: N803
        """Series, and for each its targets as they came: as many as steps, or one."""
        X = self._steps_first(X, reset=reset)  # noqa: N806
        if not _several(X):
            real = is_regressor(self)
            _, y = validate_data(self, X, y, reset=reset, dtype=np.float64, multi_output=real, y_numeric=real)
        elif y is None:
            raise SeriesError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        series = self._series(X, reset=reset)
        if self._one_each(X):
            targets = [np.asarray(one)[None] for one in y]
        else:
            targets = [np.asarray(one) for one in (y if _several(X) else [y])]
        if len(targets) != len(series):
            raise SeriesError(
                f"y must hold targets of {len(series)} series, as X does. Got {len(targets)}"
                "\nhint: target='step' takes a target for every step, target='series' one for every series"
            )
        return series, targets

    def _one_each(self, X: Any) -> bool:  # noqa: N803
        """Whether every series has one target; a series of one step has no more."""
        of_series = (self.target or self.TARGET) == "series"
        return of_series or ((self.rows or self.ROWS) == "samples" and not _several(X))

    def _start(self, series: list[Reals], outputs: int, *, one_each: bool) -> None:
        """Make the network; forget what was learned."""
        inputs = self.n_features_in_
        self.equations_: NormalEquations | None = None
        self.rule_state_: Any = None
        self.ridge_: Any = None
        if self.weights is not None:
            if self.weights.inputs != inputs:
                raise SeriesError(f"`weights` take {self.weights.inputs} inputs. Got X of {inputs} features")
            self.weights_ = self.weights
            return
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = int(check_random_state(seed).randint(np.iinfo(np.int32).max))
        asked: dict[str, Any] = {name: getattr(self, name) for name in NETWORK}
        if self.leak is None:
            asked["leak"] = SLOW if one_each else PROMPT
        feedback = outputs if self.feedback else 0
        made = make_esn(self.units, inputs, seed=int(seed), feedback=feedback, dtype=np.dtype(self.dtype), **asked)
        self.weights_ = _standardised(made, np.concatenate(series)) if self.standardise else made

    def _learn(self, series: list[Reals], targets: Targets, *, one_each: bool) -> None:
        """Go on learning: by the rule, or by exact sums that a later call adds to."""
        self._warn_where_saturated(series)
        pairs = collect(
            self.weights_,
            series,
            np.concatenate(targets) if one_each else targets,
            washout=self.washout,
            passthrough=self.passthrough,
            last_state_only=one_each,
        )
        w_out, out_bias = self._by_rule(pairs) if self.rule is not None else self._by_ridge(pairs)
        ridge = self.ridge_ if self.rule is None else None
        self.weights_ = self.weights_.with_readout(w_out, out_bias, passthrough=self.passthrough, ridge=ridge)

    def _by_rule(self, pairs: Iterator[Pair]) -> tuple[Reals, Reals]:
        for features, wanted in pairs:
            self.rule_state_, _ = learn(self.rule, features, wanted, self.rule_state_)
        return self.rule_state_.w_out, self.rule_state_.out_bias

    def _by_ridge(self, pairs: Iterable[Pair]) -> tuple[Reals, Reals]:
        if not isinstance(self.ridge, Sequence | np.ndarray):
            self.ridge_ = float(self.ridge)
        elif self.equations_ is None:  # what was chosen once holds for the series that follow
            pairs = list(pairs)
            self.ridge_ = _chosen_ridge(pairs, self.ridge)
        self.equations_ = NormalEquations.of(pairs, start=self.equations_)
        readout = self.equations_.solve([self.ridge_])[0]
        return readout.w_out, readout.out_bias

    def _warn_where_saturated(self, series: list[Reals]) -> None:
        """Warn where inputs alone, on average over steps, put most units where their activation is flat."""
        weights = self.weights_
        if weights.activation not in SIGMOIDS:
            return
        steps = np.concatenate(series)
        drive = steps[:: max(len(steps) // LOOKED_AT, 1)] @ weights.w_in.T + weights.bias
        share = float(np.mean(ACTIVATIONS[weights.activation].derivative(drive) < FLAT))
        if share > SATURATED:
            warnings.warn(
                f"inputs saturate {100 * share:.0f} % of the units: they tell little more than signs"
                "\nhint: standardise=True when fitting, a smaller `input_scaling`, or inputs in the units of the fit",
                SaturatedInputsWarning,
                stacklevel=4,
            )

    def _outputs(self, X: Any, finish: Callable[[Reals], NDArray[Any]]) -> Any:  # noqa: N803
        """Outputs in the form of X; `finish` makes what the user sees of rows (rows, outputs)."""
        check_is_fitted(self, "weights_")
        X = self._steps_first(X, reset=False)  # noqa: N806
        series = self._series(X, reset=False)
        self._warn_where_saturated(series)
        if self._one_each(X):
            return finish(run_outputs(self.weights_, series, last_state_only=True))
        results = [finish(rows) for rows in run_outputs(self.weights_, series)]
        return like_given(X, results) if _several(X) else results[0]

    def _scored(self, X: Any, y: Any, measure: Callable[..., float], sample_weight: Any) -> float:  # noqa: N803
        """A measure over the steps past the washout of all series, or over the series."""
        said = self.predict(X)
        if self._one_each(X):
            return float(measure(y, said, sample_weight=sample_weight))
        if not _several(X):
            said, y = [said], [np.asarray(y)]
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[self.washout :]
        wanted = np.concatenate([np.asarray(one)[self.washout :] for one in y])
        return float(measure(wanted, np.concatenate([r[self.washout :] for r in said]), sample_weight=sample_weight))


class EsnRegressor(RegressorMixin, _Esn):  # type: ignore[misc]
    """An echo state network with a ridge readout, for real targets.

    Parameters are those of `make_esn` and `training.fit`. `weights` takes a ready network in place of a random one.
    `leak` None is 1 with a target for every step and 0.1 with one for every series, whose end must remember it.
    `standardise` makes the network see inputs of mean 0 and variance 1 over the steps of the first fit, all features
    together: it is in its input weights and bias, so that `weights_` take inputs as they are.
    `ridge` may be a list, from which groups of series that are left out in turn choose. `rule` (`online.Lms` or
    `online.Rls`) learns row by row in place of the exact solution. `feedback` lets the network hear its targets while
    it learns and its own outputs after. `rows` None is "time", `target` None is "step".

    The module says what X and y may be. Targets and outputs of steps are (series, steps, outputs) in any layout.

    Learned: `weights_` (an `EsnWeights` with its readout), `n_features_in_`, `layout_`; `ridge_` without a rule.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Return self after more series, which start from rest; without a rule the same as one `fit` of them all."""
        return self._take(X, y, anew=not hasattr(self, "weights_"))

    def _encoded(self, labels: Targets, anew: bool, classes: ArrayLike | None) -> Targets:
        if anew:
            self.single_output_ = labels[0].ndim == 1
        return [one[:, None] if one.ndim == 1 else one for one in labels]

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return outputs in the form of X: for each step, or with target="series" for each series."""
        return self._outputs(X, lambda rows: rows[:, 0] if self.single_output_ else rows)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R^2 over all series, without the first `washout` steps of each."""
        return self._scored(X, y, r2_score, sample_weight)


@dataclass(eq=False, repr=False)
class EsnClassifier(ClassifierMixin, _Esn):  # type: ignore[misc]
    """An echo state network with a ridge readout to one output a class; the largest names the class.

    Parameters are those of `EsnRegressor` with defaults for data of any unit: inputs are standardised, the ridge is
    chosen. `rows` None is "samples" and `target` None is "series". One table with a label for every step is
    `rows="time", target="step"`.

    Learned: `classes_`, `weights_` (an `EsnWeights` with its readout), `n_features_in_`, `layout_`; `ridge_` without a
    rule.
    """

    ROWS: ClassVar[str] = "samples"
    TARGET: ClassVar[str] = "series"

    _: KW_ONLY
    standardise: bool = True
    input_scaling: float = 0.5
    bias_scaling: float = 0.5
    ridge: float | Sequence[float] = RIDGES

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:  # noqa: N803
        """Return self after more series; the first call names all `classes`, or they are those in its y."""
        return self._take(X, y, anew=not hasattr(self, "weights_"), classes=classes)

    def _encoded(self, labels: Targets, anew: bool, classes: ArrayLike | None) -> Targets:
        if any(one.ndim != 1 for one in labels):
            raise SeriesError("y must hold one label for every step, or for every series with target='series'")
        every = np.concatenate(labels)
        check_classification_targets(every)
        if anew:
            self.classes_ = np.unique(every if classes is None else np.asarray(classes))
        strangers = np.setdiff1d(every, self.classes_)
        if len(strangers):
            raise SeriesError(f"y must hold the classes {self.classes_.tolist()}. Got {strangers.tolist()} too")
        return [np.equal.outer(one, self.classes_).astype(np.float64) for one in labels]

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the class of each series, or with target="step" of each step."""
        return self._outputs(X, lambda rows: self.classes_[np.argmax(rows, axis=1)])

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return a probability for each class: the distribution nearest to the outputs.

        Least squares to zeros and ones estimates P(class | x), and with a bias the outputs add up to 1, but some may
        be negative. The nearest point of the simplex keeps their order; a softmax would flatten 0 and 1 to 0.27 and
        0.73. scikit-learn's CalibratedClassifierCV helps where the numbers themselves matter.
        """
        return self._outputs(X, _nearest_distribution)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of right classes, without the first `washout` steps where there is a label for each."""
        return self._scored(X, y, accuracy_score, sample_weight)


def _several(X: Any) -> bool:  # noqa: N803
    """Whether X is several series: three axes, or a list of tables. A list of rows is one table."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        return X.ndim == 3
    return isinstance(X, list | tuple | np.ndarray) and len(X) > 0 and np.ndim(X[0]) == 2


def _standardised(weights: EsnWeights, steps: Reals) -> EsnWeights:
    """Return the network that does with inputs what this one does with standardised ones over sqrt(features)."""
    mean, spread = steps.mean(axis=0), steps.std(axis=0)
    w_in = weights.w_in / (np.where(spread > 0, spread, 1.0) * np.sqrt(len(mean)))
    dtype = weights.dtype
    return replace(weights, w_in=w_in.astype(dtype), bias=(weights.bias - w_in @ mean).astype(dtype))


def _chosen_ridge(pairs: list[Pair], ridges: Sequence[float]) -> float:
    """Return the best of several for series left out in turn; parts of one series where there is no other.

    Series with one target are dealt to the groups in its order, so that each group has its share of every class.
    """
    if len(pairs) == 1:
        features, targets = pairs[0]
        parts = min(FOLDS, len(features))
        pairs = list(zip(np.array_split(features, parts), np.array_split(targets, parts), strict=True))
    elif all(len(targets) == 1 for _, targets in pairs):
        pairs = sorted(pairs, key=lambda pair: tuple(pair[1][0]))
    if len(pairs) < 2:  # nothing can be left out
        return ridges[len(ridges) // 2]
    return select_ridge(pairs, ridges, folds=min(FOLDS, len(pairs))).readout.ridge


def _nearest_distribution(rows: Reals) -> Reals:
    """Project rows on the simplex: max(y - t, 0) with t such that it adds up to 1 (J. Duchi et al., 2008)."""
    falling = -np.sort(-rows, axis=1)
    level = (np.cumsum(falling, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.sum(falling > level, axis=1) - 1
    return np.maximum(rows - np.take_along_axis(level, last[:, None], axis=1), 0)
