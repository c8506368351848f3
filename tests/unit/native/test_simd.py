import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge import native

SEAM = {
    "swap_neighbours": lambda v: v.reshape(-1, 2)[:, ::-1].ravel(),
    "swap_halves": lambda v: np.concatenate([v[len(v) // 2 :], v[: len(v) // 2]]),
    "rotate": lambda v: np.roll(v, -1),
    "lane_sum": lambda v: np.full_like(v, _tree(v)),
}


def _tree(v):
    while len(v) > 1:
        v = v[: len(v) // 2] + v[len(v) // 2 :]
    return v[0]


def _probe(level, op, x, y):
    out = np.empty_like(x)
    getattr(native.kernels(level), f"simd_probe_f{8 * x.itemsize}")(op, x, y, out)
    return out


numbers = st.floats(0.5, 2.0, width=32)


@given(
    pairs=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=70),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_arithmetic_and_masked_tails_equal_numpy(pairs, dtype):
    x, y = np.array(pairs, dtype).T.copy()
    expected = {"add": x + y, "mul": x * y, "div": x / y, "sqrt": np.sqrt(x), "min": np.minimum(x, y)}
    for level in native.available_levels():
        for op, value in expected.items():
            assert np.array_equal(_probe(level, op, x, y), value), (level, op)


@given(pairs=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40))
def test_fma_rounds_once(pairs):
    x, y = np.array(pairs, np.float32).T.copy()
    # The product of two floats is exact in double, and so is the sum with a float here: one rounding at the end.
    expected = (x.astype(np.float64) * y + x).astype(np.float32)
    for level in native.available_levels():
        assert np.array_equal(_probe(level, "fma", x, y), expected)


@pytest.mark.parametrize("op", SEAM)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lane_permutes(level, op, dtype):
    lanes = native.kernels(level).vector_bytes // np.dtype(dtype).itemsize
    x = np.arange(1, 4 * lanes + 1, dtype=dtype)
    expected = np.concatenate([SEAM[op](vector) for vector in x.reshape(-1, lanes)])
    assert np.array_equal(_probe(level, op, x, x), expected)


def test_a_store_past_the_tail_would_show(level):
    """The array sits between guards inside a larger one; only its own elements may change."""
    for n in range(1, 20):
        whole = np.full(n + 40, 7.0)
        part = whole[20 : 20 + n]
        native.kernels(level).simd_probe_f64("add", np.ones(n), np.ones(n), part)
        assert np.all(part == 2.0)
        assert np.all(whole[:20] == 7.0)
        assert np.all(whole[20 + n :] == 7.0)
