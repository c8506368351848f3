"""Every staggered kernel against the NumPy twin, at every build level, on lattices of every split of the lanes."""

from functools import cache

import numpy as np
import pytest

from metalforge import native
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from metalforge.lattice.solvers import cg, multishift_cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from reference import gauge, staggered

SHAPES = [(2, 2, 2, 2), (4, 4, 4, 4), (8, 8, 8, 4), (6, 4, 2, 8), (4, 8, 2, 6), (16, 4, 4, 2), (2, 2, 2, 8)]
PRECISIONS = ["f64", "f32"]
PARITIES = [0, 1]

POINT = {"f64": 1e-14, "f32": 5e-6}
"""Error of a component of H psi or D^dagger D psi, for psi of order one."""
SUMS = {"f64": 1e-14, "f32": 1e-6}
"""Relative error of a norm."""
FORCE = {"f64": 1e-14, "f32": 2e-6}
"""Error of a force component over the largest one."""

pytestmark = pytest.mark.usefixtures("isa")  # all of it once a build level


def frozen(array):
    array.flags.writeable = False
    return array


@cache
def links_of(dims):
    return frozen(gauge.random_links(np.random.default_rng(sum(dims)), dims))


@cache
def noise_of(dims, number=0):
    """Both parities filled."""
    return frozen(staggered.noise(np.random.default_rng([*dims, number]), links_of(dims)))


def on(dims, parity, number=0):
    return noise_of(dims, number) * gauge.parity_mask(links_of(dims), parity)[..., None]


@cache
def hopped(dims, parity):
    return frozen(staggered.hop(links_of(dims), on(dims, parity)))


def gauge_of(dims, precision="f64", threads=1):
    return GaugeField.from_links(links_of(dims), precision=precision, threads=threads)


