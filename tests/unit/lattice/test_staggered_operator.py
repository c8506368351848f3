"""The operator as a Python object: what it takes up, what it refuses, and its spectrum."""

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from reference import gauge, staggered

DIMS = (4, 4, 4, 4)


@pytest.fixture
def field():
    return GaugeField.hot(DIMS, seed=1, threads=1)


def noise(field, parity=0, precision="f64", step=0):
    eta = ColourField(field, parity, precision)
    eta.gaussian(seed=1, stream=0, step=step, draw=5 << 28)
    return eta


def hopped(operator, source):
    out = ColourField(operator, 1 - source.parity, operator.precision)
    operator.hop(out, source)
    return out


class TestLinks:
    def test_changed_links_are_taken_up_by_refresh_only(self, field):
        operator = StaggeredOperator(field, 0.1)
        before = hopped(operator, noise(field)).values
        field.overrelax()
        assert np.array_equal(hopped(operator, noise(field)).values, before)
        operator.refresh()
        after = hopped(operator, noise(field))
        assert np.max(np.abs(after.to_host() - staggered.hop(field.to_links(), noise(field).to_host()))) <= 1e-14
        assert np.max(np.abs(after.values - before)) > 0.1

    @pytest.mark.parametrize("precision", ["f64", "f32"])
    def test_masses_differ_by_a_multiple_of_one(self, field, precision):
        source = noise(field, 0, precision)
        images = [ColourField(field, 0, precision) for _ in range(2)]
        for mass, out in zip((0.1, 0.7), images, strict=True):
            StaggeredOperator(field, mass, precision=precision).normal(out, source)
        difference = images[1].to_host() - images[0].to_host()
        assert (
            np.max(np.abs(difference - (0.7**2 - 0.1**2) * source.to_host())) <= {"f64": 1e-14, "f32": 5e-6}[precision]
        )

    def test_the_boundary_in_time_is_antiperiodic(self):
        """A constant on a cold field: all terms cancel but those across the boundary."""
        operator = StaggeredOperator(GaugeField(DIMS, threads=1), 0.1)
        constant = ColourField(operator, 0)
        constant.from_host(np.ones((*DIMS[::-1], 3)))
        out = hopped(operator, constant).to_host()
        odd = gauge.parity_mask(out, 1)[..., None]
        eta = np.where(odd, staggered.phases(DIMS, staggered.PERIODIC)[..., 3:], 0)
        assert np.all(out[1:-1] == 0)
        assert np.all(out[0] == eta[0])
        assert np.all(out[-1] == -eta[-1])

    def test_periodic_time_would_be_seen(self, field):
        out = hopped(StaggeredOperator(field, 0.1), noise(field)).to_host()
        links, psi = field.to_links(), noise(field).to_host()
        assert np.max(np.abs(out - staggered.hop(links, psi))) <= 1e-14
        assert np.max(np.abs(out - staggered.hop(links, psi, staggered.PERIODIC))) > 0.1


class TestSpectrum:
    def test_a_cold_field_has_the_free_eigenvalues(self):
        operator = StaggeredOperator(GaugeField((4, 2, 2, 4), threads=1), 0.3)
        source, out = ColourField(operator, 0), ColourField(operator, 0)
        matrix = []
        even = np.flatnonzero(np.repeat(gauge.parity_mask(source.to_host(), 0).ravel(), 3))
        for place in even:
            unit = np.zeros((4, 2, 2, 4, 3), complex)
            unit.flat[place] = 1
            source.from_host(unit)
            operator.normal(out, source)
            matrix.append(out.to_host().ravel()[even])
        wanted = np.sort(np.repeat(staggered.free_denominator((4, 2, 2, 4), 0.3).ravel(), 3))
        # each value belongs to both parities, so every second one of all is on even sites
        assert np.linalg.eigvalsh(np.array(matrix).T) == pytest.approx(wanted[::2], abs=1e-13)
        assert wanted[-1] <= 4 + 0.3**2

    @pytest.mark.parametrize("start", ["hot", "cold"])
    def test_the_largest_eigenvalue_is_bounded(self, start):
        """By the power method: below 4 on a cold field, below 16 on any, near 7 on Haar links."""
        field = GaugeField.hot(DIMS, seed=5, threads=1) if start == "hot" else GaugeField(DIMS, threads=1)
        operator = StaggeredOperator(field, 1e-6)
        x, y = noise(field), ColourField(field, 0)
        for _ in range(60):
            operator.normal(y, x)
            y.scale(1 / np.sqrt(y.norm2()))
            x, y = y, x
        operator.normal(y, x)
        largest = x.dot(y).real
        low, high = (5.5, 16) if start == "hot" else (1.9, 4 + 1e-9)
        assert low < largest < high


