"""Quenched SU(3): published and independently measured values, and agreement of independent algorithms."""

import numpy as np
import pytest

from metalforge.campaign import PointSeries, locate
from metalforge.lattice import Chain, ChainSpec, HmcSpec, gradient_flow, scale_t0, warm_up
from metalforge.statistics import gamma_method, susceptibility
from reference.measured import TABLE, TRANSITION
from reference.statistics import agrees, sigmas


def record(chain, n):
    """Series of P, |L|, dH and acceptance over n updates."""
    rows = []

    def note(info, observed):
        rows.append((observed.plaquette, abs(observed.polyakov), info.delta_h or 0.0, float(info.accepted or 0)))

    chain.run(n, note)
    return np.array(rows).T


def heatbath(dims, beta, seed, warmup, n, **options):
    chain = Chain(ChainSpec(dims=dims, beta=beta, seed=seed, **options))
    warm_up(chain, warmup)
    return record(chain, n)


@pytest.mark.parametrize("beta", TABLE)
def test_plaquette_and_polyakov_loop_on_8_4(beta):
    plaquette, error, loop, loop_error = TABLE[beta]
    updates = {5.5: 1300, 5.7: 800, 6.0: 400}[beta]  # what 3e-4 takes at its tau_int
    p, absolute, *_ = heatbath((8, 8, 8, 8), beta, 43, 80, updates)
    assert agrees(gamma_method(p), plaquette, error, precision=3e-4)
    assert agrees(gamma_method(absolute), loop, loop_error)


def test_a_coupling_off_by_half_a_percent_is_noticed():
    plaquette, error, *_ = TABLE[5.7]
    p, *_ = heatbath((8, 8, 8, 8), 1.005 * 5.7, 43, 80, 300)
    assert sigmas(gamma_method(p), plaquette, error) > 4


@pytest.fixture(scope="module")
def small_heatbath():
    p, *_ = heatbath((4, 4, 4, 4), 5.7, 47, 100, 4000)
    return gamma_method(p)


def hmc_chain(start, seed, integrator="omelyan2", n_steps=5):
    spec = ChainSpec(
        dims=(4, 4, 4, 4),
        beta=5.7,
        seed=seed,
        start=start,
        algorithm="hmc",
        hmc=HmcSpec(integrator=integrator, n_steps=n_steps),
    )
    return Chain(spec)


@pytest.mark.parametrize(
    ("start", "integrator"), [("hot", "omelyan2"), ("cold", "omelyan2"), ("cold", "leapfrog"), ("hot", "omelyan4")]
)
def test_hmc_agrees_with_the_heat_bath_and_obeys_creutz(small_heatbath, start, integrator):
    chain = hmc_chain(start, 53, integrator)
    warm_up(chain, 90)
    p, _, delta_h, accepted = record(chain, 1200)
    assert agrees(gamma_method(p), small_heatbath.mean, small_heatbath.error, precision=2.5e-3)
    assert agrees(gamma_method(np.exp(-delta_h)), 1.0, precision=0.03)
    assert 0.5 < accepted.mean() < 0.999


def test_an_energy_change_of_the_wrong_sign_breaks_the_law():
    """<exp(-dH)> = 1 would hold for dH = 0 too; here dH is large enough for the law to mean something."""
    chain = hmc_chain("cold", 53, "leapfrog", 14)
    for _ in range(60):
        chain.update(accept_always=True)
    *_, delta_h, accepted = record(chain, 600)
    assert 0.3 < accepted.mean() < 0.95
    assert agrees(gamma_method(np.exp(-delta_h)), 1.0, precision=0.06)
    assert sigmas(gamma_method(np.exp(delta_h)), 1.0) > 4


def test_a_chain_that_always_accepts_is_noticed(small_heatbath):
    """With coarse steps and no accept test the distribution is wrong by far more than the errors."""
    chain = hmc_chain("cold", 59, "leapfrog", 7)
    series = []
    for n in range(900):
        chain.update(accept_always=True)
        if n >= 100:
            series.append(sum(chain.field.plaquette_sums()) / (6 * chain.field.volume))
    assert sigmas(gamma_method(np.array(series)), small_heatbath.mean, small_heatbath.error) > 4


