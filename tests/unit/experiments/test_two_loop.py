"""The two-loop curve, a baseline of the head that says where the peak is."""

from math import log, pi

import pytest

from experiments.heads.transition_fit import two_loop, two_loop_peak


def test_two_loops_know_the_slope_at_weak_coupling():
    # Asymptotically a factor of two in the spacing is 12 b_0 log 2 in the coupling, less a slowly falling correction.
    step = two_loop_peak(64, (32, 30.0)) - 30.0
    assert step == pytest.approx(12 * 11 / (16 * pi**2) * log(2), rel=0.05)
    assert two_loop_peak(8, (8, 6.0624)) == pytest.approx(6.0624)
    assert two_loop(6.0) > two_loop(6.1)
