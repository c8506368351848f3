"""Campaigns against independent values: minutes each, `make test-long`."""

import msgspec
import pytest

from metalforge.campaign.report.result import Results
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, preset

PEAK, PEAK_ERROR = 5.6916, 0.0015
"""The chi peak of 8^3 x 4 from 58,000 independent measurements at four couplings, multi-histogram."""


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12])
def test_the_demo_finds_the_transition_of_8x8x8x4(seed, tmp_path):
    """Gate: the quoted error is at most 0.006, the value within 3 combined sigma."""
    spec = msgspec.structs.replace(preset("demo"), seed=seed, budget=Budget(trajectories=25_000))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        found = Results(campaign.run()).systems[0].transition
    assert found.error <= 0.006
    assert abs(found.result - PEAK) < 3 * (found.error**2 + PEAK_ERROR**2) ** 0.5
    assert found.height == pytest.approx(1.327, abs=3 * (found.height_error**2 + 0.019**2) ** 0.5)


@pytest.mark.long
def test_a_dynamical_campaign_finds_where_the_loop_and_the_condensate_change(tmp_path):
    """Four flavours on 8^3 x 4: steps tuned and frozen, heads outside their domain recorded and not followed.

    2000 trajectories of tau_int about 50 show where Re L rises and the condensate falls. They establish no beta_c, and
    must not seem to.
    """
    spec = msgspec.structs.replace(preset("dynamical-nf4"), budget=Budget(trajectories=2000))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.finished.trajectories <= spec.budget.trajectories
    for chain in state.chains.values():
        assert chain.phases.count("quench") == 0
        if chain.measured > 50:
            assert chain.column("accepted").mean() > 0.5
            assert chain.column("cg_iterations").min() > 0
    assert not any(d.trusted for d in state.decisions if d.what == "warmup-ends")
    assert not any(d.trusted for d in state.heads.values())
    result = Results(state)
    assert result.observable == "re_loop"
    assert not result.systems[0].established
    points = [chain.quarks for chain in result.chains if chain.quarks is not None]
    low, high = points[0], points[-1]
    assert low.re_loop.mean + 3 * low.re_loop.error < high.re_loop.mean
    assert low.condensate.mean > high.condensate.mean + 3 * (low.condensate.error + high.condensate.error)
    assert max(point.disconnected.mean / point.disconnected.error for point in points) > 2
