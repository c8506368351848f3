"""Properties of what learning rests on: grids, mutations, schedules, divergences, updates under any faults."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.hybrid.learning.drift import divergence
from metalforge.hybrid.learning.evolution import mutate
from metalforge.hybrid.learning.network import WrittenMatrix, requantise
from metalforge.hybrid.learning.trainer import plan_updates
from metalforge.reservoir.losses import loss_and_slope
from metalforge.substrates.npu.ladder import digit_limit
from metalforge.substrates.npu.program import Encoding
from metalforge.substrates.npu.residency import DevicePrograms
from reference.faulty_npu import FaultyDevice, PartialUpdate

seeds = st.integers(0, 2**32 - 1)
digits = st.integers(1, 3)


@given(seeds, digits, st.floats(1e-6, 1e6), st.floats(0.3, 3.0))
def test_requantised_weights_are_within_half_a_step(seed, n, size, growth):
    """Also with a scale that was kept from smaller or larger weights; only a kept scale may clip, by half a step."""
    rng = np.random.default_rng(seed)
    old = size * rng.normal(size=(3, 9))
    _, scales = requantise(old, n)
    new = growth * old
    integers, kept = requantise(new, n, scales)
    assert np.abs(integers).max() <= digit_limit(n)
    assert np.all(np.abs(new - integers * kept[:, None]) <= (0.5 + 1e-9) * kept[:, None])
    again, same = requantise(new, n, kept)
    assert np.array_equal(again, integers)
    assert np.array_equal(same, kept)


@given(seeds, digits, st.floats(0.001, 1.0), st.floats(0.001, 1.0))
def test_mutations_stay_on_the_grid_and_every_chosen_entry_moves(seed, n, rate, sigma):
    rng, limit = np.random.default_rng(seed), digit_limit(n)
    parent = rng.integers(-limit, limit + 1, (3, 8))
    parent.flat[:4] = (limit, -limit, limit, -limit)  # edges, from which there is one way only
    child = mutate(parent, limit, rate, sigma, rng)
    assert child.dtype == parent.dtype
    assert np.abs(child).max() <= limit
    assert np.any(child != parent)
    if rate == 1.0:
        assert np.all(child != parent)


@given(st.sampled_from(["akd1000-published", "akd1000-claimed"]), st.floats(0.01, 0.99))
def test_plans_keep_their_share(name, share):
    plan = plan_updates(name, share=share)
    assert plan.every >= 1
    assert plan.update_share <= share * (1 + 1e-9)
    assert plan.rate.value >= 1 / (plan.forward.value + plan.update.value) * (1 - 1e-12)


@given(*(st.floats(-50, 50), st.floats(1e-3, 1e3)) * 2)
def test_the_divergence_is_symmetric_and_zero_only_between_equals(m, v, n, w):
    there, back = divergence(m, v, n, w), divergence(n, w, m, v)
    assert np.isclose(there, back, rtol=1e-12, atol=1e-12)
    assert there >= -1e-12
    assert divergence(m, v, m, v) == 0
    moved = divergence(m, v, m + 1, v)
    assert moved > 0


@given(seeds, st.sampled_from(["mse", "cross_entropy"]))
def test_a_small_step_down_the_slope_lowers_the_loss(seed, loss):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=5)
    target = np.eye(5)[rng.integers(5)] if loss == "cross_entropy" else rng.normal(size=5)
    value, slope = loss_and_slope(y, target, loss)
    assert loss_and_slope(y - 1e-4 * slope, target, loss).value <= value


@settings(max_examples=40, deadline=None)
@given(seeds, st.dictionaries(st.integers(1, 12), st.floats(0, 0.99), max_size=8), digits)
def test_device_and_host_agree_after_any_failing_updates(seed, faults, n):
    """Up to eight of the first twelve updates stop anywhere: each push ends with the device as the host has it."""
    rng = np.random.default_rng(seed)
    device = FaultyDevice(faults=tuple(PartialUpdate(at=at, fraction=f) for at, f in faults.items()))
    encoding = Encoding(digits=n, activation_bits=8, signed="zero_point")
    matrix = WrittenMatrix("m", rng.normal(size=(2, 6)), DevicePrograms(device), encoding=encoding, ranges=1.0)
    x = rng.uniform(-1, 1, (4, 6))
    for _ in range(6):
        wanted = rng.normal(size=(2, 6))
        matrix.push(wanted)
        assert matrix.verify()
        assert not matrix.stale
        twin = WrittenMatrix("m", wanted, DevicePrograms(FaultyDevice()), encoding=encoding, ranges=1.0)
        assert np.abs(matrix(x) - twin(x)).max() <= 6 * np.abs(wanted).max() / matrix.limit
