"""Series of different lengths, targets of steps and of series: what a readout sees and what it is held against."""

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.hybrid import HybridEsn, Task, loss, refit
from metalforge.hybrid.esn.tasks import features_of
from metalforge.reservoir import make_esn
from metalforge.reservoir.engine import EsnEngine
from metalforge.substrates.npu import EmulatedDevice

LENGTHS = (9, 4, 12)


@pytest.fixture
def weights():
    return make_esn(16, 2, seed=3, connectivity=1.0)


@pytest.fixture
def series():
    rng = np.random.default_rng(4)
    return [rng.uniform(-1, 1, (n, 2)) for n in LENGTHS]


def test_padding_is_never_seen(weights, series):
    alone = [EsnEngine(weights).run(one) for one in series]
    ends = Task.of(series, np.array([0, 1, 1]))
    assert np.array_equal(features_of(HybridEsn.from_weights(weights), ends), [states[-1] for states in alone])
    steps = Task.of(series, [one[:, :1] for one in series], washout=2)
    assert np.array_equal(
        features_of(HybridEsn.from_weights(weights), steps), np.concatenate([states[2:] for states in alone])
    )
    assert list(steps.groups) == [0] * 7 + [1] * 2 + [2] * 10
    assert np.array_equal(steps.labels[:, 0], np.concatenate([one[2:, 0] for one in series]))
    with EmulatedDevice() as device:
        chip = HybridEsn.from_weights(weights, calibration=series).with_hardware_linear(device, precision="W8A8")
        assert np.array_equal(features_of(chip, ends)[1], chip.states(series[1])[-1])


def test_every_kind_of_target_can_be_fitted(weights, series):
    esn = HybridEsn.from_weights(weights)
    labels = [(one[:, 0] > 0).astype(int) for one in series]
    for targets in (labels, np.array([0, 1, 1]), np.array([[0.5], [1.0], [2.0]]), [one[:, :1] for one in series]):
        task = Task.of(series, targets)
        assert loss(refit(esn, task), task) < 0.1
        assert loss(refit(esn, task), task.part(np.array([0, 2]))) < 0.15


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([np.zeros(9, int), np.zeros(3, int), np.zeros(12, int)], "series 1 has 4 steps and 3"),
        ([np.zeros(9, int), np.zeros(4, int)], "3 series. Got 2"),
        (np.array([0, 1]), "whole numbers"),
        (np.array([[0.0], [np.nan], [1.0]]), "finite"),
    ],
)
def test_targets_that_do_not_fit_are_named(series, targets, message):
    with pytest.raises(SpecError, match=message):
        Task.of(series, targets)


def test_a_washout_longer_than_the_shortest_series_is_refused(series):
    with pytest.raises(SpecError, match="4 steps"):
        Task.of(series, [one[:, :1] for one in series], washout=4)