def test_single_precision_agrees_with_double(small_heatbath):
    p, *_ = heatbath((4, 4, 4, 4), 5.7, 61, 100, 4000, precision="f32")
    assert agrees(gamma_method(p), small_heatbath.mean, small_heatbath.error, precision=1.5e-3)


@pytest.mark.long
@pytest.mark.parametrize("beta", TABLE)
def test_plaquette_on_8_4_to_1e_4(beta):
    plaquette, error, *_ = TABLE[beta]
    p, *_ = heatbath((8, 8, 8, 8), beta, 67, 200, 9000)
    assert agrees(gamma_method(p), plaquette, error, gate=3.0, precision=1e-4)


@pytest.fixture(scope="module")
def transition_runs():
    """8^3 x 4 at the four betas of the table, 12,000 measurements each: series of E = S / beta and |L|."""
    runs = {}
    for beta in TRANSITION:
        p, absolute, *_ = heatbath((8, 8, 8, 4), beta, 71, 400, 12000)
        runs[beta] = (p, absolute)
    return runs


@pytest.mark.long
@pytest.mark.parametrize("beta", TRANSITION)
def test_deconfinement_on_8_3_x_4(transition_runs, beta):
    p, p_error, loop, loop_error, chi, chi_error = TRANSITION[beta]
    plaquette, absolute = transition_runs[beta]
    assert agrees(gamma_method(plaquette), p, p_error, gate=3.0, precision=4e-4)
    assert agrees(gamma_method(absolute), loop, loop_error, gate=3.0, precision=6e-3)
    assert agrees(susceptibility(absolute, 512), chi, chi_error, gate=3.0, precision=0.15)
    # Held against the values of another beta it fails.
    other = TRANSITION[5.705 if beta < 5.69 else 5.67]
    assert sigmas(gamma_method(plaquette), other[0], other[1]) > 4


@pytest.mark.long
def test_the_susceptibility_peaks_where_an_independent_code_found_it(transition_runs):
    """MBAR over the four betas: chi_|L| peaks at 5.6916(15) with height 1.327(19) (yang-mills, 14,500 each)."""
    runs = [
        PointSeries(beta, (8, 8, 8, 4), 6 * 2048 * (1 - p), absolute, 512)
        for beta, (p, absolute) in transition_runs.items()
    ]
    peak = locate(runs, seed=73).transition
    assert peak.error < 0.002
    assert abs(peak.result - 5.6916) < 3 * np.hypot(peak.error, 0.0015)
    assert abs(peak.height - 1.327) < 3 * np.hypot(peak.height_error, 0.019)


@pytest.mark.long
def test_flow_scale_at_beta_6():
    """t0 / a^2 = 3.184 at beta = 6.0 from the parametrisation of arXiv:1503.05652; its spread is 0.3 %."""
    chain = Chain(ChainSpec(dims=(16, 16, 16, 16), beta=6.0, seed=79, start="cold"))
    chain.run(150)
    scales = []
    for _ in range(18):
        chain.run(12)
        scales.append(
            scale_t0(
                gradient_flow(chain.field, 4.0, eps=0.05, tolerance=1e-4, measure_every=0.1, stop_at_t2_energy=0.32)
            )
        )
    # Configurations 12 updates apart are independent at this precision; t0 of <E> and <t0> differ by less than 0.5 %.
    mean, error = np.mean(scales), np.std(scales) / np.sqrt(len(scales))
    assert error < 0.08
    assert abs(mean - 3.184) < 3 * np.hypot(error, 0.01 * 3.184)
    # The value of beta = 5.96, 2.777, would be refused.
    assert abs(mean - 2.777) > 3 * np.hypot(error, 0.01 * 2.777)
