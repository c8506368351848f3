r"""How good every head is on couplings and seeds it has not seen, against the strongest of its baselines.

    skill = 1 - loss / loss of the baseline

The loss of thermalisation and phase is the share of wrong answers (a probability above 1/2 is a yes), that of other
classes the Brier score, that of numbers the mean square; `value` and `baseline` are accuracy, Brier score or root mean
square. The baseline is the one with the least loss on the test chains themselves: choosing it there can only favour
it. Trajectories of a chain are not independent, so intervals come from drawing whole chains again. A head is trusted
when its skill is above 0 with 95 % confidence.

`calibration` tells whether an ensemble knows how far off it is. Of heads that are numbers: the share of labels within
the intervals of 68 % and 95 %. Of heads that are probabilities: the expected calibration error, with rows grouped in
ten bins by what was said, sum_bins (rows in the bin / rows) |mean probability - share of yes|.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadSpec

from .baselines import baselines_for
from .chains import Doubles
from .heads_training import Trained, label_rows
from .labels import Example
from .layouts import LABEL_OF
from .predicting import ROUTES, Ensemble, Route, layout_of, predictions
from .scores import HeadScore

RESAMPLES = 400
ACCURACY = ("thermalization", "phase")
"""Labels whose answer is taken as yes or no."""


class NeitherPhase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Test chains whose interval covers the cut between the phases: how often head and baseline say the likelier side.

    `value` and `baseline` are None where there is no such chain.
    """

    name: str
    chains: int
    value: float | None
    baseline: float | None
    baseline_name: str


class _Losses(NamedTuple):
    """Sums of losses and numbers of rows, one entry a chain."""

    sums: Doubles
    rows: Doubles

    def mean(self, drawn: NDArray[np.int64] | slice = slice(None)) -> float:
        return float(self.sums[drawn].sum() / self.rows[drawn].sum())


def evaluate(
    trained: Trained, train: Sequence[Example], test: Sequence[Example], *, routes: Sequence[Route] = ROUTES
) -> list[HeadScore]:
    """Return a score for every head that has labels on both sides, on every route."""
    if {e.beta for e in train} & {e.beta for e in test}:
        raise SpecError("training and test chains must not share couplings")
    layout = layout_of(trained)
    contests = {name: _strongest(layout[name], train, test) for name in trained.fits}
    scores = []
    for route in routes:
        found = predictions(route, trained, train, test)
        for name, contest in contests.items():
            if contest is not None and name in found:
                scores.append(_score(layout[name], found[name], contest, test, route))
    return scores


