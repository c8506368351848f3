"""The fallback formulas against values worked out by hand, and what was wrong with the origin's."""

import ast
import inspect
import math
from types import SimpleNamespace

import numpy as np
import pytest

from metalforge.conductor import heuristics, requests, routes
from metalforge.conductor.heuristics import (
    anomaly,
    centre_of,
    cg_iterations,
    deconfined_probability,
    find_largest_gaps,
    origin_rejection,
    phase_label,
    priority,
    quality,
    quenched_length,
    rejection_probability,
    residual_score,
    step_parameters,
    thermalised,
)
from metalforge.conductor.intervals import build_on_check, check_interval
from metalforge.conductor.requests import RecommendNextRun, SteerAdaptive
from metalforge.conductor.routes import ROUTES
from metalforge.core.errors import SpecError


def test_no_formula_knows_the_transition():
    for module in (heuristics, requests, routes):
        numbers = [n.value for n in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(n, ast.Constant)]
        assert [x for x in numbers if isinstance(x, float) and 4 < x < 8] == []


def test_the_centre_is_measured_or_the_middle_and_says_so():
    assert centre_of(5.7, 5.0, 6.0) == (5.7, "")
    centre, note = centre_of(None, 5.0, 6.0)
    assert centre == 5.5
    assert "middle of the range" in note
    assert centre_of(None, None, None)[0] is None


def test_priority_is_a_bell_around_the_centre():
    assert priority(5.5, 5.5) == 1
    assert priority(5.5 + math.sqrt(0.3), 5.5) == pytest.approx(1 / math.e)


@pytest.mark.parametrize(
    ("volume", "length", "step", "steps"),
    [(8**4, 0.5, 0.025, 20), (16**4, 0.5, 0.025, 20), (32**4, 0.5, 0.0125, 40), (8**4, 2.0, 0.05, 40)],
)
def test_steps_make_the_whole_trajectory(volume, length, step, steps):
    found = step_parameters(volume, length)
    assert found == (pytest.approx(step), steps)
    assert found[0] * found[1] == pytest.approx(length)


def test_iterations_are_of_one_solve():
    assert cg_iterations(4096, 0.1) == 740
    assert cg_iterations(4096, 0.001) == 6500  # the mass has a floor of 0.01


def test_quenched_length():
    assert quenched_length(5.7, 16, 5.7) == 100
    assert quenched_length(5.7, 8, 5.7) == 80  # 10 L
    assert quenched_length(9.0, 16, 5.7) == 20
    assert quenched_length(5.7 + math.sqrt(0.3), 16, 5.7) == 49  # 20 + int(80 / e)
    assert quenched_length(5.7, 16, None) == 100  # nothing known: the longest


def test_thermalised_wants_ten_quiet_values_without_drift():
    assert not thermalised([0.55] * 9)
    assert thermalised([0.55] * 10)
    assert not thermalised([0.55] * 5 + [0.56] * 5)  # sigma / mean is 0.95 %, the drift 0.01
    assert not thermalised([0.5, 0.6] * 8)  # no drift, sigma / mean is 9 %
    assert not thermalised([0.55] * 9 + [math.nan])
    assert not thermalised([0.0] * 12)  # no division by the mean


def test_rejection_is_the_accept_test():
    assert [rejection_probability(x) for x in (-3.0, 0.0, math.inf, math.nan)] == [0.0, 0.0, 1.0, 1.0]
    assert rejection_probability(math.log(2)) == pytest.approx(0.5)
    # The definition, by drawing: reject when u >= exp(-dH).
    u = np.random.default_rng(8).random(200_000)
    assert rejection_probability(0.7) == pytest.approx(float(np.mean(u >= math.exp(-0.7))), abs=4e-3)


def test_the_origins_rule_never_rejects_in_a_run_that_works_and_ours_does():
    dh = [0.1, 1.0, 5.0, 50.0, 1e6]
    assert not any(origin_rejection(x, a)[0] for x in dh for a in (0.5, 0.8, 1.0))
    assert all(rejection_probability(x) > 0.5 for x in dh[1:])
    assert [origin_rejection(x, 0.2)[0] for x in (math.log(3) - 0.01, math.log(3) + 0.01)] == [False, True]


def test_phase_by_the_coupling():
    assert [deconfined_probability(b, 5.7) for b in (5.5, 5.65, 5.75, 5.9)] == [0, 0.5, 0.5, 1]
    assert deconfined_probability(6.5, None) == 0.5
    assert [phase_label(p) for p in (0.0, 0.5, 1.0)] == ["confined", "transition", "deconfined"]


