"""Frames of particles against plain sums over pairs of frames, and density modes against exponentials."""

import numpy as np
import pytest

from metalforge.native import available_levels, frames, kernels
from metalforge.native.frames import correlate, density_powers

LENGTH = 7.3


def walk(n=37, count=60, seed=1):
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.normal(size=(count, n, 3)), axis=0), rng.normal(size=(count, n, 3))


def correlated(positions, velocities, *, cuts, kept=4, spacing=3):
    """What frames give that come in parts, cut at these numbers."""
    n, lags = positions.shape[1], (kept - 1) * spacing + 1
    origins, sums, counts = np.zeros((2, kept, 3 * n)), np.zeros((2, lags)), np.zeros(lags)
    for begin, end in zip([0, *cuts], [*cuts, len(positions)], strict=True):
        correlate(origins, sums, counts, positions[begin:end], velocities[begin:end], first=begin, spacing=spacing)
    return sums, counts


def test_frames_are_held_against_all_earlier_ones_that_were_kept():
    x, v = walk()
    sums, counts = correlated(x, v, cuts=[])
    for lag in range(sums.shape[1]):
        pairs = [(origin, origin + lag) for origin in range(0, len(x) - lag, 3)]
        assert counts[lag] == 37 * len(pairs)
        assert sums[0, lag] == pytest.approx(sum(((x[b] - x[a]) ** 2).sum() for a, b in pairs), rel=1e-13, abs=0)
        assert sums[1, lag] == pytest.approx(sum((v[b] * v[a]).sum() for a, b in pairs), rel=1e-11)


def test_parts_have_the_bits_of_the_whole():
    x, v = walk()
    whole, counts = correlated(x, v, cuts=[])
    parts, also = correlated(x, v, cuts=[1, 7, 8, 31])
    assert np.array_equal(whole, parts)
    assert np.array_equal(counts, also)


def test_modes_are_those_of_exponentials_inside_and_outside_the_box():
    positions = np.random.default_rng(2).uniform(-2 * LENGTH, 2 * LENGTH, (3, 45, 3))
    positions[0, 0] = [-1e-18, 0, LENGTH]
    waves = np.array([[0, 0, 1], [1, 0, 0], [5, -3, 2], [-4, 4, -6], [0, 0, 0]])
    phases = np.exp(2j * np.pi / LENGTH * np.einsum("fnk,wk->fwn", positions, waves))
    wanted = np.abs(phases.sum(axis=-1)) ** 2 / 45
    assert density_powers(positions, LENGTH, waves) == pytest.approx(wanted, rel=1e-11, abs=1e-11)
    assert density_powers(positions[1], LENGTH, waves).shape == (5,)


def test_a_particle_that_is_nowhere_is_seen():
    positions = np.random.default_rng(3).uniform(0, LENGTH, (20, 3))
    positions[7, 1] = np.nan
    assert np.isnan(density_powers(positions, LENGTH, np.array([[0, 1, 0], [1, 2, 3]]))).all()


def test_every_build_level_gives_the_same_bits(monkeypatch):
    found = []
    for level in available_levels():
        monkeypatch.setattr(frames, "kernels", lambda level=level: kernels(level))
        x, v = walk()
        found.append((*correlated(x, v, cuts=[]), density_powers(x, LENGTH, np.array([[1, -2, 3], [0, 4, 1]]))))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [({"velocities": np.zeros((2, 5, 3))}, "velocities"), ({"origins": np.zeros((2, 4, 6))}, "origins")],
)
def test_wrong_shapes_are_named(change, said):
    given = {"origins": np.zeros((2, 4, 12)), "positions": np.zeros((2, 4, 3)), "velocities": np.zeros((2, 4, 3))}
    with pytest.raises(ValueError, match=said):
        correlate(sums=np.zeros((2, 10)), counts=np.zeros(10), **(given | change), first=0, spacing=3)
