from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge import native
from reference import philox

# Random123 1.09, kat_vectors, philox4x32 10: counter, key, answer.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return np.array([[int(w, 16) for w in text.split()]], np.uint32)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(kernels, counter, key, answer):
    out = np.zeros((1, 4), np.uint32)
    kernels.philox_blocks(words(counter), words(key), out)
    assert np.array_equal(out, words(answer))
    assert philox.block(words(counter)[0], words(key)[0]) == tuple(words(answer)[0].tolist())


u32 = st.integers(0, 2**32 - 1)


@given(
    seed=st.integers(0, 2**64 - 1),
    stream=u32,
    step=u32,
    sites=st.integers(1, 9),
    pairs=st.integers(1, 20),
    first=st.integers(0, 2**32 - 100),
)
def test_uniforms_equal_the_definition_at_every_level(seed, stream, step, sites, pairs, first):
    expected = philox.uniform(seed, stream, step, sites, 2 * pairs, first_site=first, first_draw=first)
    for level in native.available_levels():
        out = np.empty((sites, 2 * pairs))
        native.kernels(level).uniform(out, seed, stream, step, first, first, 1)
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(1, 2), (7, 2), (3, 6), (1001, 4), (2, 9000), (5000, 10)])
def test_same_bits_for_every_level_and_thread_count(kind, shape):
    expected = None
    for level in native.available_levels():
        for threads in (1, 2, 3, 7):
            out = np.full(shape, np.nan)
            getattr(native.kernels(level), kind)(out, 20261115, 3, 4, 5, 6, threads)
            expected = out if expected is None else expected
            assert np.array_equal(out, expected)


def test_normals_follow_box_muller(kernels):
    out = np.empty((200, 50))
    kernels.normal(out, 11, 0, 1, 0, 0, 1)
    assert np.allclose(out, philox.normal(11, 0, 1, 200, 50), rtol=1e-14, atol=1e-14)


def test_golden_normals_on_every_machine():
    """First numbers of stream (seed 1): any machine and release must repeat them."""
    out = native.Stream(1).normal(step=0, sites=1, draws=4)
    assert [x.hex() for x in out[0].tolist()] == [
        "-0x1.d1a253882cf6dp-4",
        "-0x1.d4dbc714217a3p-2",
        "-0x1.27859d3b9ebcep-2",
        "-0x1.b965d20bf99c3p-2",
    ]


def test_moments_of_a_million_normals():
    x = native.Stream(2026).normal(step=0, sites=500_000, draws=2).ravel()
    n = len(x)
    # Standard errors of the first four moments of a normal: 1, 2, 15, 96 over n, square-rooted.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(x**power) - mean) < 4 * np.sqrt(variance / n)


def test_uniforms_fill_the_open_interval_evenly():
    u = native.Stream(7).uniform(step=0, sites=500_000, draws=2).ravel()
    assert u.min() > 0
    assert u.max() < 1
    counts = np.bincount((u * 64).astype(int), minlength=64)
    expected = len(u) / 64
    chi_square = np.sum((counts - expected) ** 2 / expected)
    # 63 degrees of freedom: mean 63, variance 126.
    assert abs(chi_square - 63) < 4 * np.sqrt(126)


@pytest.mark.parametrize("other", [{"seed": 2}, {"stream": 1}, {"step": 1}, {"first_site": 4096}, {"first_draw": 4096}])
def test_every_part_of_the_address_gives_another_stream(other):
    address = {"seed": 1, "stream": 0, "step": 0, "first_site": 0, "first_draw": 0}

    def draws(seed, stream, **rest):
        return native.Stream(seed, stream).uniform(sites=4096, draws=2, **rest).ravel()

    a, b = draws(**address), draws(**(address | other))
    assert not np.intersect1d(a, b).size
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(a))


def test_a_row_can_be_recomputed_alone():
    whole = native.Stream(5, 1).normal(step=9, sites=100, draws=8)
    part = native.Stream(5, 1).normal(step=9, sites=1, draws=4, first_site=42, first_draw=1)
    assert np.array_equal(part[0], whole[42, 2:6])


def test_addresses_that_would_repeat_are_refused():
    with pytest.raises(ValueError, match="2\\^32 sites"):
        native.Stream(1).uniform(step=0, sites=2, draws=2, first_site=2**32 - 1)
    with pytest.raises(ValueError, match="2\\^32 draws"):
        native.Stream(1).uniform(step=0, sites=1, draws=4, first_draw=2**32 - 1)
    with pytest.raises(ValueError, match="even"):
        native.Stream(1).uniform(step=0, sites=1, draws=3)


@pytest.mark.long
def test_a_hundred_million_draws_show_no_correlation():
    """Lag correlations along draws, sites and steps, and the moments, at the precision of 10^8 numbers."""
    steps = [native.Stream(99).normal(step=s, sites=1_250_000, draws=8) for s in range(10)]
    total = np.concatenate([s.ravel() for s in steps])
    n = len(total)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(total**power) - mean) < 4 * np.sqrt(variance / n)
    pairs = {
        "draw": [(s[:, :-1], s[:, 1:]) for s in steps],
        "site": [(s[:-1], s[1:]) for s in steps],
        "step": list(pairwise(steps)),
    }
    for products in pairs.values():
        mean = np.mean([np.mean(a * b) for a, b in products])
        assert abs(mean) < 4 / np.sqrt(sum(a.size for a, _ in products))
