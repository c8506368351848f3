"""Gamma_m from rates of growth: coverage of its error on walks whose drift is known, and what must not be believed."""

import math

import numpy as np
import pytest

from metalforge.campaign.analysis.evidence import PlannedPoints
from metalforge.campaign.steerers.bisection import Bisection
from metalforge.plasma.campaign.freezing import (
    BOTH,
    FAST,
    FIRST,
    NARROW,
    crossing_of,
    find_freezing,
    growth_of,
    observed_growth,
)
from reference.melting_walks import MELTS, SEGMENT, rows_of, walk

PLAN = PlannedPoints(2, 2)


def campaign(seed, count=24, *, melts=MELTS, at_once=1, **how):
    """Return what a steered campaign of walks finds, so many of which are under way at once."""
    rng, rows = np.random.default_rng(seed), []
    steerer = Bisection(math.log(180), math.log(260))
    while len(rows) < count:
        for one in steerer.ask(at_once):
            rows.append(rows_of(f"c{len(rows)}", one.coordinate, walk(rng, one.coordinate, melts=melts, **how)))
        for row in rows[-at_once:]:
            told = observed_growth(row)
            assert told is not None
            steerer.tell([told])
    return find_freezing(rows, PLAN)


@pytest.mark.parametrize("how", [{}, {"bend": 3.0}, {"at_once": 33, "count": 33, "bend": 3.0}])
def test_the_quoted_error_covers_the_truth(how):
    pulls = []
    for seed in range(60):
        found = campaign(seed, **how)
        assert found.log_gamma is not None
        assert found.error is not None
        pulls.append((found.log_gamma - MELTS) / found.error)
    inside = np.mean(np.abs(pulls) < 1)
    assert 0.52 <= inside <= 0.86, inside  # 68 % of 60, three deviations
    assert abs(np.mean(pulls)) < 0.5
    assert np.sqrt(np.mean(np.square(pulls))) < 1.6


def test_a_well_measured_crossing_is_established_and_says_so():
    found = campaign(3, 32)
    assert found.established, [item for item in found.evidence if not item.holds]
    assert found.error < NARROW
    assert "rates of growth cross zero" in found.said
    assert abs(found.log_gamma - MELTS) < 3 * found.error


@pytest.mark.parametrize("melts", [math.log(150), math.log(320)])
def test_a_crystal_that_always_melts_or_never_does_is_no_crossing(melts):
    found = campaign(1, 12, melts=melts, noise=0.002)
    assert not found.established
    assert len({one.phase for one in found.trajectories}) == 1
    assert found.log_gamma is None
    assert "no coupling yet" in found.said


def test_few_trajectories_are_not_enough():
    found = campaign(5, 8)
    assert not found.established
    assert any(item.name == "rates of growth" and not item.holds for item in found.evidence)


def test_rates_that_do_not_rise_with_the_coupling_establish_nothing():
    rng = np.random.default_rng(4)
    places = np.linspace(math.log(200), math.log(235), 16)
    rows = [rows_of(f"c{i}", at, walk(rng, MELTS)) for i, at in enumerate(places)]
    found = find_freezing(rows, PLAN)
    assert not found.established
    assert any(item.name == "line that rises" and not item.holds for item in found.evidence)


def test_a_crossing_beyond_all_trajectories_is_not_believed():
    rng = np.random.default_rng(4)
    places = np.linspace(math.log(203), math.log(211), 16)
    rows = [rows_of(f"c{i}", at, walk(rng, at, noise=0.001)) for i, at in enumerate(places)]
    rows.append(rows_of("c99", math.log(250), np.full(14, 0.7)))  # grown at once: the other phase was seen
    found = find_freezing(rows, PLAN)
    assert found.log_gamma is not None
    assert not found.established
    assert any(item.name == "beyond the trajectories" and not item.holds for item in found.evidence)


def test_energy_that_drifts_is_not_believed():
    rng = np.random.default_rng(4)
    places = np.linspace(math.log(205), math.log(229), 30)
    made = [(f"c{i}", at, walk(rng, at)) for i, at in enumerate(places)]
    assert find_freezing([rows_of(*one) for one in made], PLAN).established
    found = find_freezing([rows_of(*one, energy=1e-5) for one in made], PLAN)
    assert [item.name for item in found.evidence if not item.holds] == ["energy drift [kT]"]


def test_rates_are_of_the_time_in_which_both_phases_are_there():
    order = [0.5, 0.48, *np.linspace(0.46, 0.22, 7), 0.1, 0.04, 0.04, 0.04, 0.04]
    grown = growth_of(rows_of("c0", MELTS, order, gamma=222.0))
    assert grown.rate == pytest.approx(-0.04 / SEGMENT)
    assert grown.time == 7 * SEGMENT
    assert grown.gamma == pytest.approx(222.0)
    assert grown.phase == -1


@pytest.mark.parametrize(("order", "phase"), [(0.05, -1), (0.72, 1)])
def test_one_that_is_over_at_once_has_a_side_and_no_rate(order, phase):
    rows = rows_of("c0", MELTS, np.full(12, order))
    grown, told = growth_of(rows), observed_growth(rows)
    assert (grown.rate, grown.phase) == (None, phase)
    assert (told.value, told.error) == (phase * FAST, FAST)
    assert not BOTH[0] < order < BOTH[1]


def test_too_short_or_no_numbers_say_nothing():
    assert growth_of(rows_of("c0", MELTS, np.full(FIRST + 3, 0.4))) is None
    order = np.full(12, 0.4)
    order[5] = np.nan
    assert growth_of(rows_of("c0", MELTS, order)) is None
    assert observed_growth(rows_of("c0", MELTS, order)) is None
    found = find_freezing([rows_of("c0", MELTS, order)], PLAN)
    assert found.trajectories == ()
    assert not found.established


def test_a_line_without_noise_crosses_where_it_does():
    x = np.array([0.0, 0.1, 0.3, 0.4])
    found = crossing_of(x, 2 * (x - 0.17), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.at == pytest.approx(0.17, abs=1e-12)
    assert found.error < 1e-9
    assert crossing_of(x, -x, np.ones(4)) is None  # falls
    assert crossing_of([0.2, 0.2, 0.2], [1, 2, 3], np.ones(3)) is None  # at one place
    assert crossing_of(x[:2], x[:2], np.ones(2)) is None


def test_the_steerer_finds_the_crossing_and_keeps_to_both_sides_of_it():
    rng = np.random.default_rng(7)
    steerer = Bisection(math.log(180), math.log(260))
    asked = []
    for number in range(24):
        at = steerer.ask(1)[0].coordinate
        asked.append(at)
        steerer.tell([observed_growth(rows_of(f"c{number}", at, walk(rng, at)))])
    assert asked[:2] == [steerer.history.low, steerer.history.high]
    late = np.array(asked[8:])
    assert np.abs(late - MELTS).max() < 0.1  # none wasted on ends that are known
    assert 5 <= (late > MELTS).sum() <= 11
    assert len({round(at, 9) for at in asked}) == len(asked)
