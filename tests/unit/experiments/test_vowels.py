"""Synthetic speakers: lengths, rest, scale, and that only the order of frames tells them apart where it should."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments.vowels import LONGEST, SHORTEST, vowel_like
from metalforge.core.errors import SpecError


def test_shape_lengths_and_rest_before():
    x, y = vowel_like(270, seed=1)
    assert x.shape == (270, LONGEST, 12)
    assert np.array_equal(np.bincount(y), np.full(9, 30))
    spoken = x.any(axis=2)
    lengths = spoken.sum(axis=1)
    assert lengths.min() >= SHORTEST
    assert set(lengths) >= {7, 29}
    assert np.array_equal(spoken, np.arange(LONGEST) >= LONGEST - lengths[:, None])
    assert np.sqrt(np.mean(x[spoken] ** 2)) == pytest.approx(1, abs=0.15)


def test_the_same_seed_gives_the_same_and_another_another():
    one, two, other = (vowel_like(20, seed=s).inputs for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.allclose(one, other)


def test_without_noise_it_is_the_formula():
    x, y = vowel_like(4, seed=3, speakers=2, mood=0, noise=0, voice=0, bend=0)
    for series in x:  # all speakers say the same: from A to E along a line
        spoken = series[series.any(axis=1)]
        assert np.diff(spoken, axis=0) == pytest.approx(np.broadcast_to(spoken[1] - spoken[0], spoken[1:].shape))
    assert x[0, -1] == pytest.approx(x[1, -1])
    bent, _ = vowel_like(4, seed=3, speakers=2, mood=0, noise=0, voice=0)
    scale = np.sqrt((2 / 3 + 0.18) / (2 / 3))
    apart = scale * bent - x
    assert np.abs(apart).max() > 0.1
    assert np.abs(apart.sum(axis=1)).max() < 1e-12  # the bend leaves the mean frame alone
    assert np.array_equal(y, vowel_like(4, seed=3, speakers=2).labels)


def test_the_mean_frame_knows_the_voice_and_not_the_bend():
    def by_mean(**scales):
        x, y = vowel_like(700, seed=4, **scales)
        mean = x.sum(axis=1) / x.any(axis=2).sum(axis=1, keepdims=True)
        return LogisticRegression(max_iter=500).fit(mean[:400], y[:400]).score(mean[400:], y[400:])

    assert by_mean(voice=0) < 0.2
    assert by_mean(voice=1.0) > 0.95


@pytest.mark.parametrize("bad", [{"n": 0}, {"speakers": 1}, {"inputs": 0}, {"noise": -1}, {"bend": np.inf}])
def test_bad_arguments(bad):
    with pytest.raises(SpecError, match=r"Got"):
        vowel_like(**{"n": 10, "seed": 1, **bad})
