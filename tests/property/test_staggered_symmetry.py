"""What the staggered operator is on any field: linear, anti-Hermitian in H, odd under epsilon, bounded, covariant."""

import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge import native
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from metalforge.lattice.solvers import cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from reference import gauge, staggered

POINT = 5e-14

levels = st.sampled_from(native.available_levels())
lattices = st.sampled_from([(2, 2, 2, 2), (4, 2, 2, 4), (4, 4, 4, 4), (2, 6, 4, 2), (8, 4, 2, 2), (6, 2, 4, 4)])
seeds = st.integers(0, 2**32 - 1)
numbers = st.complex_numbers(max_magnitude=10, allow_nan=False, allow_infinity=False)
few = settings(max_examples=20)


def at(level):
    return patch.dict(os.environ, METALFORGE_ISA=level)


def operator_on(links, mass=0.3):
    return StaggeredOperator(GaugeField.from_links(links, threads=1), mass)


def links_and_rng(dims, seed):
    rng = np.random.default_rng(seed)
    return gauge.random_links(rng, dims, rng.choice([0.1, 0.4, np.inf])), rng


def field_of(operator, host, parity):
    field = ColourField(operator, parity)
    field.from_host(host)
    return field


def hop(operator, host):
    """H on all sites: from either parity to the other."""
    total = np.zeros_like(host)
    for parity in range(2):
        out = ColourField(operator, 1 - parity)
        operator.hop(out, field_of(operator, host, parity))
        total += out.to_host()
    return total


def epsilon(host):
    """(-1)^(x+y+z+t) psi."""
    return np.where(gauge.parity_mask(host, 0)[..., None], host, -host)


@few
@given(level=levels, dims=lattices, seed=seeds, a=numbers, b=numbers)
def test_h_is_linear(level, dims, seed, a, b):
    links, rng = links_and_rng(dims, seed)
    psi, chi = (staggered.noise(rng, links) for _ in range(2))
    with at(level):
        operator = operator_on(links)
        wanted = a * hop(operator, psi) + b * hop(operator, chi)
        assert np.max(np.abs(hop(operator, a * psi + b * chi) - wanted)) <= POINT * (1 + abs(a) + abs(b))


@few
@given(level=levels, dims=lattices, seed=seeds)
def test_h_is_antihermitian_and_anticommutes_with_epsilon(level, dims, seed):
    """{epsilon, D} = 2 m epsilon, that is {epsilon, H} = 0, with the mass in D as the negative control."""
    links, rng = links_and_rng(dims, seed)
    psi, chi = (staggered.noise(rng, links) for _ in range(2))
    with at(level):
        operator = operator_on(links)
        scale = np.linalg.norm(psi) * np.linalg.norm(chi)
        assert abs(np.vdot(chi, hop(operator, psi)) + np.vdot(hop(operator, chi), psi)) <= POINT * scale
        assert np.max(np.abs(epsilon(hop(operator, psi)) + hop(operator, epsilon(psi)))) <= POINT
        dirac = 0.3 * psi + hop(operator, psi)
        turned = 0.3 * epsilon(psi) + hop(operator, epsilon(psi))
        assert np.max(np.abs(epsilon(dirac) + turned - 0.6 * epsilon(psi))) <= POINT
        assert np.max(np.abs(epsilon(dirac) + turned)) > 0.01


@few
@given(level=levels, dims=lattices, seed=seeds, parity=st.integers(0, 1))
def test_the_normal_operator_is_hermitian_positive_and_bounded(level, dims, seed, parity):
    """m^2 <= D^dagger D <= m^2 + 16: each of the eight terms of H has norm 1/2."""
    links, rng = links_and_rng(dims, seed)
    with at(level):
        operator = operator_on(links)
        psi, chi = (field_of(operator, staggered.noise(rng, links), parity) for _ in range(2))
        image, other = ColourField(operator, parity), ColourField(operator, parity)
        operator.normal(image, psi)
        operator.normal(other, chi)
        assert chi.dot(image) == pytest.approx(np.conj(psi.dot(other)), abs=POINT * np.sqrt(psi.norm2() * chi.norm2()))
        quotient = psi.dot(image).real / psi.norm2()
        assert 0.3**2 <= quotient <= 0.3**2 + 16
        middle = ColourField(operator, 1 - parity)
        operator.hop(middle, psi)
        assert quotient == pytest.approx(0.3**2 + middle.norm2() / psi.norm2(), rel=1e-13)


