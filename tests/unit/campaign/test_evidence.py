"""Evidence: a peak that nobody measured is not quoted, however small its error; one that was, with what it rests on."""

from math import prod
from statistics import NormalDist

import numpy as np
import pytest

from experiments.exact_model import CROSSOVER, DIMS, FIRST_ORDER, RARE, ExactChains
from metalforge.campaign.analysis.agreement import ratio_pull, share_pull
from metalforge.campaign.analysis.evidence import (
    FALSE_ALARM,
    MAX_PULL,
    MIN_BLOCKS,
    NOT_APPLICABLE,
    PlannedPoints,
    finding_of,
    pull_limit,
)
from metalforge.campaign.analysis.phases import crossings, sides, transits
from reference.loop_series import loop_series

PLAN = PlannedPoints(5, 5)


def measured(model, betas, rows, *, seed=1, starts=("hot", "cold"), warm=600):
    """Chains of a model, from the starts in turn."""
    chains = ExactChains(model, np.random.default_rng(seed))
    for i, beta in enumerate(betas):
        chains.add(beta, starts[i % len(starts)])
    chains.advance(range(len(betas)), warm)
    plaquette, loop = chains.advance(range(len(betas)), rows)
    return [
        loop_series(b, DIMS, plaquette[:, i], loop[:, i].astype(complex), starts[i % len(starts)])
        for i, b in enumerate(betas)
    ]


def items(found):
    return {item.name: item for item in found.evidence}


@pytest.fixture(scope="module")
def crossover():
    centre = CROSSOVER.peak()[0]
    return finding_of(
        measured(CROSSOVER, centre + np.array([-0.03, -0.01, 0.0, 0.015, 0.03]), 4000), PLAN, seed=1, n_bootstrap=60
    )


@pytest.fixture(scope="module")
def two_phases():
    centre = FIRST_ORDER.peak()[0]
    betas = centre + np.array([-0.015, -0.006, 0.0, 0.0, 0.006, 0.015])
    return finding_of(measured(FIRST_ORDER, betas, 9000), PLAN, seed=1, n_bootstrap=60)


def test_well_measured_peaks_are_established(crossover, two_phases):
    for found, model in ((crossover, CROSSOVER), (two_phases, FIRST_ORDER)):
        assert found.lacking == ()
        assert found.established
        assert abs(found.transition.result - model.peak()[0]) < 3 * found.transition.error
        assert found.wants == ()


def test_an_order_parameter_of_another_name_is_not_called_the_modulus_of_the_loop():
    """The same numbers as a given observable: the same evidence, in words that do not say |L|."""
    centre = CROSSOVER.peak()[0]
    points = measured(CROSSOVER, centre + np.array([-0.02, -0.01, 0.0, 0.01, 0.02]), 1500)
    plain = finding_of(points, PLAN, seed=1, n_bootstrap=20)
    named = finding_of([p._replace(order_name="the order parameter") for p in points], PLAN, seed=1, n_bootstrap=20)
    assert named.transition == plain.transition
    assert [item.value for item in named.evidence] == [item.value for item in plain.evidence]
    assert any("|L|" in item.name + item.text for item in plain.evidence)
    assert not any("|L|" in item.name + item.text for item in named.evidence)


def test_the_kind_of_transition_is_seen_and_crossings_count_where_there_are_phases(crossover, two_phases):
    assert items(crossover)["kind of transition"].value == "one phase"
    assert items(crossover)["crossings between the phases"].value == NOT_APPLICABLE
    assert items(two_phases)["kind of transition"].value == "two phases"
    assert items(two_phases)["crossings between the phases"].value == two_phases.crossings > 50
    assert f"{crossover.crossings} times" in items(crossover)["crossings between the phases"].text
    assert two_phases.overlap == items(two_phases)["overlap of neighbours"].value


