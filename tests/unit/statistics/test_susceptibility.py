import math

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.statistics import binder_b4, gamma_method, jackknife, susceptibility
from reference.statistics import ar1

VOLUME = 8**3
RAYLEIGH_KURTOSIS = 3 + (-6 * math.pi**2 + 24 * math.pi - 16) / (4 - math.pi) ** 2


def rayleigh(a, n, seed):
    """|L| of a complex Gaussian loop, <|L|^2> = 2: the confined phase in a large volume."""
    return np.hypot(ar1(a, n, seed), ar1(a, n, seed + 10_000))


def test_susceptibility_of_a_gaussian_chain_is_its_variance():
    a, n = 0.7, 20_000
    got = susceptibility(0.1 + 0.02 * ar1(a, n, 1), VOLUME)
    truth = VOLUME * 0.02**2
    assert abs(got.mean - truth) < 3.5 * got.error
    # Squares of an AR(1) chain decay like a^(2t) and have variance 2: the error is known exactly.
    tau = (1 + a**2) / (2 * (1 - a**2))
    assert got.error == pytest.approx(truth * math.sqrt(2 * 2 * tau / n), rel=0.1)
    assert got.tau_int == pytest.approx(tau, rel=0.2)


def test_susceptibility_of_a_confined_loop():
    got = susceptibility(rayleigh(0.5, 40_000, 2), VOLUME)
    assert abs(got.mean - VOLUME * (2 - math.pi / 2)) < 3.5 * got.error
    assert got.error < 0.02 * got.mean


def test_susceptibility_equals_the_plain_formula_and_survives_an_offset():
    x = 0.1 + 0.02 * ar1(0.5, 1000, 3)
    plain = VOLUME * (np.mean(x**2) - np.mean(x) ** 2)
    assert susceptibility(x, VOLUME).mean == pytest.approx(plain, rel=1e-10)
    moved = susceptibility(x + 1e6, VOLUME)
    assert moved.mean == pytest.approx(plain, rel=1e-6)
    assert moved.error == pytest.approx(susceptibility(x, VOLUME).error, rel=1e-4)


def test_binder_ratio_of_gaussian_uniform_two_phase_and_confined_data():
    n = 40_000
    gaussian = binder_b4(7.0 + ar1(0.6, n, 4))
    uniform = binder_b4(np.random.default_rng(5).random(n))
    confined = binder_b4(rayleigh(0.5, n, 6))
    assert abs(gaussian.mean - 3.0) < 3.5 * gaussian.error
    assert abs(uniform.mean - 1.8) < 3.5 * uniform.error
    assert abs(confined.mean - RAYLEIGH_KURTOSIS) < 3.5 * confined.error
    assert max(gaussian.error, uniform.error, confined.error) < 0.1
    phases = np.where(np.random.default_rng(7).random(n) < 0.5, 0.05, 0.15) + 0.001 * ar1(0.0, n, 8)
    assert binder_b4(phases).mean == pytest.approx(1.0, abs=0.01)


def test_binder_ratio_about_zero_tells_confined_from_deconfined():
    confined = binder_b4(rayleigh(0.5, 40_000, 9), centred=False)
    deconfined = binder_b4(0.3 + 0.01 * ar1(0.5, 40_000, 10), centred=False)
    assert abs(confined.mean - 2.0) < 3.5 * confined.error
    assert deconfined.mean == pytest.approx(1.0, abs=0.01)
    # The two definitions differ, and a shift changes only the one about zero.
    assert binder_b4(rayleigh(0.5, 40_000, 9)).mean > 3.0
    assert binder_b4(rayleigh(0.5, 40_000, 9) + 50, centred=False).mean == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("centred", [True, False])
def test_binder_errors_cover_and_agree_with_the_jackknife(centred):
    truth = RAYLEIGH_KURTOSIS if centred else 2.0
    estimates = [binder_b4(rayleigh(0.6, 4000, 100 + i), centred=centred) for i in range(100)]
    pulls = np.array([(e.mean - truth) / e.error for e in estimates])
    assert 0.75 < np.std(pulls) < 1.35
    x = rayleigh(0.6, 4000, 100)

    def kurtosis(sample):
        y = sample - np.mean(sample) if centred else sample
        return float(np.mean(y**4) / np.mean(y**2) ** 2)

    assert estimates[0].mean == pytest.approx(kurtosis(x), rel=1e-10)
    assert jackknife(x, kurtosis).error == pytest.approx(estimates[0].error, rel=0.35)


def test_naive_errors_of_the_susceptibility_under_cover():
    chains = [ar1(0.9, 3000, 500 + i) for i in range(150)]
    honest = np.mean([abs(e.mean - 1) < e.error for e in (susceptibility(x, 1) for x in chains)])
    naive = np.mean([abs(e.mean - 1) < e.error for e in (susceptibility(x, 1, s=0) for x in chains)])
    assert abs(honest - 0.6827) < 4 * math.sqrt(0.6827 * 0.3173 / 150)
    assert naive < 0.5


def test_a_frozen_loop_has_no_susceptibility_and_no_binder_ratio():
    got = susceptibility(np.full(100, 0.1), VOLUME)
    assert (got.mean, got.error) == (0.0, 0.0)
    with pytest.raises(SpecError, match="constant"):
        binder_b4(np.full(100, 0.1))


def test_tau_int_is_that_of_the_fluctuation_not_of_the_loop():
    x = ar1(0.9, 20_000, 11)
    assert susceptibility(x, 1).tau_int < 0.7 * gamma_method(x).tau_int


@pytest.mark.parametrize("volume", [0, -512, math.nan, math.inf])
def test_a_volume_must_be_one(volume):
    with pytest.raises(SpecError, match="spatial_volume"):
        susceptibility(np.arange(9.0), volume)