class TestForce:
    def test_several_fields_are_the_sum_of_each(self, field):
        operator = StaggeredOperator(field, 0.1)
        fields = [noise(field, step=step) for step in range(4)]
        coefficients = [1.0, -0.5, 0.25, 3.0]
        together, apart = Momenta(field), Momenta(field)
        operator.force(together, fields, coefficients)
        for x, c in zip(fields, coefficients, strict=True):
            operator.force(apart, [x], [c])
        assert np.max(np.abs(together.values - apart.values)) <= 1e-14 * np.max(np.abs(apart.values)) * 10
        assert np.max(np.abs(apart.values)) > 1

    def test_the_mass_does_not_enter(self, field):
        found = []
        for mass in (0.01, 10.0):
            momenta = Momenta(field)
            StaggeredOperator(field, mass).force(momenta, [noise(field)], [1.0])
            found.append(momenta.values)
        assert np.array_equal(*found)


class TestErrors:
    @pytest.mark.parametrize("mass", [0, -0.1, np.nan, np.inf])
    def test_the_mass_is_positive(self, field, mass):
        with pytest.raises(SpecError, match=r"`mass`.*> 0"):
            StaggeredOperator(field, mass)

    def test_precisions_and_parities_have_names(self, field):
        with pytest.raises(SpecError, match=r"`precision`.*f64.*f32"):
            StaggeredOperator(field, 0.1, precision="f16")
        with pytest.raises(SpecError, match=r"`precision`.*f64.*f32"):
            ColourField(field, 0, "f16")
        with pytest.raises(SpecError, match=r"`parity`.*0"):
            ColourField(field, 2)

    def test_hops_change_the_parity(self, field):
        with pytest.raises(SpecError, match="`out` must be on parity 1"):
            StaggeredOperator(field, 0.1).hop(ColourField(field, 0), ColourField(field, 0))

    def test_fields_fit_their_operator(self, field):
        operator = StaggeredOperator(field, 0.1)
        good = ColourField(field, 0)
        for bad in (ColourField(field, 0, "f32"), ColourField(GaugeField((4, 4, 4, 2)), 0)):
            for act in (
                lambda bad=bad: operator.hop(ColourField(field, 1), bad),
                lambda bad=bad: operator.normal(bad, good),
                lambda bad=bad: operator.normal(good, bad),
                lambda bad=bad: operator.residual(good, bad, good),
                lambda bad=bad: operator.force(Momenta(field), [good, bad], [1.0, 1.0]),
            ):
                with pytest.raises(SpecError, match="a field"):
                    act()

    def test_fields_are_alike(self, field):
        even, odd = ColourField(field, 0), ColourField(field, 1)
        for act in (even.dot, even.add, even.assign):
            with pytest.raises(SpecError, match=r"`other`.*field"):
                act(odd)
        with pytest.raises(SpecError, match="a field"):
            StaggeredOperator(field, 0.1).normal(odd, even)

    def test_host_arrays_have_the_shape_of_the_lattice(self, field):
        with pytest.raises(SpecError, match=r"`array`.*Got \(4, 4, 4, 3\)"):
            ColourField(field, 0).from_host(np.zeros((4, 4, 4, 3)))

    def test_a_force_has_fields_on_even_sites_and_a_coefficient_each(self, field):
        operator, momenta = StaggeredOperator(field, 0.1), Momenta(field)
        even, odd = ColourField(field, 0), ColourField(field, 1)
        for fields, coefficients in (([], []), ([even], [1.0, 2.0]), ([even, even], [1.0])):
            with pytest.raises(SpecError, match=r"`fields`.*`coefficients`.*as many"):
                operator.force(momenta, fields, coefficients)
        with pytest.raises(SpecError, match=r"`fields`.*even"):
            operator.force(momenta, [odd], [1.0])
        with pytest.raises(SpecError, match="precision"):
            StaggeredOperator(field, 0.1, precision="f32").force(momenta, [ColourField(field, 0, "f32")], [1.0])


def test_a_copy_is_independent(field):
    first = noise(field)
    second = first.copy()
    second.scale(2)
    assert np.array_equal(first.values, noise(field).values)
    assert np.array_equal(second.values, 2 * first.values)
    second.zero()
    assert second.norm2() == 0
    second.assign(first)
    assert np.array_equal(second.values, first.values)


def test_noise_has_unit_variance_a_component():
    """Each real part has variance 1/2: <eta^dagger eta> is three a site."""
    eta = noise(GaugeField((16, 8, 8, 8), threads=1))
    parts = eta.to_host()[gauge.parity_mask(eta.to_host(), 0)].view(float)
    n = parts.size
    assert parts.mean() == pytest.approx(0, abs=4 * np.sqrt(0.5 / n))
    assert parts.var() == pytest.approx(0.5, abs=4 * 0.5 * np.sqrt(2 / n))
    assert eta.norm2() == pytest.approx(1.5 * eta.volume, rel=4 / np.sqrt(1.5 * eta.volume))
    assert abs(np.mean(parts[:, ::2] * parts[:, 1::2])) <= 4 * 0.5 / np.sqrt(n / 2)
