"""Condensate, pion and the ends of the spectrum: exact on free fields, against dense matrices elsewhere."""

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import GaugeField
from metalforge.lattice.eigenvalues import LARGEST_POSSIBLE, largest_eigenvalue, lowest_eigenvalues
from metalforge.lattice.observables import NOISE_DRAW, CondensateSample, measure_condensate, pion_correlator
from metalforge.lattice.solvers import Inverter
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from metalforge.statistics import chiral_susceptibility
from reference import gauge
from reference import staggered as twin
from reference.statistics import agrees, sigmas

MASS = 0.2
ADDRESS = {"seed": 3, "stream": 0, "step": 1}


def rough(dims, seed=5):
    return GaugeField.from_links(gauge.random_links(np.random.default_rng(seed), dims, roughness=0.7))


def propagator(field, mass, tolerance=1e-13):
    """D^-1 from a point source of colour 0 at the origin, (Nt, Nz, Ny, Nx, 3)."""
    inverter = Inverter(field, mass)
    source, found, odd = inverter.fresh(), inverter.fresh(), inverter.fresh(parity=1)
    host = source.to_host()
    host[0, 0, 0, 0, 0] = 1
    source.from_host(host)
    inverter.solve(source, found, mass=mass, tolerance=tolerance)
    inverter.hop(odd, found)
    return mass * found.to_host() - odd.to_host()


def periodic(dims):
    """Unit links whose sign at the time border undoes the operator's: a cold field with periodic quarks."""
    links = GaugeField(dims).to_links()
    links[-1, :, :, :, 3] *= -1
    return GaugeField.from_links(links)


class TestFreeField:
    dims = (4, 6, 4, 8)

    def test_the_propagator_is_the_momentum_sum(self):
        found = propagator(GaugeField(self.dims), MASS)
        exact = twin.free_propagator(self.dims, MASS)
        assert np.max(np.abs(found[..., 0] - exact)) < 1e-12
        assert np.max(np.abs(found[..., 1:])) == 0
        # Periodic time would be seen.
        other = twin.free_propagator(self.dims, MASS, twin.PERIODIC)
        assert np.max(np.abs(found[..., 0] - other)) > 1e-3

    def test_the_condensate_is_the_momentum_sum(self):
        """Cold links are the same everywhere, so (1/V) tr D^-1 = 3 D^-1(0, 0)."""
        exact = twin.free_condensate(self.dims, MASS)
        assert 3 * propagator(GaugeField(self.dims), MASS)[0, 0, 0, 0, 0].real == pytest.approx(exact, abs=1e-12)

    def test_periodic_time_is_another_condensate(self):
        found = 3 * propagator(periodic(self.dims), MASS)[0, 0, 0, 0, 0].real
        assert found == pytest.approx(twin.free_condensate(self.dims, MASS, twin.PERIODIC), abs=1e-12)
        assert abs(found - twin.free_condensate(self.dims, MASS)) > 1e-3

    def test_noise_agrees_with_the_sum(self):
        sample = measure_condensate(Inverter(GaugeField(self.dims), MASS), MASS, n_vectors=40, **ADDRESS)
        assert agrees(Mean(sample.condensate), twin.free_condensate(self.dims, MASS), precision=5e-3)
        assert sigmas(Mean(sample.condensate), twin.free_condensate(self.dims, MASS, twin.PERIODIC)) > 4

    def test_the_pion_is_the_square_of_the_propagator(self):
        found = pion_correlator(Inverter(GaugeField(self.dims), MASS), MASS, tolerance=1e-13)
        exact = 3 * np.sum(np.abs(twin.free_propagator(self.dims, MASS)) ** 2, axis=(1, 2, 3))
        assert found == pytest.approx(exact, rel=1e-11)

    def test_the_lowest_eigenvalues(self):
        """Each is some m^2 + sum sin^2 p; the lowest is there, more than once as it should."""
        found = lowest_eigenvalues(StaggeredOperator(GaugeField(self.dims), MASS), 8)
        exact = np.unique(twin.free_denominator(self.dims, MASS).round(12))
        assert np.max(np.min(np.abs(found[:, None] - exact), axis=1)) < 1e-9
        assert found[:2] == pytest.approx(exact[0], rel=1e-9)

    def test_the_largest_eigenvalue_is_four(self):
        found = largest_eigenvalue(StaggeredOperator(GaugeField((8, 4, 4, 8)), MASS), **ADDRESS)
        exact = float(np.max(twin.free_denominator((8, 4, 4, 8), 0.0)))
        assert exact <= found <= 1.01 * exact


class Mean:
    def __init__(self, values):
        self.mean, self.error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


