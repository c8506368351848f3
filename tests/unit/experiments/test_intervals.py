"""Intervals of experiments: how often they hold, and that they are repeatable."""

import numpy as np
import pytest

from experiments.intervals import nrmse_interval
from metalforge.core.errors import SpecError
from metalforge.reservoir.metrics import nrmse
from reference.statistics import ar1


def test_the_interval_holds_for_correlated_errors_and_one_of_single_times_does_not():
    rng = np.random.default_rng(6)
    held = {"blocks": 0, "single": 0}
    for _ in range(80):
        truth, error = ar1(0.8, 1500, rng)[:, None], 0.3 * ar1(0.9, 1500, rng)[:, None]
        for name, block in (("blocks", None), ("single", 1)):
            found = nrmse_interval(truth, truth + error, resamples=150, block=block)
            held[name] += found.low <= 0.3 <= found.high
    assert held["blocks"] >= 66  # 0.95 less what a percentile interval of few independent times lacks
    assert held["single"] <= 52


def test_the_interval_is_repeatable_and_holds_the_value():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, 1)) + 3
    predicted = truth + 0.2 * rng.normal(size=truth.shape)
    found = nrmse_interval(truth, predicted)
    assert found.value == nrmse(truth, predicted)
    assert found.low < found.value < found.high
    assert found == nrmse_interval(truth, predicted)
    # For independent errors the spread of an RMS is 1 / sqrt(2 n) of it, and so is that of the norm.
    assert (found.high - found.low) / found.value == pytest.approx(2 * 1.96 * np.sqrt(2 / 800), rel=0.25)


def test_a_truth_that_hardly_ever_changes_has_no_interval():
    truth = np.zeros((200, 1))
    truth[0] = 1
    with pytest.raises(SpecError, match="too rarely"):
        nrmse_interval(truth, truth + 0.1, block=1)
