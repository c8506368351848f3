"""hotSpring's weights, against numbers it published and a generator written again here."""

import math

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.reservoir.origin import OriginRandom, origin_weights
from metalforge.reservoir.weights import spectral_radius

U64 = np.uint64


def xoshiro(state):
    """xoshiro256++ in unsigned NumPy arithmetic, which wraps by itself."""
    s = [U64(word) for word in state]

    def rotl(x, k):
        return (x << U64(k)) | (x >> U64(64 - k))

    with np.errstate(over="ignore"):
        while True:
            yield int(rotl(s[0] + s[3], 23) + s[0])
            t = s[1] << U64(17)
            s[2] ^= s[0]
            s[3] ^= s[1]
            s[1] ^= s[2]
            s[0] ^= s[3]
            s[2] ^= t
            s[3] = rotl(s[3], 45)


def test_words_are_xoshiro256_plus_plus():
    # Known answers for the state 1, 2, 3, 4: the test vector of the Rust crate rand_xoshiro, made with Vigna's C code.
    known = [
        41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162,
        14011001112246962877, 12406186145184390807, 15849039046786891736, 10450023813501588000,
    ]  # fmt: skip
    random = OriginRandom(0)
    random.state = 1, 2, 3, 4
    assert [random.word() for _ in known] == known
    random = OriginRandom(2**64 - 1)
    again = xoshiro(random.state)
    assert [random.word() for _ in range(1000)] == [next(again) for _ in range(1000)]


def test_the_seeding_is_the_origins_and_not_splitmix():
    def splitmix(seed):
        z = seed
        while True:
            z = (z + 0x9E3779B97F4A7C15) % 2**64
            y = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            y = (y ^ (y >> 27)) * 0x94D049BB133111EB % 2**64
            yield y ^ (y >> 31)

    words, standard = OriginRandom(42).state, splitmix(42)
    assert words[0] == next(standard)
    assert words[1] != next(standard)


def test_uniforms_and_normals_are_made_of_the_words():
    random = OriginRandom(7)
    words = xoshiro(random.state)

    def uniform():
        return (next(words) >> 11) / 2**53

    assert [random.uniform() for _ in range(10)] == [uniform() for _ in range(10)]
    for _ in range(10):
        first, second = uniform(), uniform()
        expected = math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)
        assert random.normal() == pytest.approx(expected, rel=1e-14)


def test_a_stored_network_of_the_origin_is_made_again():
    # Numbers of hotSpring's results/exp028_brain_weights.json: 5 inputs, 50 units, seed 99 + 8.
    w = origin_weights(inputs=5, seed=107)
    first = [-0.04109652, -0.23046973, -0.21702276, -0.3698505, -0.35816267]
    last = [-0.022240302, 0.12779678, 0.2830456, -0.29509404, 0.04813454]
    assert w.w_in[0].astype(np.float32) == pytest.approx(np.array(first, np.float32), rel=2e-7)
    assert w.w_in[-1].astype(np.float32) == pytest.approx(np.array(last, np.float32), rel=2e-7)
    stored = {
        5: 0.21429142, 7: 0.25516328, 16: 0.34320754, 18: 0.36923435, 19: 0.04726578, 26: -0.52695155,
        27: -0.39514148, 28: -0.10484613, 33: 0.008751438, 35: 0.16773671, 44: 0.32035473, 47: -0.3677463,
    }  # fmt: skip
    assert list(np.flatnonzero(w.w_res[0])) == list(stored)
    assert w.w_res[0][list(stored)] == pytest.approx(list(stored.values()), rel=2e-7)
    assert w.w_res[1, 3] == pytest.approx(0.31923074, rel=2e-7)
    assert w.leak == 0.3
    assert not np.any(w.bias)


@pytest.mark.parametrize(("seed", "inputs", "true"), [(99, 8, 0.974), (107, 5, 0.937), (107, 8, 0.852)])
def test_its_power_iteration_is_not_the_spectral_radius(seed, inputs, true):
    w = origin_weights(inputs=inputs, seed=seed, spectral_radius=0.95)
    assert spectral_radius(w.w_res) == pytest.approx(true, abs=5e-4)
    v = np.full(50, 50**-0.5)
    for _ in range(100):
        v = w.w_res @ v
        norm = np.sqrt(np.sum(v * v))
        v = v / norm
    assert norm == pytest.approx(0.95, rel=1e-9)


def test_a_matrix_that_dies_out_is_left_as_it_was_drawn():
    w = origin_weights(units=4, inputs=1, connectivity=0.0)
    assert not np.any(w.w_res)
    assert np.all(np.abs(w.w_in) <= 0.5)


@pytest.mark.parametrize("options", [{"units": 0}, {"inputs": 0}, {"seed": -1}, {"seed": 2**64}])
def test_bad_sizes_and_seeds_are_refused(options):
    with pytest.raises(SpecError, match="unit"):
        origin_weights(**options)
