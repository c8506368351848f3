"""Which head and which formula answer a question, and how what they say becomes the same kind of answer.

Heads are looked up by name in the layout at hand: the first of a route's names that is there. Values of heads are in
the units of their layout (a step size, iterations of a solve, probabilities), and so are the formulas'.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.steering_rules import AdaptiveDecision, Score, steer_adaptive

from . import heuristics, requests, responses
from .intervals import check_interval
from .requests import Question
from .responses import Answer
from .trust import Loss

if TYPE_CHECKING:
    from .heads import HeadReading

__all__ = ["ROUTES", "Estimate", "ReadHead", "Route", "route_of"]

ReadHead: TypeAlias = "Callable[[float | None], HeadReading]"
"""Gives what the head reads for the question, or for the question at another coupling."""


class Estimate(NamedTuple):
    """A formula's answer, the formula's name, and what it had to assume."""

    answer: Answer
    formula: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one kind of question is answered."""

    heads: tuple[str, ...]
    """Names the head has, by layout; the first that is there."""
    estimate: Callable[[Any], Estimate]
    """The formula."""
    decode: Callable[[Any, ReadHead], Answer]
    """The answer by a head."""
    scored: Callable[[Any], tuple[float, ...]] | None = None
    """The numbers of an answer that outcomes are compared with; None when there is no outcome to a single answer."""
    loss: Loss = "squared"
    comparable: bool = True
    """Whether formula and head have one unit; else the head's baseline is the mean outcome."""
    from_state: bool = False
    """Whether the carried state of the question's chain already holds what is asked about."""

    def head_in(self, heads: tuple[str, ...]) -> str | None:
        """Return the head of a layout that answers, if it has one."""
        return next((name for name in self.heads if name in heads), None)


def route_of(question: Question) -> Route:
    """Return how a question is answered."""
    route = ROUTES.get(type(question))
    if route is None:
        raise UnknownNameError("question", requests.kind_of(question), [kind.__name__ for kind in ROUTES])
    return route


def _value(reading: "HeadReading") -> float:
    """Return a head's first value; one that is not a number is an error, and the formula answers."""
    value = float(reading.value[0])
    if not math.isfinite(value):
        raise SpecError(f"the head gave {value}")
    return value


def _probability(reading: "HeadReading") -> float:
    """Return the probability of yes: of a head with two outputs (no, yes), the second."""
    value = float(reading.value[-1])
    if not math.isfinite(value):
        raise SpecError(f"the head gave {value}")
    return min(max(value, 0.0), 1.0)


def _priorities(q: requests.PreScreenBeta) -> Estimate:
    centre, note = heuristics.centre_of(q.centre, min(q.candidates), max(q.candidates))
    assert centre is not None
    scores = tuple(heuristics.priority(beta, centre) for beta in q.candidates)
    return Estimate(responses.BetaPriorities(betas=q.candidates, scores=scores), "priority", note)


def _head_priorities(q: requests.PreScreenBeta, read: ReadHead) -> Answer:
    scores = tuple(_value(read(beta)) for beta in q.candidates)
    return responses.BetaPriorities(betas=q.candidates, scores=scores)


def _parameters(q: requests.SuggestParameters) -> Estimate:
    step, n = heuristics.step_parameters(math.prod(q.dims), q.trajectory_length)
    return Estimate(responses.Parameters(step_size=step, n_steps=n), "step_parameters")


def _head_parameters(q: requests.SuggestParameters, read: ReadHead) -> Answer:
    wanted = _value(read(None))
    if not 0 < wanted <= q.trajectory_length:
        raise SpecError(f"the head gave a step of {wanted} for a trajectory of {q.trajectory_length}")
    # A whole number of steps makes the trajectory; rounding up keeps the acceptance that the head meant.
    n = math.ceil(q.trajectory_length / wanted)
    return responses.Parameters(step_size=q.trajectory_length / n, n_steps=n)