def test_every_item_says_what_it_needed_and_what_it_found(two_phases):
    numbers = [item for item in two_phases.evidence if item.needed is not None]
    assert len(numbers) >= 10
    for item in numbers:
        assert item.holds == (item.value <= item.needed if item.at_most else item.value >= item.needed)
        assert item.text


def stuck(model, below, above, rows, seed=3):
    """Chains that never leave the phase they started in: what a first-order point looks like before it tunnels."""
    quiet = []
    for beta, start in [*((b, "hot") for b in below), *((b, "cold") for b in above)]:
        point = measured(model, [beta], rows, seed=seed + int(1e4 * beta), starts=(start,), warm=5)[0]
        loop = point.order
        inside = loop < 0.15 if start == "hot" else loop > 0.27
        chosen = np.flatnonzero(inside)[:rows]
        quiet.append(point._replace(energy=point.energy[chosen], order=point.order[chosen]))
    return quiet


def test_chains_that_never_tunnel_establish_nothing():
    """Confined chains below, deconfined ones above, a sharp reweighted peak between them and no chain in it."""
    centre = FIRST_ORDER.peak()[0]
    chains = stuck(FIRST_ORDER, centre - np.array([0.03, 0.018]), centre + np.array([-0.008, 0.01, 0.03]), 6000)
    found = finding_of(chains, PLAN, seed=1, n_bootstrap=60)
    assert not found.established
    lacking = {item.name for item in found.lacking}
    assert lacking & {"crossings between the phases", "peak located"}
    if found.transition is not None:
        assert found.transition.height > 3


def test_a_short_measurement_lacks_blocks_and_says_how_many():
    centre = CROSSOVER.peak()[0]
    found = finding_of(measured(CROSSOVER, centre + np.array([-0.02, 0.0, 0.02]), 700), PLAN, seed=1, n_bootstrap=40)
    blocks = items(found)["independent blocks"]
    assert not found.established
    assert 8 <= blocks.value < blocks.needed == MIN_BLOCKS


def test_a_point_of_the_plan_that_was_not_visited_is_missing(crossover):
    centre = CROSSOVER.peak()[0]
    chains = measured(CROSSOVER, centre + np.array([-0.03, -0.01, 0.0, 0.015, 0.03]), 4000)
    found = finding_of(chains, PlannedPoints(6, 5), seed=1, n_bootstrap=40)
    assert [item.name for item in found.lacking] == ["points visited"]


def test_chains_that_are_missing_are_wanted_where_they_are_missing():
    centre = CROSSOVER.peak()[0]
    hot_only = measured(CROSSOVER, centre + np.array([-0.045, -0.025, 0.025, 0.045]), 6000, starts=("hot",))
    found = finding_of(hot_only, PLAN, seed=1, n_bootstrap=40)
    wants = {want.item: want for want in found.wants}
    assert {"chains at the peak", "starts near the peak"} <= set(wants)
    assert abs(wants["chains at the peak"].coordinate - found.transition.result) < 1e-12
    assert wants["starts near the peak"].start == "cold"


def test_a_chain_that_disagrees_stays_and_is_evidence():
    """It was deleted once: at a first-order point that removes the physics."""
    centre = CROSSOVER.peak()[0]
    chains = measured(CROSSOVER, centre + np.array([-0.03, -0.01, 0.0, 0.015, 0.03]), 4000)
    off = measured(CROSSOVER, [centre + 0.005], 4000, seed=9)[0]
    off = off._replace(energy=off.energy - 6 * prod(DIMS) * 0.004)
    found = finding_of([*chains, off], PLAN, seed=1, n_bootstrap=40)
    assert not found.established
    assert "pull of E and |L|" in {item.name for item in found.lacking}
    assert found.transition.chains == 6
    assert found.transition.scatter > 1.5
    agreed = finding_of(chains, PLAN, seed=1, n_bootstrap=40)
    assert agreed.transition.scatter == 1.0
    assert found.transition.error > 1.3 * agreed.transition.error