def field_of(geometry, host, parity, precision="f64"):
    field = ColourField(geometry, parity, precision)
    field.from_host(host)
    return field


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("parity", PARITIES)
class TestFields:
    def test_values_come_back_from_the_layout_bit_for_bit(self, dims, precision, parity):
        host = noise_of(dims).astype(np.complex64 if precision == "f32" else np.complex128)
        field = field_of(gauge_of(dims), host, parity, precision)
        assert np.array_equal(field.to_host(), np.where(gauge.parity_mask(host, parity)[..., None], host, 0))
        assert field.values.ctypes.data % 64 == 0

    def test_products_and_norms(self, dims, precision, parity):
        a, b = (field_of(gauge_of(dims), noise_of(dims, n), parity, precision) for n in (0, 1))
        wanted = np.vdot(on(dims, parity, 0), on(dims, parity, 1))
        scale = np.linalg.norm(on(dims, parity, 0)) * np.linalg.norm(on(dims, parity, 1))
        assert abs(a.dot(b) - wanted) <= SUMS[precision] * scale
        assert a.norm2() == pytest.approx(np.linalg.norm(on(dims, parity)) ** 2, rel=SUMS[precision])
        assert a.dot(a).real == a.norm2()
        assert a.dot(a).imag == pytest.approx(0, abs=SUMS[precision] * scale)

    def test_sums_and_multiples(self, dims, precision, parity):
        for factor in (1.0, -0.7, 0.3 - 2j):
            a, b = (field_of(gauge_of(dims), noise_of(dims, n), parity, precision) for n in (0, 1))
            a.add(b, factor)
            assert np.allclose(
                a.to_host(), on(dims, parity, 0) + factor * on(dims, parity, 1), rtol=0, atol=POINT[precision]
            )
            b.scale(factor)
            assert np.allclose(b.to_host(), factor * on(dims, parity, 1), rtol=0, atol=POINT[precision])


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_noise_is_a_function_of_the_address(dims, precision):
    field = ColourField(gauge_of(dims), 1, precision)
    field.gaussian(seed=2026, stream=5, step=17, draw=5 << 28)
    normals = native.Stream(2026, 5).normal(step=17, sites=int(np.prod(dims)), draws=6, first_draw=5 << 28, threads=1)
    real = field.values.dtype.type
    wanted = (normals.astype(real) * real(np.sqrt(0.5))).astype(float).view(complex).reshape(*dims[::-1], 3)
    assert np.array_equal(field.to_host(), np.where(gauge.parity_mask(wanted, 1)[..., None], wanted, 0))


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("parity", PARITIES)
class TestOperator:
    def test_hop(self, dims, precision, parity):
        operator = StaggeredOperator(gauge_of(dims, precision), 0.3, precision=precision)
        out = ColourField(operator, 1 - parity, precision)
        operator.hop(out, field_of(operator, noise_of(dims), parity, precision))
        assert np.max(np.abs(out.to_host() - hopped(dims, parity))) <= POINT[precision]

    def test_links_of_the_other_precision(self, dims, precision, parity):
        other = {"f64": "f32", "f32": "f64"}[precision]
        operator = StaggeredOperator(gauge_of(dims, other), 0.3, precision=precision)
        out = ColourField(operator, 1 - parity, precision)
        operator.hop(out, field_of(operator, noise_of(dims), parity, precision))
        assert np.max(np.abs(out.to_host() - hopped(dims, parity))) <= POINT["f32"]

    def test_normal_and_residual(self, dims, precision, parity):
        operator = StaggeredOperator(gauge_of(dims, precision), 0.3, precision=precision)
        x, b = (field_of(operator, noise_of(dims, n), parity, precision) for n in (0, 1))
        out = ColourField(operator, parity, precision)
        wanted = staggered.normal(links_of(dims), on(dims, parity), 0.3, 0.25)
        operator.normal(out, x, shift=0.25)
        assert np.max(np.abs(out.to_host() - wanted)) <= POINT[precision]
        norm2 = operator.residual(out, b, x, shift=0.25)
        wanted = on(dims, parity, 1) - wanted
        assert np.max(np.abs(out.to_host() - wanted)) <= POINT[precision]
        assert norm2 == pytest.approx(np.linalg.norm(wanted) ** 2, rel=SUMS[precision])
        operator.normal(x, x, shift=0.25)
        operator.residual(out, b, b, shift=0.25)
        assert np.max(np.abs(x.to_host() - (on(dims, parity, 1) - wanted))) <= POINT[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("parity", PARITIES)
def test_links_that_come_from_far(precision, parity):
    """Megabytes of links: the sweep that fetches ahead."""
    dims = (16, 8, 8, 8)
    operator = StaggeredOperator(gauge_of(dims, precision), 0.3, precision=precision)
    out = ColourField(operator, 1 - parity, precision)
    operator.hop(out, field_of(operator, noise_of(dims), parity, precision))
    assert np.max(np.abs(out.to_host() - hopped(dims, parity))) <= POINT[precision]


@pytest.mark.parametrize(("precision", "dims"), [("f64", (18, 10, 14, 22)), ("f32", (18, 18, 14, 22))])
def test_links_of_two_rows(precision, dims):
    """Links that no cache holds are kept as two rows; cut with twists, lanes of one vector have both signs of a hop."""
    field = GaugeField.hot(dims, seed=5, precision=precision, threads=1)
    assert field.links.nbytes > 24 << 20
    links = field.to_links()
    host = staggered.noise(np.random.default_rng(1), links) * gauge.parity_mask(links, 0)[..., None]
    operator = StaggeredOperator(field, 0.3, precision=precision)
    even, odd, momenta = field_of(operator, host, 0, precision), ColourField(operator, 1, precision), Momenta(field)
    operator.hop(odd, even)
    wanted = staggered.hop(links, host)
    assert np.max(np.abs(odd.to_host() - wanted)) <= POINT[precision]
    operator.hop(even, odd)
    assert np.max(np.abs(even.to_host() - staggered.hop(links, wanted))) <= 2 * POINT[precision]
    if precision == "f64":
        operator.force(momenta, [field_of(operator, host, 0, precision)], [1.0])
        force = staggered.force(links, host)
        error = np.abs(gauge.momenta_to_host(field, momenta.values) + force)
        assert np.max(error) <= FORCE[precision] * np.max(np.abs(force))


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_force(dims, precision):
    """Several fields at once, on momenta that are not zero."""
    field = gauge_of(dims, precision)
    operator = StaggeredOperator(field, 0.3, precision=precision)
    coefficients = [0.7, -1.3, 2.0]
    hosts = [on(dims, 0, number) for number in range(3)]
    before = np.random.default_rng(1).normal(size=(*dims[::-1], 4, 8))
    momenta = Momenta(field)
    momenta.values[...] = gauge.momenta_from_host(field, before)
    operator.force(momenta, [field_of(field, host, 0, precision) for host in hosts], coefficients)
    force = sum(c * staggered.force(links_of(dims), host) for c, host in zip(coefficients, hosts, strict=True))
    error = np.abs(gauge.momenta_to_host(field, momenta.values) - (before - force))
    assert np.max(error) <= FORCE[precision] * np.max(np.abs(force))


@pytest.mark.parametrize("dims", [(2, 2, 2, 2), (4, 4, 4, 2), (6, 2, 4, 4)])
def test_the_force_is_the_derivative_of_the_bilinear(dims):
    """d/dw_a of X^dagger D^dagger D X under U -> exp(i w_a T_a) U, by differences of fourth order."""
    rng = np.random.default_rng(3)
    field = gauge_of(dims)
    x = field_of(field, noise_of(dims), 0)
    momenta = Momenta(field)
    StaggeredOperator(field, 0.3).force(momenta, [x], [-1.0])
    force = gauge.momenta_to_host(field, momenta.values)

    def bilinear(w, link, direction):
        links = links_of(dims).copy()
        links[link] = gauge.exp_i(w * direction) @ links[link]
        operator = StaggeredOperator(GaugeField.from_links(links, threads=1), 0.3)
        out = ColourField(operator, 0)
        operator.normal(out, x)
        return x.dot(out).real

    for _ in range(6):
        link, direction = tuple(rng.integers(n) for n in (*dims[::-1], 4)), rng.normal(size=8)
        h = 4e-3
        f = {k: bilinear(k * h, link, direction) for k in (-2, -1, 1, 2)}
        slope = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h)
        assert slope == pytest.approx(force[link] @ direction, abs=1e-8)


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("parity", PARITIES)
def test_a_solution_satisfies_the_equation_of_the_twin(dims, precision, parity):
    operator = StaggeredOperator(gauge_of(dims, precision), 0.5, precision=precision)
    source, out = field_of(operator, noise_of(dims), parity, precision), ColourField(operator, parity, precision)
    tolerance = {"f64": 1e-12, "f32": 1e-5}[precision]
    info = cg(operator, source, out, tolerance=tolerance, max_iterations=500, shift=0.1)
    residual = on(dims, parity) - staggered.normal(links_of(dims), out.to_host(), 0.5, 0.1)
    assert np.linalg.norm(residual) <= 1.2 * tolerance * np.linalg.norm(on(dims, parity))
    assert info.residual == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(on(dims, parity)), rel=0.2)


