from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge import native
from metalforge.core import SpecError

BITS = 44  # what df64.hpp promises of every operation


def values(pair):
    return [Fraction(float(h)) + Fraction(float(low)) for h, low in pair.T]


def apply(level, op, a, b, c):
    out = np.empty_like(a)
    native.kernels(level).df64(op, a, b, c, out, 1)
    return out


reals = st.builds(
    lambda m, e, s: s * m * 2.0**e, st.floats(1.0, 2.0), st.integers(-20, 20), st.sampled_from([-1.0, 1.0])
)
triples = st.lists(st.tuples(reals, reals, reals), min_size=1, max_size=40)


@given(triples)
def test_operations_keep_their_bits_at_every_level(rows):
    a, b, c = (native.to_df64(np.array(column)) for column in zip(*rows, strict=True))
    positive = native.to_df64(np.abs(native.from_df64(a)))
    va, vb, vc, vp = values(a), values(b), values(c), values(positive)
    # op: (exact, what the error is relative to). Sums that cancel are held against the sum of magnitudes.
    rows = list(zip(va, vb, vc, strict=True))
    cases = {
        "add": [(x + y, abs(x) + abs(y)) for x, y, _ in rows],
        "sub": [(x - y, abs(x) + abs(y)) for x, y, _ in rows],
        "mul": [(x * y, abs(x * y)) for x, y, _ in rows],
        "div": [(x / y, abs(x / y)) for x, y, _ in rows],
        "fma": [(x * y + z, abs(x * y) + abs(z)) for x, y, z in rows],
    }
    for level in native.available_levels():
        for op, expected in cases.items():
            for got, (true, size) in zip(values(apply(level, op, a, b, c)), expected, strict=True):
                assert abs(got - true) <= size / 2**BITS, op
        for got, true in zip(values(apply(level, "sqrt", positive, b, c)), vp, strict=True):
            # sqrt to 100 bits by integers.
            root = Fraction(isqrt(int(true * 2**200)), 2**100)
            assert abs(got - root) <= root / 2**BITS


@given(triples)
def test_results_are_normalised_and_the_same_bits_with_and_without_fma(rows):
    a, b, c = (native.to_df64(np.array(column)) for column in zip(*rows, strict=True))
    for op in ("add", "mul", "div", "fma"):
        results = [apply(level, op, a, b, c) for level in native.available_levels()]
        assert all(np.array_equal(r, results[0]) for r in results)
        hi, lo = results[0]
        assert np.array_equal(hi + lo, hi)  # lo is at most half a unit of hi's last place


def test_products_keep_48_bits_as_a_rule(level):
    """45 in the worst case; in the mean square more than the 48 that a pair of floats has."""
    a, b, c = (native.to_df64(native.Stream(n).normal(step=0, sites=5_000, draws=2).ravel()) for n in range(3))
    va, vb, vc = (x.astype(np.longdouble).sum(axis=0) for x in (a, b, c))
    for op, true, size in (("mul", va * vb, abs(va * vb)), ("fma", va * vb + vc, abs(va * vb) + abs(vc))):
        error = (apply(level, op, a, b, c).astype(np.longdouble).sum(axis=0) - true) / size
        assert np.max(np.abs(error)) <= 2.0**-45, op
        assert np.sqrt(np.mean(error**2)) <= 2.0**-48, op


def test_square_root_of_zero_is_zero(level):
    zero = np.zeros((2, 3), np.float32)
    assert np.array_equal(apply(level, "sqrt", zero, zero, zero), zero)


def test_round_trip_through_double():
    x = native.Stream(1).normal(step=0, sites=100, draws=2).ravel()
    back = native.from_df64(native.to_df64(x))
    assert np.max(np.abs(back - x) / np.abs(x)) <= 2.0**-48
    assert np.array_equal(native.from_df64(native.to_df64(back)), back)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_numbers_outside_the_range_of_float_are_refused(bad):
    with pytest.raises(SpecError, match="finite numbers"):
        native.to_df64(np.array([1.0, bad]))