def _iterations(q: requests.PredictCgIterations) -> Estimate:
    found = heuristics.cg_iterations(math.prod(q.dims), q.mass)
    return Estimate(responses.Iterations(per_solve=float(found)), "cg_iterations")


def _head_iterations(q: requests.PredictCgIterations, read: ReadHead) -> Answer:
    return responses.Iterations(per_solve=max(1.0, _value(read(None))))


def _length(q: requests.PredictQuenchedLength) -> Estimate:
    centre, note = heuristics.centre_of(q.centre, q.low, q.high)
    updates = heuristics.quenched_length(q.beta, max(q.dims), centre)
    return Estimate(responses.QuenchedLength(updates=updates), "quenched_length", note)


def _head_length(q: requests.PredictQuenchedLength, read: ReadHead) -> Answer:
    return responses.QuenchedLength(updates=max(1, math.ceil(_value(read(None)))))


def _convergence(q: requests.QuenchedThermCheck) -> Estimate:
    converged = heuristics.thermalised(q.window)
    return Estimate(responses.Convergence(converged=converged, probability=float(converged)), "thermalised")


def _head_convergence(q: requests.QuenchedThermCheck, read: ReadHead) -> Answer:
    probability = _probability(read(None))
    return responses.Convergence(converged=probability > q.threshold, probability=probability)


def _rejected(probability: float) -> responses.Rejection:
    return responses.Rejection(likely_rejected=probability > 0.5, probability=probability)


def _phase(deconfined: float) -> responses.PhaseLabel:
    return responses.PhaseLabel(label=heuristics.phase_label(deconfined), deconfined=deconfined)


def _estimated_phase(q: requests.PhaseClassify) -> Estimate:
    centre, note = heuristics.centre_of(q.centre, q.low, q.high)
    return Estimate(_phase(heuristics.deconfined_probability(q.beta, centre)), "deconfined_probability", note)


def _quality(q: requests.QualityScore) -> Estimate:
    points = heuristics.quality(q.n_measurements, q.acceptance, q.cg_iterations)
    return Estimate(responses.Quality(value=points, unit="points of 1"), "quality")


def _anomaly(score: float) -> responses.Anomaly:
    return responses.Anomaly(is_anomaly=score > 0.5, score=score)


def _estimated_anomaly(q: requests.AnomalyCheck) -> Estimate:
    found = heuristics.anomaly(q.plaquette, q.delta_h, q.cg_iterations)
    return Estimate(_anomaly(float(found)), "anomaly")


def _apart(q: requests.SteerAdaptive | requests.RecommendNextRun) -> float:
    """Return how far a candidate must be from other points: 0.3 of the grid's step, at least 2.5 % of the range.

    The origin meant a least distance of 0.025 and, by a slip of operators, had none.
    """
    return (q.high - q.low) * max(0.3 / (q.n_candidates + 1), 0.025)


def _decided(
    q: requests.SteerAdaptive | requests.RecommendNextRun, score: Score | None, more: Sequence[float] = ()
) -> AdaptiveDecision:
    queued = [*q.queued, *more]
    return steer_adaptive(
        q.measured, queued, q.low, q.high, score=score, n_candidates=q.n_candidates, exclusion=_apart(q)
    )


def _scores(read: ReadHead) -> Score:
    """Return priority and spread of a coupling by the head; each coupling is read once."""

    @cache
    def score(beta: float) -> tuple[float, float | None]:
        reading = read(beta)
        return _value(reading), reading.spread

    return score


def _steered(decision: AdaptiveDecision) -> responses.Steered:
    found = decision.suggestion
    beta, score = (None, 0.0) if found is None else (found.beta, found.score)
    return responses.Steered(beta=beta, saturated=decision.saturated, score=score, reason=decision.reason)


def _gap_run(q: requests.RecommendNextRun) -> Estimate:
    betas = heuristics.find_largest_gaps([*q.measured, *q.queued], q.low, q.high, q.n)
    return Estimate(responses.NextRun(betas=tuple(betas), mass=q.mass, dims=q.dims), "find_largest_gaps")


