"""Evidence: a peak that nobody measured is not quoted, however small its error; one that was, with what it rests on."""

import numpy as np
import pytest

from metalforge.campaign.physics.evidence import MIN_BLOCKS, NOT_APPLICABLE, PlannedPoints, finding_of
from metalforge.campaign.physics.phases import crossings
from metalforge.campaign.physics.series import PointSeries
from metalforge.experiments.exact_model import CROSSOVER, DIMS, FIRST_ORDER, ExactChains

PLAN = PlannedPoints(5, 5)


def measured(model, betas, rows, *, seed=1, starts=("hot", "cold"), warm=600):
    """Chains of a model, from the starts in turn."""
    chains = ExactChains(model, np.random.default_rng(seed))
    for i, beta in enumerate(betas):
        chains.add(beta, starts[i % len(starts)])
    chains.advance(range(len(betas)), warm)
    plaquette, loop, _ = chains.advance(range(len(betas)), rows)
    return [
        PointSeries(b, DIMS, plaquette[:, i], loop[:, i].astype(complex), starts[i % len(starts)])
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
        assert abs(found.transition.beta_c - model.peak()[0]) < 3 * found.transition.error
        assert found.wants == ()


def test_an_order_parameter_of_another_name_is_not_called_the_modulus_of_the_loop():
    """The same numbers as a given observable: the same evidence, in words that do not say |L|."""
    centre = CROSSOVER.peak()[0]
    points = measured(CROSSOVER, centre + np.array([-0.02, -0.01, 0.0, 0.01, 0.02]), 1500)
    plain = finding_of(points, PLAN, seed=1, n_bootstrap=20)
    named = finding_of([p._replace(observable=p.abs_loop) for p in points], PLAN, seed=1, n_bootstrap=20)
    assert named.transition == plain.transition
    assert [item.value for item in named.evidence] == [item.value for item in plain.evidence]
    assert any("|L|" in item.name + item.text for item in plain.evidence)
    assert not any("|L|" in item.name + item.text for item in named.evidence)


def test_the_kind_of_transition_is_seen_and_crossings_count_where_there_are_phases(crossover, two_phases):
    assert items(crossover)["kind of transition"].value == "one phase"
    assert items(crossover)["crossings between the phases"].value == NOT_APPLICABLE
    assert items(two_phases)["kind of transition"].value == "two phases"
    assert items(two_phases)["crossings between the phases"].value > 50


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
        loop = point.abs_loop
        inside = loop < 0.15 if start == "hot" else loop > 0.27
        chosen = np.flatnonzero(inside)[:rows]
        quiet.append(point._replace(plaquette=point.plaquette[chosen], polyakov=point.polyakov[chosen]))
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
    assert abs(wants["chains at the peak"].beta - found.transition.beta_c) < 1e-12
    assert wants["starts near the peak"].start == "cold"


def test_a_chain_that_disagrees_stays_and_is_evidence():
    """It was deleted once: at a first-order point that removes the physics."""
    centre = CROSSOVER.peak()[0]
    chains = measured(CROSSOVER, centre + np.array([-0.03, -0.01, 0.0, 0.015, 0.03]), 4000)
    off = measured(CROSSOVER, [centre + 0.005], 4000, seed=9)[0]
    off = off._replace(plaquette=off.plaquette + 0.004)
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
    assert "edge" in found.reason
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