def test_without_a_peak_there_is_no_number_and_a_reason():
    centre = CROSSOVER.peak()[0]
    found = finding_of(measured(CROSSOVER, centre + np.array([0.06, 0.08, 0.1]), 3000), PLAN, seed=1, n_bootstrap=40)
    assert found.transition is None
    assert not found.established
    assert "edge" in found.said
    assert [item.name for item in found.lacking] == ["peak located"]


def test_noise_at_a_border_is_no_crossing():
    rng = np.random.default_rng(4)
    border = 0.5 + 0.04 * rng.normal(size=4000)
    assert crossings(border, 0.3, 0.7) == 0
    assert crossings(np.repeat([0.1, 0.9, 0.1, 0.5, 0.1, 0.9], 50), 0.3, 0.7) == 3


def test_chains_in_two_phases_remember_as_long_as_their_crossings_say():
    """tau_int of the model is 107 at the peak; from crossings it is known to some percent in every campaign."""
    centre = FIRST_ORDER.peak()[0]
    taus = []
    for seed in range(8):
        chains = measured(FIRST_ORDER, centre + np.array([-0.006, 0.0, 0.0, 0.006]), 5000, seed=seed)
        taus.append(finding_of(chains, PLAN, seed=1, n_bootstrap=20).transition.tau_int)
    assert 80 < min(taus) < max(taus) < 160
    assert 95 < np.median(taus) < 140


# -- a large volume: crossings are rare, and chains in the wings of the peak may never see the other phase -----------

SHARES = "pull of the time in a phase"


@pytest.fixture(scope="module")
def large():
    """16 chains over four half widths of a peak with a crossing in 1,500 updates, 320,000 updates in all."""
    return measured(RARE, RARE.peak()[0] + 0.0045 * np.linspace(-2, 2, 16), 20_000, seed=6)


@pytest.fixture(scope="module")
def found_large(large):
    return finding_of(large, PLAN, seed=1, n_bootstrap=40)


def test_a_large_volume_is_established_though_chains_in_the_wings_missed_a_phase(found_large):
    located = found_large.located
    moments = located.joint.moments(np.array([chain.coordinate for chain in located.chains]))[:, 0]
    curve = 512 * (moments[2] - moments[1] ** 2)
    own = [(chain.chi - chi) / chain.chi_error for chain, chi in zip(located.chains, curve, strict=True)]
    assert max(np.abs(own)) > MAX_PULL  # by what a chain alone knows of its error, they contradict the others
    assert found_large.lacking == ()
    assert abs(found_large.transition.result - RARE.peak()[0]) < 3 * found_large.transition.error
    assert found_large.transition.scatter == 1.0


def test_pulls_of_right_chains_scatter_as_those_of_a_gaussian(found_large):
    pulls = found_large.located.pulls
    for values in (pulls.energy, pulls.order, pulls.chi, pulls.share):
        assert 0.5 < np.std(values) < 1.5
        assert np.max(np.abs(values)) < 3.7


def inside_one_phase(point, *, upper, times=1):
    """A chain that never left one of its phases: its rows in the other are replaced."""
    there = np.flatnonzero((point.order > 0.27) if upper else (point.order < 0.15))
    chosen = np.resize(there, times * point.energy.size)
    return point._replace(energy=point.energy[chosen], order=point.order[chosen])


def widened(point):
    """A chain whose |L| fluctuates a twelfth too much inside its phases, with the right means."""
    loop, upper = point.order, sides(point.order, 0.15, 0.27)
    means = np.where(upper, loop[upper].mean(), loop[~upper].mean())
    return point._replace(order=np.abs(means + 1.08 * (loop - means)))


