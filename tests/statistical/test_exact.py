"""The samplers against exact integrals: Haar moments, the one-link model, strong coupling, Schwinger-Dyson."""

import numpy as np
import pytest

from metalforge.lattice import Chain, ChainSpec, GaugeField, HeatbathSpec, HmcSpec, scheme, warm_up
from metalforge.lattice.field import Momenta
from metalforge.native import Stream
from metalforge.statistics import gamma_method
from reference.one_plaquette import moments
from reference.statistics import agrees, sigmas

DIRECTION_X_EVEN = 1


def even_x_traces(field):
    """Re tr U_x / 3 at even sites."""
    links = field.to_links()
    t, z, y, x = np.indices(links.shape[:4])
    even = (t + z + y + x) % 2 == 0
    return np.trace(links[..., 0, :, :], axis1=-2, axis2=-1).real[even] / 3


class Mean:
    """Independent numbers: their mean and its standard error."""

    def __init__(self, values):
        self.mean, self.error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_hot_start_is_haar(precision):
    links = GaugeField.hot((8, 8, 8, 8), seed=5, precision=precision).to_links().reshape(-1, 3, 3)
    trace = np.trace(links, axis1=-2, axis2=-1)
    p = trace.real / 3
    # <p> = 0, <p^2> = 1/18, <p^3> = 1/108, <p^4> = 1/108, <|tr U|^2> = 1, and no entry is preferred: <|U_ij|^2> = 1/3.
    for values, exact in ((p, 0), (p**2, 1 / 18), (p**3, 1 / 108), (p**4, 1 / 108), (np.abs(trace) ** 2, 1)):
        assert agrees(Mean(values), exact)
    for i in range(3):
        for j in range(3):
            assert agrees(Mean(np.abs(links[:, i, j]) ** 2), 1 / 3)


def test_links_that_only_look_random_are_not_haar():
    """exp of a Gaussian algebra element, the usual short cut for a hot start: its moments are off by many sigma."""
    field = GaugeField((8, 8, 8, 8))
    momenta = Momenta(field)
    momenta.refresh(seed=5, stream=0, step=0)
    momenta.move_links(1.5)
    p = np.trace(field.to_links().reshape(-1, 3, 3), axis1=-2, axis2=-1).real / 3
    assert sigmas(Mean(p), 0) > 4


def test_the_reference_integrals_are_the_published_ones():
    assert moments(6.0)[0] == pytest.approx(0.4225317396, abs=1e-10)
    assert moments(0.0, (1, 2, 3, 4)) == pytest.approx((0, 1 / 18, 1 / 108, 1 / 108), abs=1e-12)


def one_link_heatbath(beta, sweeps, *, sampler_beta=None):
    """Links in x at even sites of a cold lattice: each has staple 6, so weight exp(6 beta p), and they never meet."""
    field = GaugeField((8, 8, 4, 4))
    series = []
    for step in range(sweeps):
        field.heatbath(sampler_beta or beta, seed=17, stream=0, step=step + 1, selection=DIRECTION_X_EVEN)
        if step % 2:
            field.overrelax(selection=DIRECTION_X_EVEN)
        if step >= 20:
            series.append(even_x_traces(field))
    return np.array(series)


@pytest.mark.parametrize("effective", [0.6, 3.0, 6.0, 18.0])
def test_one_link_heatbath(effective):
    """Below 1.5 the SU(2) couplings take the sampler's weak branch, above it Kennedy-Pendleton: both are hit."""
    p = one_link_heatbath(effective / 6, 1020)
    first, second = moments(effective)
    assert agrees(gamma_method(p.mean(axis=1)), first, precision=5e-4)
    assert agrees(gamma_method((p**2).mean(axis=1)), second)


def test_one_link_heatbath_with_a_wrong_coupling_is_noticed():
    p = one_link_heatbath(1.0, 1020, sampler_beta=1.01)
    assert sigmas(gamma_method(p.mean(axis=1)), moments(6.0)[0]) > 4


