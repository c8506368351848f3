"""Memory capacity where it is known: a delay line, a reservoir of noise, and reservoirpy's own measure."""

import numpy as np
import pytest
from reservoirpy.nodes import Reservoir, Ridge
from reservoirpy.observables import memory_capacity as theirs

from metalforge.core.errors import SpecError
from metalforge.reservoir.capacity import memory_capacity
from metalforge.reservoir.generate import make_esn


@pytest.fixture(scope="module")
def u():
    return np.random.default_rng(0).uniform(-0.8, 0.8, 3000)


def run(w, u, f=np.tanh):
    s, states = np.zeros(w.units), []
    for value in u:
        s = f(w.w_in[:, 0] * value + w.w_res @ s)
        states.append(s)
    return np.array(states)


def test_a_delay_line_remembers_exactly_its_length(u):
    line = np.column_stack([np.roll(u, k) for k in range(9)])  # u_t, u_{t-1}, ..., u_{t-8}
    mixed = line @ np.random.default_rng(1).normal(size=(9, 9)) + 4
    for states in (line, mixed):
        found = memory_capacity(states, u, 20)
        assert found.per_delay.shape == (20,)
        assert found.per_delay[:8] == pytest.approx(np.ones(8), abs=1e-5)
        assert np.all(found.per_delay[8:] < 15 * found.floor)
        assert found.total == pytest.approx(8, abs=0.1)
        assert found.total == pytest.approx(found.per_delay.sum())


def test_noise_remembers_nothing_but_the_floor(u):
    states = np.random.default_rng(2).normal(size=(3000, 20))
    found = memory_capacity(states, u, 100)
    assert found.floor == pytest.approx(1 / 870, rel=0.01)
    assert found.per_delay.mean() == pytest.approx(found.floor, rel=0.4)


def test_a_linear_reservoir_remembers_no_more_than_its_units(u):
    w = make_esn(15, 1, seed=1, spectral_radius=0.95, connectivity=0.5, activation="identity")
    found = memory_capacity(run(w, u, lambda x: x), u, 60)
    assert 10 < found.total < 15 + 60 * found.floor * 2
    tanh = memory_capacity(run(w, u), u, 60)
    assert tanh.total < found.total


def test_reservoirpy_finds_about_the_same(u):
    w = make_esn(60, 1, seed=2, spectral_radius=0.9, input_scaling=0.2)
    node = Reservoir(W=w.w_res, Win=w.w_in, bias=np.zeros(60), lr=1.0, activation="tanh")
    reference = theirs(node >> Ridge(ridge=1e-8), k_max=40, series=u[:, np.newaxis], test_size=0.3, as_list=True)
    found = memory_capacity(run(w, u), u[:, np.newaxis], 40)
    assert found.total == pytest.approx(reference.sum(), rel=0.1)
    assert found.per_delay[:5] == pytest.approx(reference[:5], abs=0.02)


def test_the_fit_never_sees_the_test_times(u):
    states = np.random.default_rng(3).normal(size=(1000, 20))
    one = memory_capacity(states, u[:1000], 10)
    turned = u[:1000].copy()
    turned[-260:] = np.random.default_rng(4).permutation(turned[-260:])
    assert not np.allclose(one.per_delay, memory_capacity(states, turned, 10).per_delay)
    # As many units as half the times: a fit of the past would look perfect.
    many = memory_capacity(np.random.default_rng(5).normal(size=(1000, 400)), u[:1000], 10, test_share=0.5)
    assert many.total < 0.3


@pytest.mark.parametrize(
    ("states", "inputs", "options", "says"),
    [
        (np.ones((50, 2)), np.ones(49), {}, r"Got \(50, 2\) and \(49,\)"),
        (np.ones(50), np.ones(50), {}, r"\(T, units\)"),
        (np.ones((0, 2)), np.ones(0), {}, "not empty"),
        (np.full((500, 2), np.nan), np.ones(500), {}, "finite"),
        (np.ones((500, 2)), np.full(500, np.inf), {}, "finite"),
        (np.ones((500, 2)), np.ones(500), {"max_delay": 0}, "max_delay"),
        (np.ones((500, 2)), np.ones(500), {"test_share": 1.0}, "test_share"),
        (np.ones((500, 2)), np.ones(500), {"ridge": 0.0}, "ridge"),
        (np.ones((500, 2)), np.ones(500), {"washout": 480}, "too few"),
        (np.ones((500, 400)), np.ones(500), {}, "more than 400"),
        (np.ones((500, 2)), np.arange(500.0), {}, "do not change"),
    ],
)
def test_bad_data_is_refused(states, inputs, options, says):
    with pytest.raises(SpecError, match=says):
        memory_capacity(states, inputs, **{"max_delay": 5, **options})
