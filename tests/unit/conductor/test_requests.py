"""Requests and responses as records, and the table that routes them."""

import math
from typing import get_args

import msgspec
import pytest

from metalforge.conductor.answering import context_frame
from metalforge.conductor.features import FEATURES, MetaRow, scaled
from metalforge.conductor.layouts import CONDUCTOR_11, GPU_PREP_11
from metalforge.conductor.requests import (
    AnomalyCheck,
    AnyRequest,
    BootstrapFromLog,
    BootstrapFromWeights,
    CgResidual,
    ExportWeights,
    PhaseClassify,
    PredictCgIterations,
    PredictQuenchedLength,
    PreScreenBeta,
    QualityScore,
    QuenchedThermCheck,
    Question,
    RecommendNextRun,
    RejectPredict,
    Retrain,
    Shutdown,
    SteerAdaptive,
    SuggestParameters,
    ThermCheck,
    kind_of,
)
from metalforge.conductor.responses import Answer, Convergence, Response
from metalforge.conductor.routes import ROUTES
from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured

DIMS = (8, 8, 8, 4)
QUESTIONS = [
    PreScreenBeta(dims=DIMS, candidates=(5.5, 5.7), meta=(MetaRow(beta=5.6, plaquette=0.54, susceptibility=0.8),)),
    SuggestParameters(dims=DIMS, beta=5.7, mass=0.1, flavors=4),
    PredictCgIterations(dims=DIMS, beta=5.2, mass=0.1),
    PredictQuenchedLength(dims=DIMS, beta=5.7, low=5.5, high=6.0),
    QuenchedThermCheck(beta=5.7, window=(0.5, 0.51), chain="a"),
    ThermCheck(beta=5.2, mass=0.1, window=(0.5, 0.51), chain="a"),
    RejectPredict(beta=5.2, delta_h_quarter=0.3, phase="measure"),
    PhaseClassify(beta=5.7, plaquette=0.55, centre=5.69),
    QualityScore(beta=5.7, n_measurements=100, acceptance=0.8),
    AnomalyCheck(beta=5.7, plaquette=0.55, delta_h=0.1, cg_iterations=80),
    SteerAdaptive(dims=DIMS, measured=(5.5, 5.9), low=5.0, high=6.0),
    RecommendNextRun(dims=DIMS, measured=(5.5,), low=5.0, high=6.0),
    CgResidual(residuals=(1.0, 0.1), iteration=20),
]
COMMANDS = [
    Retrain(records=({"beta": 5.7},)),
    BootstrapFromLog(path="log.jsonl"),
    BootstrapFromWeights(path="w.safetensors"),
    ExportWeights(path="w.safetensors"),
    Shutdown(),
]


def test_every_kind_has_an_example_here_and_a_name_of_its_own():
    kinds = {type(request) for request in QUESTIONS + COMMANDS}
    assert kinds == set(get_args(AnyRequest))
    assert len({kind_of(request) for request in QUESTIONS + COMMANDS}) == len(kinds) == 18
    assert kind_of(Shutdown()) == "shutdown"
    assert kind_of(QUESTIONS[5]) == "therm-check"


@pytest.mark.parametrize("request_", QUESTIONS + COMMANDS, ids=kind_of)
def test_records_survive_a_file(request_):
    assert msgspec.json.decode(msgspec.json.encode(request_), type=AnyRequest) == request_


