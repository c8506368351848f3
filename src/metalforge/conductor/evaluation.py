r"""How good every head is on couplings and seeds it has not seen, against the strongest of its baselines.

    skill = 1 - loss / loss of the baseline

The loss of thermalisation and phase is the share of wrong answers (a probability above 1/2 is a yes), that of other
classes the Brier score, that of numbers the mean square; `value` and `baseline` are accuracy, Brier score or root mean
square. The baseline is the one with the least loss on the test chains themselves: choosing it there can only favour
it. Trajectories of a chain are not independent, so intervals come from drawing whole chains again. A head is trusted
when its skill is above 0 with 95 % confidence.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout, HeadSpec
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.substrates.npu.emulator import EmulatedDevice

from .baselines import baselines_for
from .chains import Doubles
from .dataset import Example
from .ensemble import Ensemble, values_of
from .heads_training import Trained, fit_heads, label_rows, train_heads, without_memory
from .program import ConductorProgram

__all__ = ["Coverage", "HeadScore", "Route", "calibration", "evaluate", "predictions"]

Route: TypeAlias = Literal["f32-software", "no-memory", "npu-w8a8", "npu-w4a8-refit"]
ROUTES: tuple[Route, ...] = ("f32-software", "npu-w4a8-refit", "npu-w8a8", "no-memory")
RESAMPLES = 400
ACCURACY = ("thermalization", "phase", "therm_detect", "quenched_therm", "phase_classify")
"""Heads whose answer is taken as yes or no."""
Predictions: TypeAlias = Mapping[str, Sequence[Doubles]]
"""By head, one array (trajectories,) a chain."""


class HeadScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head on one route: its metric with a 95 % interval, and what it adds to the strongest baseline."""

    name: str
    metric: str
    value: float
    low: float
    high: float
    baseline: float
    baseline_name: str
    skill: float
    trusted: bool
    route: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the truth is within an ensemble's intervals of 68 % and 95 %, over so many chains."""

    name: str
    within_68: float
    within_95: float
    chains: int


class _Losses(NamedTuple):
    """Sums of losses and numbers of rows, one entry a chain."""

    sums: Doubles
    rows: Doubles

    def mean(self, drawn: NDArray[np.int64] | slice = slice(None)) -> float:
        return float(self.sums[drawn].sum() / self.rows[drawn].sum())