def _head_run(q: requests.RecommendNextRun, read: ReadHead) -> Answer:
    """Choose one after the other, each as if those before it were queued."""
    score, betas = _scores(read), list[float]()
    while len(betas) < q.n and (found := _decided(q, score, betas).suggestion) is not None:
        betas.append(found.beta)
    return responses.NextRun(betas=tuple(betas), mass=q.mass, dims=q.dims)


def _advice(q: requests.CgResidual, score: float) -> responses.ResidualAdvice:
    stalled = score > 0.5
    expected = max(float(q.iteration), q.predicted or 0.0)
    return responses.ResidualAdvice(
        stalled=stalled, score=score, check_interval=5 if stalled else check_interval(expected)
    )


ROUTES: Mapping[type[Question], Route] = {
    requests.PreScreenBeta: Route(
        heads=("beta_priority",),
        estimate=_priorities,
        decode=_head_priorities,
        scored=lambda answer: answer.scores,
    ),
    requests.SuggestParameters: Route(
        heads=("param_suggest",),
        estimate=_parameters,
        decode=_head_parameters,
        scored=lambda answer: (answer.step_size,),
    ),
    requests.PredictCgIterations: Route(
        heads=("cg_estimate",),
        estimate=_iterations,
        decode=_head_iterations,
        scored=lambda answer: (answer.per_solve,),
    ),
    requests.PredictQuenchedLength: Route(
        heads=("quenched_length",),
        estimate=_length,
        decode=_head_length,
        scored=lambda answer: (float(answer.updates),),
    ),
    requests.QuenchedThermCheck: Route(
        heads=("quenched_therm", "thermalization"),
        estimate=_convergence,
        decode=_head_convergence,
        scored=lambda answer: (answer.probability,),
        loss="brier",
        from_state=True,
    ),
    requests.ThermCheck: Route(
        heads=("therm_detect", "thermalization"),
        estimate=_convergence,
        decode=_head_convergence,
        scored=lambda answer: (answer.probability,),
        loss="brier",
        from_state=True,
    ),
    requests.RejectPredict: Route(
        heads=("reject_predict", "rejection"),
        estimate=lambda q: Estimate(
            _rejected(heuristics.rejection_probability(q.delta_h_quarter)), "rejection_probability"
        ),
        decode=lambda q, read: _rejected(_probability(read(None))),
        scored=lambda answer: (answer.probability,),
        loss="brier",
    ),
    requests.PhaseClassify: Route(
        heads=("phase_classify", "phase"),
        estimate=_estimated_phase,
        decode=lambda q, read: _phase(_probability(read(None))),
        scored=lambda answer: (answer.deconfined,),
        loss="brier",
        from_state=True,
    ),
    requests.QualityScore: Route(
        heads=("quality_score", "quality"),
        estimate=_quality,
        decode=lambda q, read: responses.Quality(value=_value(read(None)), unit="effective samples per second"),
        scored=lambda answer: (answer.value,),
        comparable=False,
        from_state=True,
    ),
    requests.AnomalyCheck: Route(
        heads=("anomaly_detect", "anomaly"),
        estimate=_estimated_anomaly,
        decode=lambda q, read: _anomaly(_probability(read(None))),
        scored=lambda answer: (answer.score,),
        loss="brier",
        from_state=True,
    ),
    requests.SteerAdaptive: Route(
        heads=("beta_priority",),
        estimate=lambda q: Estimate(_steered(_decided(q, None)), "find_largest_gaps"),
        decode=lambda q, read: _steered(_decided(q, _scores(read))),
    ),
    requests.RecommendNextRun: Route(heads=("next_run", "beta_priority"), estimate=_gap_run, decode=_head_run),
    requests.CgResidual: Route(
        heads=("cg_residual",),
        estimate=lambda q: Estimate(_advice(q, heuristics.residual_score(q.residuals)), "residual_score"),
        decode=lambda q, read: _advice(q, _probability(read(None))),
        scored=lambda answer: (answer.score,),
        loss="brier",
    ),
}
"""Every question has a route; a test holds this table against `requests`."""
