"""The fallback formulas against values worked out by hand, and what was wrong with the published design's."""

import ast
import inspect
import math

import numpy as np
import pytest

from experiments.heads import baselines as heuristics
from experiments.heads.baselines import (
    cg_iterations,
    deconfined_probability,
    priority,
    rejection_probability,
    step_parameters,
    thermalised,
)
from metalforge.core.errors import SpecError
from metalforge.core.steering import find_largest_gaps
from metalforge.lattice.campaign.theory import quenched_length


def test_no_formula_knows_the_transition():
    tree = ast.parse(inspect.getsource(heuristics))
    numbers = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    assert [x for x in numbers if isinstance(x, float) and 4 < x < 8] == []


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


def test_phase_by_the_coupling():
    assert [deconfined_probability(b, 5.7) for b in (5.5, 5.65, 5.75, 5.9)] == [0, 0.5, 0.5, 1]


def test_largest_gaps():
    assert find_largest_gaps([5.25, 5.875], 5.0, 6.5, 2) == [5.5625, 6.1875]  # equal ones: the lower first
    assert find_largest_gaps([], 5.0, 6.0, 3) == [5.5]
    assert find_largest_gaps([5.5, 5.5, 5.0], 5.0, 6.0, 9) == [5.25, 5.75]
    assert find_largest_gaps([4.0, 7.0], 5.0, 6.0, 1) == [5.5]  # points outside make no gaps
    with pytest.raises(SpecError):
        find_largest_gaps([], 6.0, 5.0, 1)
