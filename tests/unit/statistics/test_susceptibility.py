import math

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.statistics import gamma_method, susceptibility
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


def test_naive_errors_of_the_susceptibility_under_cover():
    chains = [ar1(0.9, 3000, 500 + i) for i in range(150)]
    honest = np.mean([abs(e.mean - 1) < e.error for e in (susceptibility(x, 1) for x in chains)])
    naive = np.mean([abs(e.mean - 1) < e.error for e in (gamma_method((x - x.mean()) ** 2, s=0) for x in chains)])
    assert abs(honest - 0.6827) < 4 * math.sqrt(0.6827 * 0.3173 / 150)
    assert naive < 0.5


def test_a_frozen_loop_has_no_susceptibility():
    got = susceptibility(np.full(100, 0.1), VOLUME)
    assert (got.mean, got.error) == (0.0, 0.0)


def test_tau_int_is_that_of_the_fluctuation_not_of_the_loop():
    x = ar1(0.9, 20_000, 11)
    assert susceptibility(x, 1).tau_int < 0.7 * gamma_method(x).tau_int


@pytest.mark.parametrize("volume", [0, -512, math.nan, math.inf])
def test_a_volume_must_be_one(volume):
    with pytest.raises(SpecError, match="spatial_volume"):
        susceptibility(np.arange(9.0), volume)
