"""A peak that is expected places the first points and weighs paths; data overrule it, and nothing else reads it."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_steerers_gaussian_process import lorentz, measure, told

from metalforge.campaign.steerers.gaussian_process import GaussianProcess
from metalforge.campaign.steerers.peak_prior import PeakPrior
from metalforge.core.errors import SpecError
from metalforge.core.threads import one_thread
from reference.posterior_peaks import peak_of

LOW, HIGH, PEAK, REACH = 5.0, 6.5, 5.69, 0.0156


@settings(max_examples=30)
@given(st.floats(-0.5, 1.5), st.floats(1e-4, 2.0), st.floats(0.0, 1.0))
def test_quantiles_invert_the_prior_and_never_leave_the_range(mean, width, share):
    prior = PeakPrior(mean, width)
    x = prior.at(share)
    assert 0 <= x <= 1
    assert prior.share(x) == pytest.approx(share, abs=1e-6)
    assert prior.density(np.array([0.0, 0.5, 1.0])).min() >= 0.1 - 1e-12


def test_a_prior_beyond_the_range_leaves_an_even_spread():
    far = [s.coordinate for s in GaussianProcess(0.0, 1.0, reach=0.02, prior=(40.0, 0.5)).ask(5)]
    assert far == pytest.approx([s.coordinate for s in GaussianProcess(0.0, 1.0, reach=0.02).ask(5)])


def test_first_points_are_quantiles_on_both_flanks_whatever_is_under_way():
    steerer = GaussianProcess(LOW, HIGH, reach=REACH, prior=(PEAK, 0.02))
    together = sorted(s.coordinate for s in steerer.ask(3))
    pending: list[float] = []
    for _ in range(3):
        pending.append(steerer.ask(1, pending)[0].coordinate)
    assert sorted(pending) == together
    assert together[1] == pytest.approx(PEAK, abs=0.005)
    assert PEAK - 0.05 < together[0] < PEAK - 0.02
    assert PEAK + 0.02 < together[2] < PEAK + 0.05
    assert "5.690(20)" in steerer.ask(1)[0].reason
    # A prior that knows the place exactly still looks at both flanks: a maximum is one by what is beside it.
    sharp = sorted(s.coordinate for s in GaussianProcess(LOW, HIGH, reach=REACH, prior=(PEAK, 1e-9)).ask(3))
    assert sharp[2] - sharp[0] > REACH
    # Silicon that wants many chains before anything is known gets as many, all different.
    assert len({s.coordinate for s in steerer.ask(12)}) == 12


def test_without_a_prior_suggestions_are_what_they_were():
    # As before there were priors, to the last bit: these are places of a grid and of an even spread.
    assert [s.coordinate for s in GaussianProcess(0.0, 1.0, reach=0.02).ask(3, [0.5])] == [0.1, 0.9, 0.3]
    betas = np.linspace(5.45, 5.95, 9)
    plain, none = (
        told(betas, grid=61, paths=64, reach=0.03, fresh_cost=1.5, **prior) for prior in ({}, {"prior": None})
    )
    assert plain.ask(3, [5.71]) == none.ask(3, [5.71])
    found = [s.coordinate for s in told(betas, grid=61, paths=64, reach=0.03, fresh_cost=1.5).ask(3, [5.71])]
    assert found == pytest.approx([5.7, 5.69, 5.68], abs=1e-9)


def test_a_peak_that_is_known_is_still_looked_at_from_as_many_points_as_were_asked_for():
    rng = np.random.default_rng(1)
    steerer = GaussianProcess(4.9, 5.3, reach=0.0625, fresh_cost=1.3, initial=5, prior=(5.084, 0.004), paths=64)
    spent: dict[float, int] = {}
    for _ in range(9):
        beta = steerer.ask(1)[0].coordinate
        spent[beta] = spent.get(beta, 0) + 1
        steerer.tell([measure(lorentz, beta, 5.084, 0.2 / np.sqrt(spent[beta]), rng, f"{beta}")])
    betas = sorted(spent)
    assert len(betas) == 5
    assert np.diff(betas).min() > 0.008  # beyond what a visit would take for a chain that is there
    assert (
        len({s.coordinate for s in GaussianProcess(4.9, 5.3, reach=0.0625, initial=5, prior=(5.084, 0.004)).ask(5)})
        == 5
    )


def campaign(prior, seed, blocks=20):
    """Return the samples that carry the peak after so many blocks, and the blocks spent, by beta."""
    rng = np.random.default_rng([seed, 6])
    steerer = GaussianProcess(LOW, HIGH, fresh_cost=1.4, reach=REACH, seed=seed, prior=prior, grid=101, paths=64)
    spent: dict[float, int] = {}
    with one_thread():
        for _ in range(blocks):
            beta = steerer.ask(1)[0].coordinate
            spent[beta] = spent.get(beta, 0) + 1
            seen = measure(lorentz, beta, PEAK, 0.3 / np.sqrt(spent[beta]), rng, f"{beta}")
            steerer.tell([msgspec.structs.replace(seen, cost=spent[beta] + 0.4)])
    return sum(n * np.exp(-(((beta - PEAK) / REACH) ** 2)) for beta, n in spent.items())


def test_an_oracle_brings_the_samples_to_the_peak_and_a_wrong_prior_is_overruled():
    """The error goes as the samples that carry the peak to the power -1/2."""
    none, oracle, wrong = (
        np.mean([campaign(prior, seed) for seed in range(2)]) for prior in (None, (PEAK, 0.005), (PEAK - 0.1, 0.02))
    )
    assert oracle > 1.5 * none
    # Three of twenty blocks were spent where the peak is not.
    assert wrong > 0.5 * none


def test_what_is_expected_may_change_and_is_no_part_of_what_the_data_say():
    betas = np.linspace(5.45, 5.95, 9)
    one, other = told(betas, reach=0.03, prior=(5.69, 0.002)), told(betas, reach=0.03)
    assert peak_of(one) == peak_of(other)
    assert one.ask(3) != other.ask(3)
    one.expect(None)
    assert one.ask(3) == other.ask(3)


@pytest.mark.parametrize("prior", [(5.7, 0.0), (5.7, -1.0), (float("nan"), 0.1), (5.7, float("inf"))])
def test_a_prior_that_makes_no_sense_is_refused(prior):
    with pytest.raises(SpecError, match="`prior` must be"):
        GaussianProcess(LOW, HIGH, reach=REACH, prior=prior)
