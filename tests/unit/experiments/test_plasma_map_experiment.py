"""Campaigns on drawn segments: the law that they are drawn from, the grids beside, and the ratio of costs."""

import math

import numpy as np
import pytest

from experiments import Settings
from experiments import plasma_map as study
from metalforge.core.steering import Observation
from metalforge.plasma.campaign.transport import transport_of
from reference.drawn_segments import KAPPA, PARTICLES, drawn, truth

PLAN = study.MapPlan(kappa=KAPPA, particles=PARTICLES, gamma_min=80.0, gamma_max=1000.0, pools=5, pool=200, visits=8)


@pytest.fixture(scope="module")
def pools():
    """Laws of segments whose truth is known."""
    rng = np.random.default_rng(5)
    return study.SegmentPools(PLAN, [drawn("pool", at, PLAN.pool, rng).columns for at in PLAN.places])


def test_laws_are_those_of_the_segments(pools):
    assert pools.noise == pytest.approx(1.0, abs=0.1)
    log_d, log_eta = pools.truth(PLAN.places)
    for d, eta, at in zip(log_d, log_eta, PLAN.places, strict=True):
        assert d == pytest.approx(math.log(truth(at)[1]), abs=0.02)
        assert eta == pytest.approx(math.log(truth(at)[2]), abs=0.1)


def test_drawn_segments_have_the_truth_between_pools_too(pools):
    at = float(PLAN.places[1:3].mean())
    pulls = []
    for seed in range(8):
        point = transport_of([pools.draw(at, 60, "c0", np.random.default_rng(seed))])
        log_d, log_eta = (float(one[0]) for one in pools.truth(np.array([at])))
        pulls.append([
            (math.log(point.diffusion) - log_d) * point.diffusion / point.diffusion_error,
            (math.log(point.viscosity) - log_eta) * point.viscosity / point.viscosity_error,
        ])  # fmt: skip
    assert np.abs(np.mean(pulls, axis=0)).max() < 1.1  # three errors of a mean of eight
    assert np.sqrt(np.mean(np.square(pulls))) < 1.6


def test_more_visits_make_better_curves_and_the_same_seed_the_same_ones(pools):
    traces = [study.campaign_on(pools, study.steerer_named(PLAN, "ends 5"), (1, k)) for k in range(4)]
    assert all(np.all(np.diff(trace.cost) > 0) for trace in traces)
    again = study.campaign_on(pools, study.steerer_named(PLAN, "ends 5"), (1, 0))
    assert np.array_equal(again.squares, traces[0].squares)
    costs = np.array([traces[0].cost[0], traces[0].cost[-1]])
    first, last = study.error_at(traces, costs)
    assert last < first


def test_a_grid_with_ends_gives_each_the_same():
    steerer = study.EvenWithEnds(0.0, 1.0, points=3)
    asked = []
    for number in range(6):
        asked.append(steerer.ask(1)[0].coordinate)
        count = asked.count(asked[-1])
        steerer.tell([
            Observation(coordinate=asked[-1], value=0.0, error=1.0, cost=float(count), id=str(asked[-1]))
        ])  # fmt: skip
        assert number >= 0
    assert sorted(asked) == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]


def trace(scale):
    cost = np.arange(1.0, 30)
    return study.CampaignTrace(scale * cost, np.stack([0.01 / cost, 0.02 / cost], axis=1))


def test_the_ratio_is_that_of_costs_for_one_error():
    level = math.sqrt(0.02 / 15)
    assert study.cost_ratio([trace(1.0)] * 3, [trace(1.0)] * 3, level) == pytest.approx(1.0)
    assert study.cost_ratio([trace(0.5)] * 3, [trace(1.0)] * 3, level) == pytest.approx(0.5, rel=0.05)


def test_the_best_design_of_a_parabola_is_that_of_the_textbook():
    """A quarter of the work at each end and half in the middle: 32/15 where uniform work leaves 3 (I-optimal)."""
    at, flat = np.linspace(2.0, 5.0, 601), np.ones(601)
    assert study.least_part(flat, at, at) == pytest.approx(32 / 15 / 3, rel=0.01)
    quarters = np.array([2.0, 3.5, 3.5, 5.0])
    assert study.least_part(flat, at, quarters) == pytest.approx(1.0, rel=0.005)
    assert study.least_part(7 * flat, at, quarters) == pytest.approx(1.0, rel=0.005)
    lopsided = np.where(at > 3.5, 9.0, 1.0)
    assert study.least_part(lopsided, at, quarters) < 0.9


def test_a_quick_run_names_its_goal(monkeypatch, tmp_path):
    monkeypatch.setenv("METALFORGE_CACHE", str(tmp_path))
    found = study.run(Settings(quick=True), lambda *_: None)
    assert {row.metric for row in found.rows} == {"atom-steps"}
    assert [row.task.split(", ")[1] for row in found.rows[::3]] == ["any even grid", "grid", "ends"]
    assert all(row.low <= row.high and row.value > 0 for row in found.rows)
    ((asked, _, holds),) = found.checks
    assert "0.6" in asked
    assert holds == (found.rows[0].value <= 0.6)