def run_everything(dims, precision, threads):
    """Every kernel once; what each left behind."""
    field = GaugeField.hot(dims, seed=3, precision=precision, threads=threads)
    operator = StaggeredOperator(field, 0.2, precision=precision)
    across = StaggeredOperator(field, 0.2, precision={"f64": "f32", "f32": "f64"}[precision])
    even, odd, out = (ColourField(field, parity, precision) for parity in (0, 1, 0))
    even.gaussian(seed=1, stream=2, step=3, draw=5 << 28)
    operator.hop(odd, even)
    operator.normal(out, even, shift=0.1)
    norm2 = operator.residual(out, even, out)
    momenta = Momenta(field)
    operator.force(momenta, [even, out], [0.3, -0.4])
    solutions = [ColourField(field, 0, precision) for _ in range(3)]
    info = multishift_cg(operator, even, solutions, [0, 0.5, 2.0], tolerance=1e-4, max_iterations=200)
    single = ColourField(field, 0, precision)
    iterations = cg(operator, even, single, tolerance=1e-4, max_iterations=200).iterations
    other_even, other_odd = (ColourField(field, parity, across.precision) for parity in (0, 1))
    other_even.from_host(even.to_host())
    across.hop(other_odd, other_even)
    out.add(even, 0.3 + 0.1j)
    fields = [even, odd, out, other_odd, single, *solutions]
    sums = [norm2, even.norm2(), even.dot(out), info.iterations, info.residual, iterations]
    return [f.values.copy() for f in fields] + [momenta.values, np.array(sums)]


@pytest.mark.parametrize("dims", [(6, 6, 6, 6), (8, 8, 8, 8), (16, 8, 8, 16)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_number_of_threads_does_not_change_a_bit(dims, precision):
    """On these even a single pass is shared out."""
    alone = run_everything(dims, precision, 1)
    for threads in (2, 3):
        together = run_everything(dims, precision, threads)
        assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    assert not any(np.isnan(a).any() for a in alone)


def test_levels_agree(monkeypatch):
    found = []
    for name in native.available_levels():
        monkeypatch.setenv("METALFORGE_ISA", name)
        operator = StaggeredOperator(gauge_of((8, 4, 4, 4)), 0.2)
        source, out = ColourField(operator, 0), ColourField(operator, 0)
        source.gaussian(seed=1, stream=2, step=3, draw=5 << 28)
        info = cg(operator, source, out, tolerance=1e-12, max_iterations=1000)
        found.append((info.iterations, out.to_host()))
    assert max(n for n, _ in found) - min(n for n, _ in found) <= 1
    for _, solution in found[1:]:
        assert np.linalg.norm(solution - found[0][1]) <= 1e-10 * np.linalg.norm(found[0][1])