@few
@given(level=levels, dims=lattices, seed=seeds)
def test_everything_turns_with_the_gauge(level, dims, seed):
    """psi -> g psi and U -> g U g^dagger: H psi and solutions turn with them, norms and sources of force stay."""
    links, rng = links_and_rng(dims, seed)
    g = gauge.random_transformation(rng, dims)
    psi = staggered.noise(rng, links)
    turned_psi = staggered.apply_links(g, psi)
    with at(level):
        operator, turned = operator_on(links), operator_on(gauge.transform(links, g))
        assert np.max(np.abs(hop(turned, turned_psi) - staggered.apply_links(g, hop(operator, psi)))) <= POINT
        solutions, forces = [], []
        for each, source in ((operator, psi), (turned, turned_psi)):
            out = ColourField(each, 0)
            cg(each, field_of(each, source, 0), out, tolerance=1e-12, max_iterations=1000)
            momenta = Momenta(each.gauge)
            each.force(momenta, [field_of(each, source, 0)], [1.0])
            solutions.append(out.to_host())
            forces.append(gauge.momenta_to_host(each.gauge, momenta.values))
    error = solutions[1] - staggered.apply_links(g, solutions[0])
    assert np.linalg.norm(error) <= 1e-10 * np.linalg.norm(solutions[0])
    # pi -> g(x) pi g(x)^dagger
    matrices = [gauge.hermitian(f) for f in forces]
    expected = g[..., None, :, :] @ matrices[0] @ gauge.adjoint(g)[..., None, :, :]
    assert np.max(np.abs(matrices[1] - expected)) <= 1e-12 * np.max(np.abs(matrices[0]))


@few
@given(level=levels, dims=lattices, seed=seeds, mu=st.integers(0, 3))
def test_moving_the_origin_by_two_sites_moves_the_result(level, dims, seed, mu):
    """Two, since the phases alternate; across the boundary in time the fields change sign."""
    links, rng = links_and_rng(dims, seed)
    psi = staggered.noise(rng, links)

    def moved(host):
        out = gauge.shift(host, mu, 2)
        if mu == 3:
            out = out.copy()
            out[-2:] *= -1
        return out

    with at(level):
        there = hop(operator_on(gauge.shift(links, mu, 2)), moved(psi))
        assert np.max(np.abs(there - moved(hop(operator_on(links), psi)))) <= POINT


@few
@given(level=levels, dims=lattices, seed=seeds)
def test_the_force_is_the_derivative_along_a_random_direction(level, dims, seed):
    links, rng = links_and_rng(dims, seed)
    pi = rng.normal(size=(*dims[::-1], 4, 8))
    hosts = [staggered.noise(rng, links, 0) for _ in range(2)]
    coefficients = [0.7, -0.4]

    def bilinear(eps):
        operator = operator_on(gauge.move(links, pi, eps))
        total = 0.0
        for c, host in zip(coefficients, hosts, strict=True):
            x, image = field_of(operator, host, 0), ColourField(operator, 0)
            operator.normal(image, x)
            total += c * x.dot(image).real
        return total

    with at(level):
        operator = operator_on(links)
        momenta = Momenta(operator.gauge)
        operator.force(momenta, [field_of(operator, host, 0) for host in hosts], [-c for c in coefficients])
        along = float(np.sum(gauge.momenta_to_host(operator.gauge, momenta.values) * pi))
        h = 1e-3
        slope = (8 * (bilinear(h) - bilinear(-h)) - (bilinear(2 * h) - bilinear(-2 * h))) / (12 * h)
    assert slope == pytest.approx(along, abs=1e-8 * np.sqrt(np.prod(dims)))