def neither_phase(trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> NeitherPhase | None:
    """Return the score of ambiguous chains, which are in no other score; None without a trained head for the phase."""
    name = next((head for head in trained.fits if LABEL_OF.get(head, head) == "phase"), None)
    if name is None:
        return None
    head = layout_of(trained)[name]
    chosen = _strongest(head, train, test)
    unclear = [example for example in test if np.isfinite(label_rows(example, name, ambiguous=True)).any()]
    if not unclear:
        return NeitherPhase(name=name, chains=0, value=None, baseline=None, baseline_name="")
    rival_name = "constant" if chosen is None else chosen[0]
    rival = baselines_for(name, train, classes=True)[rival_name]
    said = predictions("f32-software", trained, train, unclear)[name]
    ours, theirs = (
        _losses(head, answers, unclear, ambiguous=True) for answers in (said, [rival(example) for example in unclear])
    )
    return NeitherPhase(
        name=name,
        chains=len(unclear),
        value=_shown(head, ours.mean()),
        baseline=_shown(head, theirs.mean()),
        baseline_name=rival_name,
    )


def _strongest(head: HeadSpec, train: Sequence[Example], test: Sequence[Example]) -> tuple[str, _Losses] | None:
    """Return the baseline with the least loss on the test chains; None where no test chain has the label."""
    if not any(np.isfinite(label_rows(example, head.name)).any() for example in test):
        return None
    fitted = baselines_for(head.name, train, classes=head.loss == "log")
    contests = [(name, _losses(head, [said(example) for example in test], test)) for name, said in fitted.items()]
    return min(contests, key=lambda contest: contest[1].mean())


def _yes_or_no(head: HeadSpec) -> bool:
    return LABEL_OF.get(head.name, head.name) in ACCURACY


def _losses(head: HeadSpec, said: Sequence[Doubles], test: Sequence[Example], *, ambiguous: bool = False) -> _Losses:
    sums, rows = [], []
    for answer, example in zip(said, test, strict=True):
        label = label_rows(example, head.name, ambiguous=ambiguous)
        known = np.isfinite(label)
        if known.any():
            y, p = label[known], answer[known]
            loss = ((p > 0.5) != (y > 0.5)) if _yes_or_no(head) else (p - y) ** 2
            sums.append(float(loss.sum()))
            rows.append(float(known.sum()))
    return _Losses(np.array(sums), np.array(rows))


def _score(
    head: HeadSpec, said: Sequence[Doubles], contest: tuple[str, _Losses], test: Sequence[Example], route: Route
) -> HeadScore:
    ours, (rival, theirs) = _losses(head, said, test), contest
    rng = np.random.default_rng(8)
    draws = [rng.integers(len(ours.sums), size=len(ours.sums)) for _ in range(RESAMPLES)]
    means = np.array([ours.mean(drawn) for drawn in draws])
    gains = np.array([theirs.mean(drawn) - ours.mean(drawn) for drawn in draws])
    shown = [_shown(head, x) for x in (ours.mean(), *np.quantile(means, [0.025, 0.975]), theirs.mean())]
    metric = "accuracy" if _yes_or_no(head) else "brier" if head.loss == "log" else "rmse"
    loss, baseline = ours.mean(), theirs.mean()
    return HeadScore(
        name=head.name,
        metric=metric,
        value=shown[0],
        low=min(shown[1:3]),
        high=max(shown[1:3]),
        baseline=shown[3],
        baseline_name=rival,
        # Against a baseline that is never wrong there is nothing to gain.
        skill=1 - loss / baseline if baseline > 0 else (0.0 if loss == 0 else -1.0),
        trusted=bool(np.quantile(gains, 0.05) > 0),
        route=route,
    )


def _shown(head: HeadSpec, loss: float) -> float:
    """Return a mean loss as the metric that is shown."""
    if _yes_or_no(head):
        return 1 - float(loss)
    return float(loss) if head.loss == "log" else float(np.sqrt(loss))


BINS = 10


class HeadCalibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head over so many test chains; intervals are of numbers, the calibration error is of probabilities."""

    name: str
    chains: int
    within_68: float | None = None
    within_95: float | None = None
    calibration_error: float | None = None


def calibration(ensemble: Ensemble, test: Sequence[Example]) -> list[HeadCalibration]:
    """Return every head that has labels on the test chains."""
    layout = layout_of(ensemble.members[0])
    said = [ensemble.predict(example.inputs) for example in test]
    found = []
    for name in ensemble.members[0].fits:
        labels = [label_rows(example, name) for example in test]
        taken = [i for i, label in enumerate(labels) if np.isfinite(label).any()]
        if not taken:
            continue

        label = np.concatenate([labels[i] for i in taken])
        known = np.isfinite(label)
        columns = zip(*(said[i][name] for i in taken), strict=True)
        value, _, half_68, half_95 = (np.concatenate(column)[known] for column in columns)
        if layout[name].loss == "log":
            error = _expected_error(value, label[known])
            found.append(HeadCalibration(name=name, chains=len(taken), calibration_error=error))
            continue
        shares = [float(np.mean(np.abs(value - label[known]) <= half)) for half in (half_68, half_95)]
        found.append(HeadCalibration(name=name, chains=len(taken), within_68=shares[0], within_95=shares[1]))
    return found


def _expected_error(probability: Doubles, label: Doubles) -> float:
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = [np.abs((probability - label)[bins == k].sum()) for k in range(BINS)]
    return float(np.sum(gaps) / len(label))
