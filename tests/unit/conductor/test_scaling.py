"""The transition curve: what it says of known lattices, and asymptotic scaling beside it."""

import math

import pytest

from metalforge.conductor.curves import (
    ScalingCurve,
    peak_of,
    scaled_coupling,
    transition_curve,
    transition_of,
)

PUBLISHED = {2: 5.0933, 4: 5.6925, 6: 5.8941, 8: 6.0624}


@pytest.mark.parametrize("n_t", PUBLISHED)
def test_peaks_are_near_published_ones(n_t):
    found = transition_of(n_t, 4 * n_t)
    assert found.mean == pytest.approx(PUBLISHED[n_t], abs=max(4 * found.error, 0.02))


def test_larger_volumes_are_narrower_and_closer_to_infinite_volume():
    small, large = transition_of(4, 8), transition_of(4, 16)
    assert large.width < small.width
    assert large.mean > small.mean


def test_an_unknown_extent_has_the_error_of_one_that_was_left_out():
    curve = transition_curve()
    assert transition_of(10, 40).error == curve.unit
    assert all(transition_of(one.n_t, 3 * one.n_t).error == one.error for one in curve.known)
    assert isinstance(curve, ScalingCurve)


def test_scaled_coupling_grows_as_the_logarithm():
    at = transition_of(4, 8)
    assert scaled_coupling(at.mean, at) == 0
    assert scaled_coupling(at.mean + 0.01 * at.width, at) == pytest.approx(0.01, rel=1e-3)
    assert scaled_coupling(at.mean + 100 * at.width, at) == pytest.approx(math.log(200), rel=1e-3)


def test_a_reading_is_a_coupling():
    at = transition_of(4, 8)
    assert peak_of(0.0, at) == at.mean
    assert peak_of(-2.0, at) == pytest.approx(at.mean - 2 * transition_curve().unit)