@pytest.mark.parametrize(
    ("fault", "item"),
    [
        (lambda chains: inside_one_phase(chains[8], upper=True, times=2), SHARES),  # stuck at the peak
        (
            lambda chains: inside_one_phase(chains[4], upper=True)._replace(coordinate=chains[2].coordinate),
            SHARES,
        ),  # in a wing
        (lambda chains: chains[14]._replace(coordinate=chains[8].coordinate), "pull of E and |L|"),  # not where it says
        (lambda chains: widened(chains[8]), "pull of chi"),
    ],
)
def test_one_wrong_chain_among_many_is_found(large, fault, item):
    found = finding_of([*large[:8], fault(large), *large[9:]], PLAN, seed=1, n_bootstrap=20)
    assert item in {lack.name for lack in found.lacking}


def test_a_large_volume_that_no_chain_crosses_is_not_established(large):
    """Each chain stays where it began: hot ones below, cold ones above, at every beta."""
    stuck_ones = [inside_one_phase(chain, upper=chain.start == "cold") for chain in large[::3]]
    found = finding_of(stuck_ones, PLAN, seed=1, n_bootstrap=20)
    assert not found.established
    assert {"crossings between the phases", "peak located"} & {item.name for item in found.lacking}


def test_the_time_in_a_phase_is_judged_by_its_exact_distribution():
    """Of a process with two states; the smaller tail, as a Gaussian's."""
    rng = np.random.default_rng(6)
    for share, tau, n in ((0.5, 50.0, 3000), (0.1, 40.0, 3000)):
        up = rng.random(4000) < share
        began, time, above = up.copy(), np.zeros(4000), np.zeros(4000)
        while np.any(time < n):
            stay = rng.exponential(tau / np.where(up, 1 - share, share))
            stay = np.minimum(stay, n - time)
            above, time, up = above + up * stay, time + stay, ~up
        pulls = [share_pull(n, t / n, bool(b), share, tau) for t, b in zip(above, began, strict=True)]
        for size, chance in ((1, 0.3173), (2, 0.0455), (3, 0.0027)):
            assert np.mean(np.abs(pulls) > size) < 1.15 * chance + 0.002
    # A chain that never went up is as likely as no event of a Poisson process.
    assert share_pull(1000, 0.0, False, 0.2, 50.0) == pytest.approx(-NormalDist().inv_cdf(1 - np.exp(-4)), abs=1e-6)


def test_the_pull_of_a_mean_square_has_the_tails_of_a_gaussian():
    rng, dof = np.random.default_rng(5), 20
    ratios = rng.chisquare(dof, 200_000) / dof
    pulls = np.array([ratio_pull(ratio, 2 / dof) for ratio in ratios])
    expected = 1 - NormalDist().cdf(3.5)
    assert np.mean(pulls > 3.5) < 3 * expected
    assert np.mean((ratios - 1) / np.sqrt(2 / dof) > 3.5) > 8 * expected  # the plain standard score
    assert abs(pulls.mean()) < 0.02
    assert pulls.std() == pytest.approx(1, abs=0.02)


def test_the_limit_of_the_largest_pull_follows_the_number_of_chains():
    rng = np.random.default_rng(6)
    for chains in (20, 100, 400):
        largest = np.abs(rng.normal(size=(20_000, chains))).max(axis=1)
        assert np.mean(largest > pull_limit(chains)) < 2.5 * FALSE_ALARM
    assert np.mean(largest > MAX_PULL) > 10 * FALSE_ALARM  # the limit of twenty chains, used for 400
    assert pull_limit(1) == MAX_PULL


def test_where_a_chain_is_has_a_memory_and_transits_are_in_the_middle():
    order = np.array([0.5, 0.1, 0.5, 0.5, 0.5, 0.9, 0.5, 0.9, 0.1])
    assert sides(order, 0.3, 0.7).tolist() == [False] * 5 + [True] * 3 + [False]
    assert transits(order, 0.3, 0.7).tolist() == [3, 7]
    assert not sides(np.full(4, 0.5), 0.3, 0.7).any()