def one_link_hmc(beta, trajectories, *, force_factor=1.0, test=True):
    """The same one-link models by HMC: momenta of all other links are held at zero, so those links stay cold."""
    cold = GaugeField((4, 4, 4, 4))
    field = cold.copy()
    for step in range(20):  # close to equilibrium, where the energy violation is small
        field.heatbath(beta, seed=19, stream=0, step=step + 1, selection=DIRECTION_X_EVEN)
    momenta = Momenta(field)
    moving = np.any(field.links != cold.links, axis=2, keepdims=True)
    stages = scheme("leapfrog").stages(0.8, 6)
    uniforms = Stream(23).uniform(step=0, sites=trajectories, draws=2)[:, 0]
    series, accepted = [], 0
    for n in range(trajectories):
        backup = field.links.copy()
        momenta.refresh(seed=29, stream=0, step=n + 1)
        momenta.values *= moving
        before = field.action(beta) + momenta.kinetic()
        for kind, coefficient in stages:
            if kind == 0:
                momenta.move_links(coefficient)
            else:
                momenta.kick(coefficient * beta * force_factor)
                momenta.values *= moving
        after = field.action(beta) + momenta.kinetic()
        if np.log(uniforms[n]) < before - after or not test:
            accepted += 1
        else:
            field.links[...] = backup
        if n >= 50:
            series.append(even_x_traces(field).mean())
    return gamma_method(np.array(series)), accepted / trajectories


def test_one_link_hmc():
    p, acceptance = one_link_hmc(1.0, 1050)
    assert 0.2 < acceptance < 0.99
    assert agrees(p, moments(6.0)[0], precision=2e-3)


def test_one_link_hmc_without_the_accept_test_is_noticed():
    """With a wrong force and no test the chain goes to the wrong place; the accept test would repair it."""
    p, _ = one_link_hmc(1.0, 1050, force_factor=0.9, test=False)
    assert sigmas(p, moments(6.0)[0]) > 4


def plaquettes(chain, n):
    series = []
    chain.run(n, lambda info, observed: series.append(observed.plaquette))
    return np.array(series)


def strong_coupling(beta):
    """P = u + 72 u^5 u' + 1080 u^9 u', u the one-plaquette mean and u' its derivative (cube and double cube)."""
    u, second = moments(beta)
    slope = second - u * u
    return u + 72 * u**5 * slope + 1080 * u**9 * slope


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0])
def test_strong_coupling_in_four_dimensions(beta):
    spec = ChainSpec(dims=(8, 8, 8, 8), beta=beta, seed=31, heatbath=HeatbathSpec(heatbath=1, overrelax=1))
    chain = Chain(spec)
    chain.run(20)
    estimate = gamma_method(plaquettes(chain, 200))
    # What the series leaves out is of order u^13: below 1e-6 at beta = 3.
    assert agrees(estimate, strong_coupling(beta), 1e-6, precision=2e-4)
    # A coupling off by two percent, and the leading order alone, would be noticed.
    assert sigmas(estimate, strong_coupling(1.02 * beta)) > 4
    assert beta < 3 or sigmas(estimate, moments(beta)[0]) > 4


def schwinger_dyson(spec, measurements, *, factor=1.0):
    """Per link: sum_a F_a^2 - 8 beta P, whose expectation is zero at every beta and volume."""
    chain = Chain(spec)
    warm_up(chain, 60)
    momenta = Momenta(chain.field)
    series = []
    for _ in range(measurements):
        chain.update()
        momenta.kick(spec.beta * factor, keep=0.0)
        force2 = 2 * momenta.kinetic() / (4 * chain.field.volume)
        plaquette = sum(chain.field.plaquette_sums()) / (6 * chain.field.volume)
        series.append(force2 - 8 * spec.beta * plaquette)
    return gamma_method(np.array(series))


@pytest.mark.parametrize("beta", [2.0, 5.7])
def test_schwinger_dyson_heatbath(beta):
    assert agrees(schwinger_dyson(ChainSpec(dims=(4, 4, 4, 4), beta=beta, seed=37), 1500), 0.0, precision=0.06)


def test_schwinger_dyson_hmc():
    spec = ChainSpec(dims=(4, 4, 4, 4), beta=5.7, seed=41, algorithm="hmc", hmc=HmcSpec(n_steps=6))
    assert agrees(schwinger_dyson(spec, 1500), 0.0, precision=0.1)


def test_schwinger_dyson_notices_a_force_off_by_one_percent():
    estimate = schwinger_dyson(ChainSpec(dims=(4, 4, 4, 4), beta=5.7, seed=37), 1500, factor=1.01)
    assert sigmas(estimate, 0.0) > 4
