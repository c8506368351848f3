"""Attacks stay within their size, find what they should, and are the same for the same seed."""

import numpy as np
import pytest

from experiments.attacks import Victim, pgd, random_signs
from metalforge.core.errors import SpecError
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, refit
from metalforge.reservoir.datasets import sequence_classification
from metalforge.reservoir.generate import make_esn
from metalforge.substrates.npu.emulator import EmulatedDevice

EPSILON = 0.1


@pytest.fixture(scope="module")
def problem():
    x, y = sequence_classification(460, seed=5, inputs=10, steps=16, noise=0.6)
    weights = make_esn(60, 10, seed=5, input_scaling=0.3, leak=0.3, connectivity=1.0)
    train = Task(inputs=x[:400], targets=y[:400])
    esn = refit(HybridEsn.from_weights(weights, calibration=train.inputs), train, ridge=0.1)
    return esn, train, x[400:], y[400:]


@pytest.fixture
def victim(problem):
    return Victim(problem[0])


@pytest.fixture(scope="module")
def linear():
    """Two classes and no nonlinearity: the margin is linear in u, and the best attack known in closed form."""
    w = make_esn(20, 2, seed=2, leak=0.5, connectivity=1.0, activation="identity")
    rng = np.random.default_rng(1)
    return (
        Victim(HybridEsn(w.with_readout(rng.normal(size=(2, 20))))),
        rng.normal(size=(6, 5, 2)),
        rng.integers(0, 2, 6),
    )


def test_a_linear_model_loses_epsilon_times_the_absolute_slope(linear):
    victim, u, y = linear
    losses, slope = victim.loss_and_slope(u, y)
    found = victim.loss(pgd(victim, u, y, EPSILON), y)
    assert found == pytest.approx(losses + EPSILON * np.abs(slope).sum(axis=(1, 2)))


def test_attacks_do_more_than_coins_and_stay_in_the_cube(problem, victim):
    _, _, u, y = problem
    found = {
        "random": random_signs(u, EPSILON, seed=1),
        "pgd": pgd(victim, u, y, EPSILON, steps=10),
    }
    for changed in found.values():
        assert np.abs(changed - u).max() <= EPSILON * (1 + 1e-12)
    right = {name: np.mean(victim.predict(changed) == y) for name, changed in found.items()}
    assert np.mean(victim.predict(u) == y) > 0.85
    assert right["random"] > right["pgd"] + 0.1
    assert victim.loss(found["pgd"], y).mean() > victim.loss(found["random"], y).mean()


def test_pgd_repeats_and_restarts_lose_nothing(problem, victim):
    _, _, u, y = problem
    one = pgd(victim, u, y, EPSILON, steps=4, restarts=1)
    two = pgd(victim, u, y, EPSILON, steps=4, restarts=2, seed=9)
    assert np.array_equal(two, pgd(victim, u, y, EPSILON, steps=4, restarts=2, seed=9))
    assert np.all(victim.loss(two, y) >= victim.loss(one, y))


def test_the_device_itself_is_attacked_through_its_rounding(problem):
    esn, train, u, y = problem
    with EmulatedDevice() as device:
        chip = Victim(refit(esn.with_hardware_linear(device, precision="W4A4", inputs="device"), train, ridge=0.1))
        clean = np.mean(chip.predict(u) == y)
        control = np.mean(chip.predict(random_signs(u, EPSILON)) == y)
        attacked = np.mean(chip.predict(pgd(chip, u, y, EPSILON, steps=10)) == y)
    assert clean > 0.8
    assert control > clean - 0.1
    assert attacked < control - 0.2


def test_nothing_changes_where_epsilon_is_zero(problem, victim):
    _, _, u, y = problem
    size = np.full((1, u.shape[1], 1), EPSILON)
    size[:, :5] = 0
    for changed in (
        pgd(victim, u, y, size, steps=2, restarts=2),
        random_signs(u, size),
    ):
        assert np.array_equal(changed[:, :5], u[:, :5])
        assert np.abs(changed[:, 5:] - u[:, 5:]).max() == pytest.approx(EPSILON)


def test_bad_sizes_are_refused(problem, victim):
    _, _, u, y = problem
    for bad in (-0.1, np.inf, np.nan):
        with pytest.raises(SpecError, match=r"`epsilon`.*0 or more"):
            pgd(victim, u, y, bad)
    with pytest.raises(SpecError, match="broadcast"):
        random_signs(u, np.ones((3, 3)))
    with pytest.raises(SpecError, match="`steps` and `restarts`"):
        pgd(victim, u, y, EPSILON, steps=0)