def test_quality_points():
    assert quality(100, 0.8, 500) == pytest.approx(1.0)
    assert quality(100, 0.8, None) == pytest.approx(1.0)
    assert quality(99, 0.3, 1000) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ((0.55, 0.3, 100), False),
        ((0.55, None, None), False),
        ((-0.02, None, None), False),  # a hot start
        ((1.01, None, None), True),
        ((-0.6, None, None), True),
        ((math.nan, None, None), True),
        ((0.55, -51, None), True),
        ((0.55, math.nan, None), True),
        ((0.55, 0.3, 4001), True),
        ((0.55, 0.3, math.inf), True),
    ],
)
def test_anomalies(arguments, wrong):
    assert anomaly(*arguments) is wrong


def test_residuals_that_do_not_fall():
    assert residual_score([1.0, 0.5, 0.6]) == 0.1
    assert residual_score([1.0, 0.5, 0.5, 0.6]) == 0.8
    assert residual_score([0.5, 0.6]) == 0.1
    assert residual_score([math.nan]) == 0.8


def test_largest_gaps():
    assert find_largest_gaps([5.25, 5.875], 5.0, 6.5, 2) == [5.5625, 6.1875]  # equal ones: the lower first
    assert find_largest_gaps([], 5.0, 6.0, 3) == [5.5]
    assert find_largest_gaps([5.5, 5.5, 5.0], 5.0, 6.0, 9) == [5.25, 5.75]
    assert find_largest_gaps([4.0, 7.0], 5.0, 6.0, 1) == [5.5]  # points outside make no gaps
    with pytest.raises(SpecError):
        find_largest_gaps([], 6.0, 5.0, 1)


@pytest.mark.parametrize("score", [lambda b: b, lambda b: 10 - b, lambda b: abs(b - 5.5), None])
def test_steering_never_leaves_the_range_keeps_its_distance_and_ends(score):
    """The origin's scan went 4.93, 4.86, 6.07, 4.79, 6.13, ... from the same kind of scores."""
    route, measured = ROUTES[SteerAdaptive], [5.1, 5.5, 5.9]
    for _ in range(100):
        question = SteerAdaptive(dims=(8, 8, 8, 4), measured=tuple(measured), low=5.0, high=6.0, n_candidates=80)
        if score is None:
            found = route.estimate(question).answer
        else:
            found = route.decode(question, lambda beta: SimpleNamespace(value=[score(beta)], spread=None))
        if found.beta is None:
            break
        assert 5.0 < found.beta < 6.0
        assert min(abs(found.beta - m) for m in measured) >= 0.0249
        measured.append(found.beta)
    assert found.saturated
    assert found.reason.startswith("saturated")
    assert 10 < len(measured) <= 43


def test_uncertainty_draws_the_scan_and_a_next_run_keeps_its_points_apart():
    def read(beta):
        return SimpleNamespace(value=[1.0], spread=1.0 - abs(beta - 5.75))

    scan = {"dims": (8, 8, 8, 4), "measured": (5.0, 5.25), "low": 5.0, "high": 6.0, "n_candidates": 79}
    steered = ROUTES[SteerAdaptive].decode(SteerAdaptive(**scan), read)
    assert steered.beta == pytest.approx(5.75)
    assert steered.score == pytest.approx(1.5)  # priority + 0.5 of the predictive standard deviation
    betas = ROUTES[RecommendNextRun].decode(RecommendNextRun(**scan, n=3), read).betas
    assert betas == pytest.approx((5.75, 5.725, 5.775), abs=1e-9)
    with_queue = ROUTES[SteerAdaptive].decode(SteerAdaptive(**scan, queued=(5.75,)), read)
    assert with_queue.beta == pytest.approx(5.725)


@pytest.mark.parametrize(
    ("iterations", "interval"), [(0, 20), (199, 20), (200, 10), (999, 10), (1000, 5), (60_000, 5), (None, 10)]
)
def test_check_interval(iterations, interval):
    assert check_interval(iterations) == interval


def test_on_check_follows_a_solve_that_outlives_its_prediction():
    def looks(predicted, iterations):
        """A solver's loop: where it looks."""
        on_check, interval, at, seen = build_on_check(predicted), check_interval(predicted), 0, []
        while at < iterations:
            at += interval
            seen.append(at)
            interval = on_check(at, 1.0)
        return np.diff([0, *seen])

    assert set(looks(150, 160)) == {20}
    late = looks(150, 1500)
    assert list(dict.fromkeys(late)) == [20, 10, 5]
    assert late[:10].sum() == 200
    assert set(looks(1500, 300)) == {5}  # predicted hard: looked at often from the start
