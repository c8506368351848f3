"""Smooth curves through noisy points: the band covers, ends are less known, one lucky error does not decide."""

import numpy as np
import pytest

from metalforge.campaign.analysis.smooth import SmoothCurve, level_errors

GRID = np.linspace(0, 1, 31)


def bent(x):
    return 0.4 - 1.3 * x + 0.6 * x**2


@pytest.mark.parametrize("places", [5, 9])
def test_the_band_covers_the_truth(places):
    rng, x = np.random.default_rng(places), np.linspace(0.05, 0.95, places)
    inside = []
    for _ in range(60):
        error = np.full(places, 0.04)
        mean, sd = SmoothCurve(x, bent(x) + error * rng.normal(size=places), error).at(GRID)
        inside.append(np.mean(np.abs(mean - bent(GRID)) < sd))
    assert 0.58 < np.mean(inside) < 0.9


def test_exact_points_are_passed_through_and_ends_are_less_known():
    x = np.linspace(0.2, 0.8, 7)
    curve = SmoothCurve(x, bent(x), np.full(7, 1e-4))
    mean, sd = curve.at(GRID)
    middle = (GRID > 0.2) & (GRID < 0.8)
    assert np.abs(mean - bent(GRID))[middle].max() < 2e-3
    assert sd[0] > 5 * sd[15]
    assert sd[-1] > 5 * sd[15]
    assert np.abs(curve.pulls()).max() < 3


def test_covariances_are_those_of_the_band():
    x = np.linspace(0, 1, 5)
    curve = SmoothCurve(x, bent(x), np.full(5, 0.05))
    mean, covariance = curve.posterior(GRID)
    assert np.allclose(curve.at(GRID)[1] ** 2, np.diag(covariance))
    assert np.linalg.eigvalsh(covariance).min() > -1e-9
    assert np.allclose(mean, curve.at(GRID)[0])


def test_points_of_one_place_that_contradict_each_other_stand_out():
    x, rng = np.repeat(np.linspace(0, 1, 6), 2), np.random.default_rng(2)
    y = bent(x) + 0.01 * rng.normal(size=12)
    assert np.abs(SmoothCurve(x, y, np.full(12, 0.01)).pulls()).max() < 4
    y[6] += 0.1
    pulls = np.abs(SmoothCurve(x, y, np.full(12, 0.01)).pulls())
    assert set(np.flatnonzero(pulls > 4)) <= {6, 7}
    assert pulls[6] > 4


def test_errors_are_known_by_their_neighbours():
    x, work = np.linspace(0, 1, 6), np.array([6.0, 6, 12, 6, 24, 6])
    error = np.sqrt(0.01 * np.exp(x) / work)
    assert np.allclose(level_errors(x, error, work), error)
    lucky = error.copy()
    lucky[2] /= 10
    assert level_errors(x, lucky, work)[2] > 4 * lucky[2]
    few = level_errors(np.array([0.0, 1.0]), np.array([0.1, 0.2]), np.ones(2))
    assert few == pytest.approx([np.sqrt(0.02)] * 2)