def test_a_misspelt_field_is_refused_with_its_name():
    with pytest.raises(msgspec.ValidationError, match="bta"):
        msgspec.json.decode(b'{"request": "therm-check", "bta": 5.7, "beta": 5.7, "window": []}', type=AnyRequest)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PreScreenBeta(dims=DIMS, candidates=()), "at least one coupling"),
        (lambda: PreScreenBeta(dims=DIMS, candidates=(5.0, math.nan)), "`candidates` must be a finite number. Got nan"),
        (lambda: PreScreenBeta(dims=(8, 8, 0, 4), candidates=(5.0,)), "`dims`"),
        (lambda: SuggestParameters(dims=DIMS, beta=math.inf), "`beta`"),
        (lambda: SuggestParameters(dims=DIMS, beta=5.0, trajectory_length=0), "`trajectory_length` must be above 0"),
        (lambda: PredictCgIterations(dims=DIMS, beta=5.0, mass=0.0), "solves nothing"),
        (lambda: PredictCgIterations(dims=DIMS, beta=5.0, mass=-1.0), "`mass` must be at least 0"),
        (lambda: PredictQuenchedLength(dims=DIMS, beta=5.0, low=5.0), "give both or none"),
        (lambda: PredictQuenchedLength(dims=DIMS, beta=5.0, low=6.0, high=5.0), "`low` must be below `high`"),
        (lambda: ThermCheck(beta=5.0, window=(), threshold=1.5), "`threshold` must be between 0 and 1"),
        (lambda: QualityScore(beta=5.0, n_measurements=-1, acceptance=0.5), "`n_measurements`"),
        (lambda: QualityScore(beta=5.0, n_measurements=1, acceptance=math.nan), "`acceptance`"),
        (lambda: SteerAdaptive(dims=DIMS, measured=(), low=5.0, high=5.0), "`low` must be below `high`"),
        (lambda: SteerAdaptive(dims=DIMS, measured=(), low=5.0, high=6.0, n_candidates=0), "`n_candidates`"),
        (lambda: RecommendNextRun(dims=DIMS, measured=(math.inf,), low=5.0, high=6.0), "`measured`"),
        (lambda: RecommendNextRun(dims=DIMS, measured=(), low=5.0, high=6.0, n=0), "`n` must be at least 1"),
    ],
)
def test_bad_questions_are_refused_when_they_are_made(make, says):
    with pytest.raises(SpecError) as error:
        make()
    assert says in str(error.value)


def test_the_stage_of_a_rejection_must_be_said():
    with pytest.raises(TypeError, match="phase"):
        RejectPredict(beta=5.2, delta_h_quarter=0.3)


def test_every_question_has_a_route_to_heads_that_exist():
    assert set(ROUTES) == {type(question) for question in QUESTIONS}
    known = {*CONDUCTOR_11.names, *GPU_PREP_11.names, "cg_residual"}
    asked = {name for route in ROUTES.values() for name in route.heads}
    assert asked <= known
    # Only these heads are read by nobody's question: they are observables, not decisions.
    assert known - asked == {"schedule", "deconfinement", "transport_D", "transport_eta"}


@pytest.mark.parametrize("layout", [CONDUCTOR_11, GPU_PREP_11], ids=lambda layout: layout.name)
def test_routes_find_their_head_by_name_in_either_layout(layout):
    found = {kind.__name__: route.head_in(layout.names) for kind, route in ROUTES.items()}
    ours = layout is CONDUCTOR_11
    assert found["ThermCheck"] == ("thermalization" if ours else "therm_detect")
    assert found["RejectPredict"] == ("rejection" if ours else "reject_predict")
    assert found["PredictQuenchedLength"] == (None if ours else "quenched_length")
    assert found["CgResidual"] is None


@pytest.mark.parametrize("question", QUESTIONS, ids=kind_of)
def test_context_frames_are_of_the_schema(question):
    beta = 5.6 if isinstance(question, PreScreenBeta | SteerAdaptive | RecommendNextRun) else None
    frame = context_frame(question, beta)
    assert scaled(frame).shape == (len(FEATURES),)
    if beta is not None:
        assert frame["beta"] == beta
    if question.dims is not None and beta is not None:
        assert frame["log_volume"] == pytest.approx(math.log(2048))


def test_context_frames_carry_the_nearest_earlier_results_of_each_candidate():
    rows = (
        MetaRow(beta=5.6, plaquette=0.54, susceptibility=0.8),
        MetaRow(beta=5.8, plaquette=0.57, susceptibility=0.2),
    )
    question = PreScreenBeta(dims=DIMS, candidates=(5.65, 5.9), meta=rows)
    assert context_frame(question, 5.65)["below_plaquette"] == 0.54
    assert context_frame(question, 5.9)["below_plaquette"] == 0.57


def test_questions_and_commands_are_apart():
    assert all(isinstance(question, Question) for question in QUESTIONS)
    assert not any(isinstance(command, Question) for command in COMMANDS)


def test_every_formula_answers_its_question_with_a_record():
    seconds = Measured(value=0.0, unit="s", how="none")
    for question in QUESTIONS:
        estimate = ROUTES[type(question)].estimate(question)
        response = Response(
            id=7, request=kind_of(question), answer=estimate.answer, source="heuristic", why="deadline", seconds=seconds
        )
        assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response
        assert isinstance(estimate.answer, get_args(Answer))


def test_responses_tell_answers_apart_in_a_file():
    answer = msgspec.json.decode(b'{"answer": "convergence", "converged": true, "probability": 0.9}', type=Answer)
    assert answer == Convergence(converged=True, probability=0.9)