def predictions(route: Route, trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> Predictions:
    """Return what a network says of the test chains on a route; refits and calibration see training chains only."""
    if route == "no-memory":
        layout = _layout(trained)
        trained = train_heads(train, weights=without_memory(trained.weights), layout=layout)
    if route in ("f32-software", "no-memory"):
        answers: list[Mapping[str, Doubles]] = [values_of(trained, example.inputs) for example in test]
    elif route == "npu-w8a8":
        answers = _whole_on_device(trained, train, test)
    elif route == "npu-w4a8-refit":
        answers = _refitted(trained, train, test)
    else:
        raise SpecError(f"`route` must be one of {', '.join(ROUTES)}. Got `{route}`")
    return {name: [answer[name] for answer in answers] for name in trained.fits}


def evaluate(
    trained: Trained, train: Sequence[Example], test: Sequence[Example], *, routes: Sequence[Route] = ROUTES
) -> list[HeadScore]:
    """Return a score for every head that has labels on both sides, on every route."""
    if {e.beta for e in train} & {e.beta for e in test}:
        raise SpecError("training and test chains must not share couplings")
    layout = _layout(trained)
    contests = {name: _strongest(layout[name], train, test) for name in trained.fits}
    scores = []
    for route in routes:
        found = predictions(route, trained, train, test)
        for name, contest in contests.items():
            if contest is not None and name in found:
                scores.append(_score(layout[name], found[name], contest, test, route))
    return scores


def calibration(ensemble: Ensemble, test: Sequence[Example]) -> list[Coverage]:
    """Return how often labels that are numbers lie within the ensemble's intervals."""
    layout = _layout(ensemble.members[0])
    said = [ensemble.predict(example.inputs) for example in test]
    rows = []
    for name in ensemble.members[0].fits:
        if layout[name].loss == "log":
            continue
        pulls = []
        for example, answer in zip(test, said, strict=True):
            label = label_rows(example, name)
            known = np.isfinite(label)
            if known.any():
                pulls.append((np.abs(answer[name].value - label) / answer[name].spread)[known])
        if pulls:
            pull = np.concatenate(pulls)
            shares = [float(np.mean(pull < norm.ppf((1 + p) / 2))) for p in (0.68, 0.95)]
            rows.append(Coverage(name=name, within_68=shares[0], within_95=shares[1], chains=len(pulls)))
    return rows


def _layout(trained: Trained) -> HeadLayout:
    assert trained.weights.heads is not None
    return trained.weights.heads


class _Contest(NamedTuple):
    name: str
    losses: _Losses


def _strongest(head: HeadSpec, train: Sequence[Example], test: Sequence[Example]) -> _Contest | None:
    """Return the baseline with the least loss on the test chains; None where no test chain has the label."""
    if not any(np.isfinite(label_rows(example, head.name)).any() for example in test):
        return None
    fitted = baselines_for(head.name, train, classes=head.loss == "log")
    contests = [
        _Contest(name, _losses(head, [predictor(example) for example in test], test))
        for name, predictor in fitted.items()
    ]
    return min(contests, key=lambda contest: contest.losses.mean())


def _losses(head: HeadSpec, said: Sequence[Doubles], test: Sequence[Example]) -> _Losses:
    sums, rows = [], []
    for answer, example in zip(said, test, strict=True):
        label = label_rows(example, head.name)
        known = np.isfinite(label)
        if known.any():
            y, p = label[known], answer[known]
            loss = ((p > 0.5) != (y > 0.5)) if head.name in ACCURACY else (p - y) ** 2
            sums.append(float(loss.sum()))
            rows.append(float(known.sum()))
    return _Losses(np.array(sums), np.array(rows))


def _score(
    head: HeadSpec, said: Sequence[Doubles], contest: _Contest, test: Sequence[Example], route: Route
) -> HeadScore:
    ours, theirs = _losses(head, said, test), contest.losses
    rng = np.random.default_rng(8)
    draws = [rng.integers(len(ours.sums), size=len(ours.sums)) for _ in range(RESAMPLES)]
    means = np.array([ours.mean(drawn) for drawn in draws])
    gains = np.array([theirs.mean(drawn) - ours.mean(drawn) for drawn in draws])
    shown = [_shown(head, x) for x in (ours.mean(), *np.quantile(means, [0.025, 0.975]), theirs.mean())]
    metric = "accuracy" if head.name in ACCURACY else "brier" if head.loss == "log" else "rmse"
    loss, baseline = ours.mean(), theirs.mean()
    return HeadScore(
        name=head.name,
        metric=metric,
        value=shown[0],
        low=min(shown[1:3]),
        high=max(shown[1:3]),
        baseline=shown[3],
        baseline_name=contest.name,
        # Against a baseline that is never wrong there is nothing to gain.
        skill=1 - loss / baseline if baseline > 0 else (0.0 if loss == 0 else -1.0),
        trusted=bool(np.quantile(gains, 0.05) > 0),
        route=route,
    )


def _shown(head: HeadSpec, loss: float) -> float:
    """Return a mean loss as the metric that is shown."""
    if head.name in ACCURACY:
        return 1 - float(loss)
    return float(loss) if head.loss == "log" else float(np.sqrt(loss))


def _batches(examples: Sequence[Example]) -> dict[int, list[int]]:
    """Return which chains are equally long: they run side by side on a device."""
    found: dict[int, list[int]] = {}
    for i, example in enumerate(examples):
        found.setdefault(len(example.inputs), []).append(i)
    return found


def _calibration_inputs(train: Sequence[Example]) -> Doubles:
    """Return some training chains of one length, to measure ranges on."""
    longest = max(_batches(train).items(), key=lambda item: item[0])[1]
    return np.stack([train[i].inputs for i in longest[:32]])


def _whole_on_device(
    trained: Trained, train: Sequence[Example], test: Sequence[Example]
) -> list[Mapping[str, Doubles]]:
    """Return what reservoir and heads say when both are on the emulated NPU, with tanh on the host."""
    answers: list[Mapping[str, Doubles]] = [{} for _ in test]
    program = ConductorProgram(weights=trained.weights)
    with (
        EmulatedDevice() as device,
        program.run_on(device, precision="W8A8", calibration=_calibration_inputs(train)) as running,
    ):
        for steps, members in _batches(test).items():
            running.reset(batch=len(members))
            inputs = np.stack([test[i].inputs for i in members])
            said = [running.run_conductor(inputs[:, t]) for t in range(steps)]
            for row, i in enumerate(members):
                answers[i] = {name: np.array([heads[name][row, -1] for heads in said]) for name in trained.fits}
    return answers


def _refitted(trained: Trained, train: Sequence[Example], test: Sequence[Example]) -> list[Mapping[str, Doubles]]:
    """Return what heads say that were fitted again to the states of the emulated NPU in four-bit weights."""
    weights = trained.weights
    calibrated = HybridEsn.from_weights(weights, calibration=_calibration_inputs(train).astype(weights.dtype))
    with EmulatedDevice() as device:
        chip = calibrated.with_hardware_linear(device, "last-layer", "W4A8")

        def seen(examples: Sequence[Example]) -> list[Doubles]:
            rows: list[Doubles] = [np.zeros(0)] * len(examples)
            for members in _batches(examples).values():
                inputs = np.stack([examples[i].inputs for i in members]).astype(weights.dtype)
                both = np.concatenate([chip.states(inputs), inputs], axis=2).astype(np.float64)
                for row, i in zip(both, members, strict=True):
                    rows[i] = row
            return rows

        again = fit_heads(train, seen(train), weights=weights, layout=_layout(trained))
        outputs = [_output(again, x) for x in seen(test)]
        chip.close()
    return outputs


def _output(trained: Trained, seen: Doubles) -> Mapping[str, Doubles]:
    weights = trained.weights
    assert weights.w_out is not None
    assert weights.out_bias is not None
    decoded = ConductorProgram(weights=weights).decode(seen @ weights.w_out.T + weights.out_bias)
    return {name: np.asarray(decoded[name][:, -1]) for name in trained.fits}
