"""What the target is for, and how the work of several volumes is shared for it."""

from math import prod

import numpy as np
import pytest

from metalforge.campaign.analysis.finite_size import SystemPeak, extrapolate
from metalforge.campaign.findings import OTHERS, gains, target_looks, target_met
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.running.visits import VisitPlan
from metalforge.campaign.spec import Budget, CampaignSpec, Steering
from metalforge.campaign.state import fold
from metalforge.campaign.store.records import Estimated
from metalforge.core.errors import SpecError
from metalforge.core.steering import Suggestion
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.theory import FirstOrderLaw
from reference.campaigns import BEGAN, opened

VOLUMES = ((12, 12, 12, 4), (8, 8, 8, 4), (16, 16, 16, 4), (24, 24, 24, 4))
SIGMA = {dims: 0.02 * (i + 1) for i, dims in enumerate(VOLUMES)}
"""Error of each volume after one visit."""


def spec_of(target_of="infinite", volumes=VOLUMES, **steering):
    return CampaignSpec(
        theory=Lattice(volumes=volumes),
        budget=Budget(seconds=10.0, target_error=0.001, target_of=target_of),
        steering=Steering(**steering),
    )


def on_line(dims):
    return 5.6925 - 0.12 * 64 / prod(dims[:3])


def estimate(state, dims, error, n=100, *, established=True, off=0.0):
    beta_c = None if error is None else on_line(dims) + off
    effective = 0.0 if error is None else error**-2
    state.apply(
        Estimated(
            at=BEGAN,
            system=dims,
            trajectories=n,
            result=beta_c,
            error=error,
            effective=effective,
            established=established and error is not None,
        )
    )


def target_error(state):
    looks = target_looks(state)
    return looks[-1].error if looks else None


class Anywhere:
    """A steerer that always wants the same beta."""

    name = "anywhere"

    def ask(self, n, pending=()):
        return [Suggestion(coordinate=5.7, reason="")]


def shared(spec, visits, *, located=True):
    """Return the visits of every volume when errors fall as n^(-1/2), and the last state."""
    state = fold([opened(spec)])
    plan = VisitPlan(spec=spec, steerers=dict.fromkeys(spec.theory.volumes, Anywhere()))
    who = Assignee("cpu:0", spec.theory.volumes)
    for number in range(visits):
        state.apply(plan.next(who, state, (), rounds=0, number=number))
        counts = {dims: sum(visit.system == dims for visit in state.visits) for dims in spec.theory.volumes}
        for dims, count in counts.items():
            if located and count:
                estimate(state, dims, SIGMA[dims] / count**0.5)
    return counts, state


def error_of(counts):
    peaks = [SystemPeak(dims, on_line(dims), SIGMA[dims] / n**0.5) for dims, n in counts.items() if dims[0] > 8]
    return extrapolate(peaks, FirstOrderLaw())[0].error


def test_the_error_is_that_of_the_first_volume_or_of_infinite_volume():
    for target_of, wanted in (("first", 0.002), ("infinite", None)):
        state = fold([opened(spec_of(target_of, volumes=VOLUMES[:3]))])
        assert target_error(state) is None
        estimate(state, VOLUMES[1], 0.001)
        assert target_error(state) is None
        estimate(state, VOLUMES[0], 0.002)
        assert target_error(state) == wanted
    estimate(state, VOLUMES[2], None)
    assert target_error(state) is None
    estimate(state, VOLUMES[2], 0.001, n=700)
    estimate(state, VOLUMES[2], 0.0005, n=900)
    peaks = [SystemPeak(dims, on_line(dims), error) for dims, error in ((VOLUMES[0], 0.002), (VOLUMES[2], 0.0005))]
    assert target_error(state) == pytest.approx(extrapolate(peaks, FirstOrderLaw())[0].error)
    assert [seen.trajectories for seen in target_looks(state) if seen.error] == [700, 900]


def test_infinite_volume_is_established_with_all_its_volumes_on_one_line():
    state = fold([opened(spec_of(volumes=(VOLUMES[0], *VOLUMES[2:])))])
    for dims in (VOLUMES[0], VOLUMES[2]):
        estimate(state, dims, 0.001)
    assert target_looks(state) == []
    estimate(state, VOLUMES[3], 0.001, established=False)
    assert not target_looks(state)[-1].established
    estimate(state, VOLUMES[3], 0.001)
    before = target_looks(state)[-1]
    assert before.established
    # Twice the samples everywhere: half the variance but for the bend of the line, and twice what carries it.
    for dims in (VOLUMES[0], *VOLUMES[2:]):
        estimate(state, dims, 0.001 / 2**0.5)
    after = target_looks(state)[-1]
    assert after.effective == pytest.approx(2 * before.effective)
    assert before.error**2 / 2 < after.error**2 < 0.65 * before.error**2
    estimate(state, VOLUMES[2], 0.0005, off=0.01)
    estimate(state, VOLUMES[3], 0.0005)
    assert not target_looks(state)[-1].established
    assert not target_met(state)


def test_a_target_for_infinite_volume_is_met_by_the_extrapolation():
    state = fold([opened(spec_of())])
    for _ in range(2):
        for dims in (VOLUMES[0], *VOLUMES[2:]):
            assert not target_met(state)
            estimate(state, dims, 0.0004)
    assert target_met(state)
    # The first volume alone would have been enough long before, were the target for it.
    first = fold([opened(spec_of("first"))])
    for _ in range(2):
        estimate(first, VOLUMES[0], 0.0004)
    assert target_met(first)


def test_work_for_infinite_volume_goes_where_it_shrinks_the_error_most():
    counts, state = shared(spec_of(initial=2), 400)
    # The best that can be had for the same work, by trying shares at random.
    work = sum(counts[dims] * prod(dims) for dims in VOLUMES[2:] + VOLUMES[:1])
    rng = np.random.default_rng(3)
    scaling = [dims for dims in VOLUMES if dims[0] > 8]
    best = min(
        error_of({dims: share * work / prod(dims) for dims, share in zip(scaling, shares, strict=True)})
        for shares in rng.dirichlet(np.ones(3), size=4000)
    )
    assert error_of(counts) < 1.02 * best
    assert error_of(counts) == pytest.approx(target_error(state))
    assert counts[(8, 8, 8, 4)] == 2  # its first points, and no more: it is not on the line


def test_the_first_volume_gets_most_of_the_work_and_each_other_a_quarter_of_it():
    counts, _ = shared(spec_of("first", initial=2), 600)
    work = {dims: counts[dims] * prod(dims) for dims in VOLUMES}
    for dims in VOLUMES[1:3]:
        assert work[dims] / work[VOLUMES[0]] == pytest.approx(OTHERS, rel=0.2)


def test_a_volume_that_is_not_located_comes_first_where_it_is_needed():
    state = fold([opened(spec_of())])
    for dims in VOLUMES[:3]:
        estimate(state, dims, 0.001)
    worth = gains(state)
    assert worth[VOLUMES[3]] == float("inf")
    assert worth[VOLUMES[1]] == 0.0
    assert 0 < worth[VOLUMES[0]] < 1e-4
    counts, _ = shared(spec_of(initial=2), 40, located=False)
    assert counts[(8, 8, 8, 4)] == 2


def test_an_extrapolation_of_one_volume_is_no_target():
    with pytest.raises(SpecError, match="two systems"):
        spec_of(volumes=VOLUMES[:2])
