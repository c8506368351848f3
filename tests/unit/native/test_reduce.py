import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge import native
from reference import reduce as twin


def numbers(n, dtype=np.float64):
    n_pairs = (n + 1) // 2
    x = native.Stream(8).normal(step=0, sites=n_pairs, draws=2).ravel()[:n]
    return (x * 10.0 ** (np.arange(n) % 7)).astype(dtype)


@given(n=st.integers(1, 5000), threads=st.integers(1, 5), dtype=st.sampled_from(["f64", "f32"]))
def test_sum_and_dot_follow_the_written_order(n, threads, dtype):
    x = numbers(n, {"f64": np.float64, "f32": np.float32}[dtype])
    y = x[::-1].copy()
    for level in native.available_levels():
        kernels = native.kernels(level)
        assert getattr(kernels, f"sum_{dtype}")(x, threads) == twin.ordered_sum(x)
        assert getattr(kernels, f"dot_{dtype}")(x, y, threads) == twin.ordered_sum(x.astype(float) * y.astype(float))


def test_large_sums_do_not_depend_on_threads():
    x = numbers(3_000_001)
    assert len({native.ordered_sum(x, threads=t) for t in (1, 2, 3, 4, 8)}) == 1
    assert len({native.ordered_dot(x, x, threads=t) for t in (1, 2, 3, 4, 8)}) == 1


def test_error_is_that_of_a_tree_not_of_a_running_sum():
    x = numbers(1_000_000)
    exact = math.fsum(x)
    magnitude = math.fsum(np.abs(x))
    # 1024/32 additions in a lane, 2 + 3 to join lanes, 10 levels of blocks: at most 47 roundings.
    assert abs(native.ordered_sum(x) - exact) <= 47 * 2.0**-53 * magnitude


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(bad):
    x = np.ones(2000)
    x[1234] = bad
    with pytest.raises(ValueError, match=r"`x`.*finite.*1234"):
        native.ordered_sum(x)
    with pytest.raises(ValueError, match=r"`y`.*finite.*1234"):
        native.ordered_dot(np.ones(2000), x)


def test_an_overflow_of_finite_numbers_is_inf():
    assert native.ordered_sum(np.full(10, 1e308)) == np.inf
