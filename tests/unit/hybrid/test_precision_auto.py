"""`precision="auto"` compares precisions and nothing else: one ridge, and the better readout on either side."""

import numpy as np
import pytest

from experiments.vowels import vowel_like
from metalforge.hybrid import HybridEsn, Task, loss, refit
from metalforge.reservoir import load_weights, make_esn, save_weights
from metalforge.reservoir.estimators import EsnClassifier
from metalforge.substrates.npu import EmulatedDevice


@pytest.fixture(scope="module")
def spoken():
    x, y = vowel_like(230, seed=1)
    return Task(inputs=x[:130], targets=y[:130]), Task(inputs=x[130:], targets=y[130:])


@pytest.fixture(scope="module")
def fitted(spoken):
    """A network whose readout wants a ridge: as many units as there are series to fit it to."""
    weights = make_esn(120, 12, seed=3, spectral_radius=0.9, leak=0.3, input_scaling=0.5, bias_scaling=0.2)
    return refit(HybridEsn.from_weights(weights, calibration=spoken[0].inputs), spoken[0], ridge=1.0)


def test_the_ridge_goes_with_the_readout(fitted, spoken, tmp_path):
    assert fitted.weights.ridge == 1.0
    with EmulatedDevice() as device:
        chip = fitted.with_hardware_linear(device, precision="W8A8", training=spoken[0])
        assert chip.weights.ridge == 1.0
        assert np.array_equal(chip.weights.w_out, refit(chip, spoken[0], ridge=1.0).weights.w_out)
    save_weights(fitted.weights, tmp_path / "w.safetensors")
    assert load_weights(tmp_path / "w.safetensors").ridge == 1.0
    assert fitted.weights.with_readout(fitted.weights.w_out).ridge is None  # another readout, of which nobody said it
    found = EsnClassifier(units=20, ridge=0.25, random_state=1).fit(list(spoken[0].inputs), spoken[0].targets)
    assert found.weights_.ridge == 0.25


def test_the_reference_is_refitted_too_and_the_better_readout_is_kept(fitted, spoken):
    training, validation = spoken
    own = loss(fitted, validation)
    overfitted = loss(refit(fitted, training, ridge=1e-9), validation)
    assert own < overfitted  # what a ridge that nobody asked for does
    with EmulatedDevice() as device:
        chip = fitted.with_hardware_linear(device, training=training, validation=validation, ridge=1e-9, tolerance=0.03)
        assert chip.choice.reference == own
        assert chip.choice.reference_readout == "its own"
        assert chip.choice.rungs[-1].loss == loss(chip, validation)
        assert chip.choice.reached
        for rung in chip.choice.rungs:
            assert rung.gap == rung.loss - own
        carried = fitted.with_hardware_linear(device, training=training, validation=validation, tolerance=0.03)
        assert carried.choice.reference <= own
        # Four bits lose what four bits lose, not what another ridge loses.
        assert carried.choice.precision == "W4A4"
        assert "readout" in str(carried.choice)


def test_one_precision_with_validation_data_keeps_the_better_readout(fitted, spoken):
    training, validation = spoken
    with EmulatedDevice() as device:
        there = fitted.with_hardware_linear(device, precision="W8A8")
        both = fitted.with_hardware_linear(device, precision="W8A8", training=training, validation=validation)
        again = fitted.with_hardware_linear(device, precision="W8A8", training=training)
        assert loss(both, validation) == min(loss(there, validation), loss(again, validation))