class TestRoughField:
    dims = (4, 2, 2, 4)

    def test_condensate_and_its_derivative(self):
        field = rough(self.dims)
        links = field.to_links()
        sample = measure_condensate(Inverter(field, MASS), MASS, n_vectors=400, **ADDRESS)

        eigenvalues = twin.spectrum(links, 0.0)[0]  # l^2 of the pairs m +- i l

        def exact(mass):
            both = 1 / (mass + 1j * np.sqrt(eigenvalues)) + 1 / (mass - 1j * np.sqrt(eigenvalues))
            return float(np.sum(both).real) / field.volume

        h = 1e-4
        derivative = (exact(MASS + h) - exact(MASS - h)) / (2 * h)
        assert agrees(Mean(sample.condensate), exact(MASS), precision=0.025)
        assert agrees(Mean(sample.connected), derivative, precision=0.3)
        # The derivative of the wrong sign, or without its second term, would be seen.
        assert sigmas(Mean(sample.connected), -derivative) > 4

    def test_each_vector_gives_its_quadratic_form_of_the_dense_inverse(self):
        """(2 m/V) xi^+ A^-1 xi with the matrix written out, vector by vector: no statistics."""
        field = rough(self.dims)
        sample = measure_condensate(Inverter(field, MASS), MASS, n_vectors=3, **ADDRESS)
        matrix = twin.dense(twin.normal, field.to_links(), parity=0, mass=MASS)
        noise = Inverter(field, MASS).fresh()
        for n, found in enumerate(sample.condensate):
            noise.gaussian(**ADDRESS, draw=NOISE_DRAW + 256 * n)
            drawn = noise.to_host().ravel()[twin.sites_of(field.to_links(), 0)]
            xi = (np.sign(drawn.real) + 1j * np.sign(drawn.imag)) / np.sqrt(2)
            exact = 2 * MASS / field.volume * np.vdot(xi, np.linalg.solve(matrix, xi)).real
            assert found == pytest.approx(exact, rel=1e-8)

    def test_the_disconnected_susceptibility_of_fields_whose_traces_are_known(self):
        """Dense traces of a few fields have a variance; pairs of noise vectors find it, plain squares more."""
        fields = [rough((2, 2, 2, 2), seed=seed) for seed in range(12)]
        volume = fields[0].volume
        traces = [np.sum(2 * MASS / twin.spectrum(f.to_links(), MASS)[0]) / volume for f in fields]
        exact = volume * float(np.var(traces))
        rows = []
        for step in range(1, 81):
            # One row an address: all fields in turn, so that consecutive rows sample the ensemble evenly.
            for n, field in enumerate(fields):
                sample = measure_condensate(
                    Inverter(field, MASS), MASS, n_vectors=2, seed=3, stream=n, step=step, tolerance=1e-6
                )
                rows.append((sample.mean, sample.pairs, sample.mean_connected))
        condensate, pairs, connected = np.array(rows).T
        found = chiral_susceptibility(condensate, pairs, connected, volume=volume, flavors=4).disconnected.mean
        # Over addresses the noise is independent: the error of the mean over 80 rounds of all fields.
        rounds = (pairs - 2 * np.mean(traces) * condensate).reshape(80, 12).mean(axis=1)
        error = volume * np.std(rounds, ddof=1) / np.sqrt(80)
        assert abs(found - exact) < 3 * error
        assert volume * np.var(condensate) > exact + 5 * error

    def test_the_estimate_is_linear_in_vectors_and_named_by_its_address(self):
        inverter = Inverter(rough(self.dims), MASS)
        many = measure_condensate(inverter, MASS, n_vectors=3, **ADDRESS)
        few = measure_condensate(inverter, MASS, n_vectors=2, **ADDRESS)
        other = measure_condensate(inverter, MASS, n_vectors=2, **ADDRESS | {"step": 2})
        assert many.condensate[:2] == few.condensate
        assert len({*many.condensate, *other.condensate}) == 5

    def test_the_pion_by_dense_matrices(self):
        field = rough(self.dims)
        links = field.to_links()
        inverse = np.linalg.inv(twin.dense(twin.dirac, links, mass=MASS))[:, :3].reshape(*links.shape[:4], 3, 3)
        exact = np.sum(np.abs(inverse) ** 2, axis=(1, 2, 3, 4, 5))
        assert pion_correlator(Inverter(field, MASS), MASS, tolerance=1e-13) == pytest.approx(exact, rel=1e-10)

    def test_the_pion_sums_to_the_condensate(self):
        """The Ward identity m sum_t C(t) = tr D^-1(0, 0), on any links."""
        field = rough((4, 4, 4, 6))
        total = MASS * float(np.sum(pion_correlator(Inverter(field, MASS), MASS, tolerance=1e-13)))
        inverter = Inverter(field, MASS)
        source, found = inverter.fresh(), inverter.fresh()
        trace = 0.0
        for colour in range(3):
            host = np.zeros_like(source.to_host())
            host[0, 0, 0, 0, colour] = 1
            source.from_host(host)
            inverter.solve(source, found, mass=MASS, tolerance=1e-13)
            trace += MASS * source.dot(found).real
        assert total == pytest.approx(trace, rel=1e-11)

    def test_the_ends_of_the_spectrum(self):
        field = rough(self.dims)
        values = twin.spectrum(field.to_links(), MASS)[0]
        operator = StaggeredOperator(field, MASS)
        assert lowest_eigenvalues(operator, 12) == pytest.approx(values[:12], rel=1e-8)
        found = largest_eigenvalue(operator, **ADDRESS)
        assert values[-1] - MASS**2 <= found <= 1.01 * (values[-1] - MASS**2)
        assert found < LARGEST_POSSIBLE

    @pytest.mark.parametrize("seed", range(5))
    def test_haar_links_reach_seven(self, seed):
        operator = StaggeredOperator(GaugeField.hot((4, 4, 4, 4), seed=seed), MASS)
        assert 6 < largest_eigenvalue(operator, **ADDRESS) < 8


