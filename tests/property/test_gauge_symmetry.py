"""What must not depend on the gauge, the origin or the names of the axes does not; what moves stays in the group."""

import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge import native
from metalforge.lattice import SCHEMES, GaugeField, wilson_loop
from metalforge.lattice.field import Momenta
from reference import gauge as twin

INVARIANT = 1e-12
DRIFT = 1e-13

levels = st.sampled_from(native.available_levels())
lattices = st.sampled_from([(2, 2, 2, 2), (4, 2, 2, 4), (4, 4, 4, 4), (2, 6, 4, 2), (8, 4, 2, 2), (6, 2, 4, 4)])
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20)


def at(level):
    return patch.dict(os.environ, METALFORGE_ISA=level)


def field_of(links):
    return GaugeField.from_links(links, threads=1)


def sums(links):
    """Everything that is the same whatever the gauge and the origin."""
    field = field_of(links)
    loop = field.polyakov()
    energy, charge = field.clover()
    means = [s / (3 * field.volume) for s in field.plaquette_sums()]
    loops = [wilson_loop(links, r, t) for r in range(1, min(2, *field.dims[:3]) + 1) for t in (1, 2)]
    return np.array([*means, field.action(5.7) / field.volume, loop.real, loop.imag, energy, charge, *loops])


def force(links):
    field = field_of(links)
    momenta = Momenta(field)
    momenta.kick(-1.0)
    return twin.momenta_to_host(field, momenta.values)


def links_and_rng(dims, seed):
    rng = np.random.default_rng(seed)
    return twin.random_links(rng, dims, rng.choice([0.1, 0.4, np.inf])), rng


@few
@given(level=levels, dims=lattices, seed=seeds)
def test_measurements_do_not_depend_on_the_gauge(level, dims, seed):
    links, rng = links_and_rng(dims, seed)
    turned = twin.transform(links, twin.random_transformation(rng, dims))
    with at(level):
        assert sums(turned) == pytest.approx(sums(links), abs=INVARIANT)
    assert np.max(np.abs(turned - links)) > 0.1


def turn(g, components):
    """pi -> g pi g^dagger, in components."""
    turned = g @ twin.hermitian(components) @ twin.adjoint(g)
    return 2 * np.einsum("aij,...ji->...a", twin.GENERATORS, turned).real


@few
@given(level=levels, dims=lattices, seed=seeds, name=st.sampled_from(sorted(SCHEMES)))
def test_a_trajectory_turns_with_the_gauge(level, dims, seed, name):
    links, rng = links_and_rng(dims, seed)
    g = twin.random_transformation(rng, dims)
    pi = rng.normal(size=(*dims[::-1], 4, 8))

    def evolved(links, pi):
        field = field_of(links)
        momenta = Momenta(field)
        momenta.values[...] = twin.momenta_from_host(field, pi)
        momenta.evolve(5.7, SCHEMES[name].stages(0.2, 2))
        return field.to_links(), twin.momenta_to_host(field, momenta.values)

    with at(level):
        plain_links, plain_pi = evolved(links, pi)
        turned_links, turned_pi = evolved(twin.transform(links, g), turn(g[..., None, :, :], pi))
    assert np.max(np.abs(turned_links - twin.transform(plain_links, g))) <= INVARIANT
    assert np.max(np.abs(turned_pi - turn(g[..., None, :, :], plain_pi))) <= INVARIANT


@few
@given(level=levels, dims=lattices, seed=seeds, by=st.tuples(*[st.integers(0, 7)] * 4))
def test_the_origin_is_a_matter_of_taste(level, dims, seed, by):
    links, _ = links_and_rng(dims, seed)
    moved = np.roll(links, by, axis=(0, 1, 2, 3))
    with at(level):
        assert sums(moved) == pytest.approx(sums(links), abs=INVARIANT)
        assert np.max(np.abs(force(moved) - np.roll(force(links), by, axis=(0, 1, 2, 3)))) <= INVARIANT
        if sum(by) % 2 == 0:  # sweeps go by parity
            here, there = field_of(links), field_of(moved)
            here.overrelax()
            there.overrelax()
            assert np.max(np.abs(there.to_links() - np.roll(here.to_links(), by, axis=(0, 1, 2, 3)))) <= 1e-10


@few
@given(level=levels, dims=lattices, seed=seeds, pair=st.sampled_from([(0, 1), (0, 2), (1, 2)]))
def test_the_names_of_the_axes_of_space_do_not_matter(level, dims, seed, pair):
    links, _ = links_and_rng(dims, seed)
    with at(level):
        before, after = sums(links), sums(twin.swap_axes(links, *pair))
        turned = sums(twin.reflect(twin.swap_axes(links, *pair), pair[0]))
    mirror = np.ones_like(before)
    mirror[6] = -1  # the topological charge of a mirror image
    assert after == pytest.approx(mirror * before, abs=INVARIANT)
    assert turned == pytest.approx(before, abs=INVARIANT)  # a rotation by 90 degrees


@few
@given(level=levels, dims=lattices, seed=seeds, axis=st.integers(0, 2))
def test_time_is_a_direction_like_the_others(level, dims, seed, axis):
    links, _ = links_and_rng(dims, seed)
    with at(level):
        here, there = field_of(links), field_of(twin.swap_axes(links, axis, 3))
        assert there.action(1.0) == pytest.approx(here.action(1.0), rel=INVARIANT)
        assert there.clover()[0] == pytest.approx(here.clover()[0], rel=INVARIANT)
        assert there.clover()[1] == pytest.approx(-here.clover()[1], abs=INVARIANT)


UPDATES = {
    "heatbath": lambda field, step: field.heatbath(5.7, seed=1, stream=0, step=step),
    "overrelax": lambda field, step: field.overrelax(),
    "evolve": lambda field, step: _trajectory(field, step),
}


def _trajectory(field, step):
    momenta = Momenta(field)
    momenta.refresh(seed=1, stream=0, step=step)
    momenta.evolve(5.7, SCHEMES["omelyan2"].stages(0.3, 3))


@few
@given(
    level=levels,
    dims=lattices,
    seed=seeds,
    updates=st.lists(st.sampled_from(sorted(UPDATES)), min_size=200, max_size=200),
)
def test_two_hundred_updates_stay_in_the_group(level, dims, seed, updates):
    with at(level):
        field = GaugeField.hot(dims, seed=seed, threads=1)
        for step, name in enumerate(updates, start=1):
            UPDATES[name](field, step)
        assert twin.distance_from_su3(field.to_links()) <= DRIFT
        field.reunitarise()
        assert twin.distance_from_su3(field.to_links()) <= 5e-15
        assert 0 < field.action(1.0) / (6 * field.volume) < 1
