"""D* and eta* along Gamma from trajectories whose numbers are known, what is lacking, and where more work goes."""

import math
from collections import Counter

import numpy as np
import pytest

from metalforge.campaign.analysis.evidence import PlannedPoints
from metalforge.campaign.steerers.curve import CurveSteerer
from metalforge.core.steering import Observation
from metalforge.plasma.campaign.transport import (
    FEWEST_SEGMENTS,
    curve_of,
    drift_of,
    find_transport,
    observed_transport,
    transport_of,
)
from reference.drawn_segments import drawn, truth

LOW, HIGH = math.log(80), math.log(1000)
PLAN = PlannedPoints(5, 5)


def trajectories(seed=1, places=6, segments=24, **how):
    rng = np.random.default_rng(seed)
    return [drawn(f"c{i}", at, segments, rng, **how) for i, at in enumerate(np.linspace(LOW, HIGH, places))]


def lacking(found):
    return [item.name for item in found.evidence if not item.holds]


def test_points_have_the_truth_within_their_errors():
    pulls = []
    for seed in range(6):
        for rows in trajectories(seed, places=4):
            point = transport_of([rows])
            _, diffusion, eta = truth(rows.at)
            pulls.append((point.diffusion - diffusion) / point.diffusion_error)
            pulls.append((point.viscosity - eta) / point.viscosity_error)
            assert point.abscissa == pytest.approx(rows.at, abs=0.005)
    assert np.sqrt(np.mean(np.square(pulls))) < 1.5
    assert abs(np.mean(pulls)) < 0.6


def test_a_good_set_is_established_and_its_curve_is_right():
    found = find_transport(trajectories(), PLAN, LOW, HIGH, 0.08)
    assert found.established, lacking(found)
    off = np.array([np.log(truth(at)[1:]) for at in found.curve.at]).T
    assert np.abs(np.array(found.curve.log_diffusion) - off[0]).max() < 0.05
    assert np.abs(np.array(found.curve.log_viscosity) - off[1]).max() < 0.25
    assert found.curve.error == max(found.curve.errors)
    assert lacking(find_transport(trajectories(), PLAN, LOW, HIGH, 0.001)) == ["error of the curve"]


def test_trajectories_of_one_coupling_are_taken_together():
    rng, at = np.random.default_rng(3), math.log(200)
    rows = [drawn("c0", at, 12, rng), drawn("c1", at, 12, rng)]
    both = transport_of(rows)
    assert (both.trajectories, both.segments) == (2, 24)
    assert both.viscosity_error < min(transport_of([one]).viscosity_error for one in rows)


def test_crystals_drifts_and_trajectories_that_go_on_relaxing_are_caught():
    good = trajectories()
    assert lacking(find_transport(trajectories(bragg=60.0), PLAN, LOW, HIGH, None)) == ["fluid, not crystal"]
    cooling = good[2].columns["kinetic"] * np.linspace(1.05, 0.95, 24)
    potential = 30.0 - cooling
    changed = good[2]._replace(columns={**good[2].columns, "kinetic": cooling, "potential": potential})
    assert lacking(find_transport([*good[:2], changed, *good[3:]], PLAN, LOW, HIGH, None)) == ["equilibrated"]
    drifting = good[2]._replace(
        columns={**good[2].columns, "potential": good[2].columns["potential"] + np.linspace(0, 0.5, 24)}
    )
    assert drift_of(drifting) > 2e-3 > drift_of(good[2])
    assert "energy drift [kT]" in lacking(find_transport([drifting, *good[3:]], PLAN, LOW, HIGH, None))


def test_too_little_or_no_numbers_say_nothing():
    rng = np.random.default_rng(1)
    assert transport_of([drawn("c0", LOW, FEWEST_SEGMENTS - 1, rng)]) is None
    rows = drawn("c0", LOW, 12, rng)
    broken = rows._replace(columns={**rows.columns, "stress_1": np.full(12, np.nan)})
    assert transport_of([broken]) is None
    assert observed_transport(broken) is None
    few = find_transport(trajectories(places=2), PLAN, LOW, HIGH, None)
    assert (few.curve, few.established) == (None, False)
    assert "fewer than three" in few.said
    assert curve_of(few.points, LOW, HIGH) is None
    assert not find_transport([], PLAN, LOW, HIGH, None).established


def observation(i, at, error):
    return Observation(
        coordinate=at, value=-2 + 0.3 * at, error=error, cost=7.0, id=f"c{i}", more=((-4 - at, error / 5),)
    )


def test_a_steerer_of_curves_sees_ends_first_and_then_goes_where_noise_is():
    steerer = CurveSteerer(LOW, HIGH, initial=5, fresh_cost=1.2)
    asked = [one.coordinate for one in steerer.ask(5)]
    assert sorted(asked) == pytest.approx(np.linspace(LOW, HIGH, 5))
    assert set(asked[:2]) <= {LOW, HIGH} or LOW in asked[:2] or HIGH in asked[:2]
    for side in (0, 1):
        steerer = CurveSteerer(LOW, HIGH, initial=5, fresh_cost=1.2)
        for i, x in enumerate(np.linspace(0, 1, 5)):
            noisy = 0.2 if (x > 0.5) == bool(side) else 0.02
            steerer.tell([observation(i, LOW + x * (HIGH - LOW), noisy)])
        mean = np.mean([(one.coordinate - LOW) / (HIGH - LOW) for one in steerer.ask(4)])
        assert (mean > 0.5) == bool(side)


def test_many_at_once_are_spread_before_anything_is_known():
    steerer = CurveSteerer(LOW, HIGH, initial=5)
    for waiting in ([], [LOW, HIGH]):
        counts = Counter(one.coordinate for one in steerer.ask(131 - len(waiting), waiting)) + Counter(waiting)
        assert {LOW, HIGH} < set(counts)
        assert 13 <= len(counts) <= 15
        assert max(counts.values()) <= 10
        assert np.diff(sorted(counts)).max() < (HIGH - LOW) / 6


def test_the_curve_through_a_first_volley_covers_the_truth():
    asked = Counter(one.coordinate for one in CurveSteerer(LOW, HIGH, initial=5).ask(131))
    pulls = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        points = [
            transport_of([drawn(f"c{i}.{k}", at, 10, rng) for k in range(count)])
            for i, (at, count) in enumerate(asked.items())
        ]
        curve = curve_of([point for point in points if point is not None], LOW, HIGH)
        _, diffusion, eta = np.array([truth(at) for at in curve.at]).T
        pulls.append([
            (np.array(curve.log_diffusion) - np.log(diffusion)) / curve.log_diffusion_error,
            (np.array(curve.log_viscosity) - np.log(eta)) / curve.log_viscosity_error,
        ])  # fmt: skip
    inside = (np.abs(pulls) < 1).mean(axis=(0, 2))
    assert (inside > 0.5).all(), inside
    assert ((np.abs(pulls) < 2).mean(axis=(0, 2)) > 0.85).all()


def test_what_is_under_way_counts_as_measured():
    steerer = CurveSteerer(LOW, HIGH, initial=3)
    for i, x in enumerate((0.0, 0.5, 1.0)):
        steerer.tell([observation(i, LOW + x * (HIGH - LOW), 0.1)])
    first = steerer.ask(1)[0]
    second = steerer.ask(1, [first.coordinate])[0]
    assert second.coordinate != first.coordinate
    assert [one.coordinate for one in steerer.ask(2)] == [first.coordinate, second.coordinate]
    assert "rms error" in first.reason