def dense_normal(operator, parity):
    """D^dagger D of the kernels on one parity, column by column."""
    source, image = (ColourField(operator.gauge, parity) for _ in range(2))
    rows = twin.sites_of(operator.gauge.to_links(), parity)
    columns = []
    for row in rows:
        host = np.zeros_like(source.to_host())
        host.reshape(-1)[row] = 1
        source.from_host(host)
        operator.normal(image, source)
        columns.append(image.to_host().reshape(-1)[rows])
    return np.array(columns).T


def test_the_eigenvalues_of_d_come_in_pairs():
    """m +- i l: so the spectrum of D^dagger D on even sites is that on odd ones, and D's is made of it."""
    field = rough((2, 2, 2, 4))
    even, odd = (np.linalg.eigvalsh(dense_normal(StaggeredOperator(field, MASS), parity)) for parity in (0, 1))
    assert even == pytest.approx(odd, rel=1e-12)
    whole = np.linalg.eigvals(twin.dense(twin.dirac, field.to_links(), mass=MASS))
    pairs = MASS + 1j * np.concatenate([np.sqrt(even - MASS**2), -np.sqrt(even - MASS**2)])
    order = np.argsort(whole.imag), np.argsort(pairs.imag)
    assert np.max(np.abs(whole[order[0]] - pairs[order[1]])) < 1e-7


def test_pairs_leave_out_a_vector_with_itself():
    sample = CondensateSample((1.0, 2.0, 4.0), (0.5, 1.5, 2.5))
    assert sample.mean == pytest.approx(7 / 3)
    assert sample.pairs == pytest.approx((1 * 2 + 1 * 4 + 2 * 4) / 3)
    assert sample.mean_connected == 1.5
    assert CondensateSample((1.0,), (1.0,)).pairs is None


def test_the_susceptibility_of_known_fluctuations():
    """Configurations with condensate c of variance 0.01, seen through noise of variance 0.25 a vector."""
    rng = np.random.default_rng(7)
    n, vectors, volume = 20_000, 4, 256
    c = 0.5 + 0.1 * rng.normal(size=(n, 1))
    seen = c + 0.5 * rng.normal(size=(n, vectors))
    samples = [CondensateSample(tuple(row), (2.0, 2.2)) for row in seen]
    series = np.array([(s.mean, s.pairs, s.mean_connected) for s in samples]).T
    found = chiral_susceptibility(*series, volume=volume, flavors=2)
    assert agrees(found.disconnected, 0.25 * volume * 0.01, precision=0.1)
    # The plain variance of the means counts the noise.
    assert abs(0.25 * volume * np.var(series[0]) - found.disconnected.mean) > 10 * found.disconnected.error
    assert found.connected.mean == pytest.approx(0.5 * 2.1)


def test_bad_requests():
    operator = StaggeredOperator(GaugeField((2, 2, 2, 2)), MASS)
    with pytest.raises(SpecError, match=r"`n`.*1 and 22.*Got 0"):
        lowest_eigenvalues(operator, 0)
    with pytest.raises(SpecError, match=r"`n_vectors`.*Got 0"):
        measure_condensate(Inverter(GaugeField((2, 2, 2, 2)), MASS), MASS, n_vectors=0, **ADDRESS)
