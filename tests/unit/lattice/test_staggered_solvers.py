"""Solvers: exact cases, what they promise about the residual, and what they refuse."""

import numpy as np
import pytest

from metalforge.core import MetalforgeError, SpecError
from metalforge.lattice import GaugeField
from metalforge.lattice.solvers import SolverError, cg, multishift_cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from reference import staggered

DIMS, MASS = (4, 4, 4, 6), 0.05
SHIFTS = [0.3, 0.0, 2.0, 0.01, 40.0]


@pytest.fixture(scope="module")
def field():
    links = GaugeField.hot(DIMS, seed=1, threads=1)
    for step in range(1, 4):
        links.heatbath(5.5, seed=1, stream=0, step=step)
    return links


@pytest.fixture
def operator(field):
    return StaggeredOperator(field, MASS)


@pytest.fixture
def single(field):
    return StaggeredOperator(field, MASS, precision="f32")


def noise(geometry, parity=0, precision="f64", step=0):
    eta = ColourField(geometry, parity, precision)
    eta.gaussian(seed=1, stream=0, step=step, draw=5 << 28)
    return eta


def solve(kind, operator, single, source, **options):
    """One solution by each of the solvers."""
    out = ColourField(source, source.parity)
    options = {"tolerance": 1e-10, "max_iterations": 2000} | options
    if kind == "mixed":
        return out, cg(operator, source, out, single=single, **options)
    if kind == "multishift":
        shift = options.pop("shift", 0.0)
        return out, multishift_cg(operator, source, [out], [shift], **options)
    return out, cg(operator, source, out, **options)


KINDS = ["cg", "multishift", "mixed"]


def true_residual(operator, source, out, shift=0.0):
    image = staggered.normal(operator.gauge.to_links(), out.to_host(), operator.mass, shift)
    return np.linalg.norm(source.to_host() - image) / np.linalg.norm(source.to_host())


class TestSolutions:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("parity", [0, 1])
    @pytest.mark.parametrize("shift", [0.0, 0.4, -0.001])
    def test_the_residual_is_the_true_one_and_below_the_tolerance(self, operator, single, kind, parity, shift):
        source = noise(operator, parity)
        out, info = solve(kind, operator, single, source, shift=shift)
        assert info.residual <= 1e-10
        assert info.residual == pytest.approx(true_residual(operator, source, out, shift), rel=1e-3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_free_propagator(self, kind):
        """D^-1 = D^dagger (D^dagger D)^-1 of a point source on a cold field, against the momentum sum."""
        dims, mass = (6, 4, 2, 8), 0.4
        field = GaugeField(dims, threads=1)
        operator, single = (StaggeredOperator(field, mass, precision=p) for p in ("f64", "f32"))
        host = np.zeros((*dims[::-1], 3), complex)
        host[0, 0, 0, 0, 1] = 1
        source = ColourField(field, 0)
        source.from_host(host)
        even, _ = solve(kind, operator, single, source, tolerance=1e-12)
        odd = ColourField(field, 1)
        operator.hop(odd, even)
        propagator = mass * even.to_host() - odd.to_host()
        assert np.max(np.abs(propagator[..., 1] - staggered.free_propagator(dims, mass))) <= 1e-11
        assert np.all(propagator[..., [0, 2]] == 0)

    def test_every_shift_has_its_solution(self, operator):
        source, outs = noise(operator), [ColourField(operator, 0) for _ in SHIFTS]
        info = multishift_cg(operator, source, outs, SHIFTS, tolerance=1e-10, max_iterations=2000)
        residuals = [true_residual(operator, source, out, s) for out, s in zip(outs, SHIFTS, strict=True)]
        assert max(residuals) <= 1e-10 * (1 + 1e-3)
        assert info.residual == pytest.approx(max(residuals), rel=1e-3)
        alone = [
            cg(operator, source, ColourField(operator, 0), tolerance=1e-10, max_iterations=2000, shift=s).iterations
            for s in SHIFTS
        ]
        # the smallest shift decides; the others end early and are not worked on any more
        assert info.iterations == pytest.approx(max(alone), abs=3)

    def test_one_shift_is_conjugate_gradients(self, operator, single):
        source = noise(operator)
        one, first = solve("cg", operator, single, source)
        other, second = solve("multishift", operator, single, source)
        assert np.array_equal(one.values, other.values)
        assert first.iterations == second.iterations

    def test_mixed_precision_takes_as_many_iterations(self, operator, single):
        source = noise(operator)
        double, mixed = (solve(kind, operator, single, source)[1] for kind in ("cg", "mixed"))
        assert mixed.iterations <= 1.1 * double.iterations

    @pytest.mark.parametrize("kind", ["cg", "mixed"])
    def test_a_guess_is_where_the_search_starts(self, operator, single, kind):
        source = noise(operator)
        rough, cheap = solve(kind, operator, single, source, tolerance=1e-4)
        kept = rough.values.copy()
        out, info = solve(kind, operator, single, source, guess=rough)
        _, from_zero = solve(kind, operator, single, source)
        assert info.iterations < from_zero.iterations
        assert cheap.iterations < from_zero.iterations
        assert np.array_equal(rough.values, kept)
        again = solve(kind, operator, single, source, guess=out)[1]
        assert again.iterations == 0

    def test_a_guess_may_be_the_field_of_the_solution(self, operator):
        source = noise(operator)
        out, first = solve("cg", operator, None, source, tolerance=1e-4)
        cg(operator, source, out, tolerance=1e-10, max_iterations=2000, guess=out)
        assert true_residual(operator, source, out) <= 1e-10 * (1 + 1e-3)
        assert first.iterations > 0

    @pytest.mark.parametrize("kind", KINDS)
    def test_nothing_comes_of_nothing(self, operator, single, kind):
        out, info = solve(kind, operator, single, ColourField(operator, 0))
        assert out.norm2() == 0
        assert info == (0, 0.0)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("size", [1e-30, 1e30])
    def test_the_size_of_the_source_does_not_matter(self, operator, single, kind, size):
        source = noise(operator)
        unit, first = solve(kind, operator, single, source)
        source.scale(size)
        out, second = solve(kind, operator, single, source)
        assert abs(first.iterations - second.iterations) <= 1
        assert np.linalg.norm(out.values / size - unit.values) <= 1e-7 * np.linalg.norm(unit.values)

    def test_near_the_limit_of_double_precision(self, operator, single):
        source = noise(operator)
        for kind in KINDS:
            out, info = solve(kind, operator, single, source, tolerance=1e-13)
            assert info.residual <= 1e-13
            assert true_residual(operator, source, out) <= 2e-13

    def test_single_precision_alone(self, single):
        source, out = noise(single, 0, "f32"), ColourField(single, 0, "f32")
        cg(single, source, out, tolerance=1e-4, max_iterations=2000)
        assert true_residual(single, source, out) <= 1.01e-4


class TestFailure:
    @pytest.mark.parametrize("kind", KINDS)
    def test_too_few_iterations_raise(self, operator, single, kind):
        source = noise(operator)
        with pytest.raises(SolverError, match=r"1e-10\. Got .* 15 iterations") as caught:
            solve(kind, operator, single, source, max_iterations=15)
        assert isinstance(caught.value, MetalforgeError)
        assert caught.value.info.iterations == 15
        assert caught.value.info.residual > 1e-10

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_tolerance_below_rounding_is_an_error(self, operator, single, kind):
        with pytest.raises(SolverError, match=r"f64(.|\n)*hint: raise `tolerance`"):
            solve(kind, operator, single, noise(operator), tolerance=1e-18, max_iterations=10**5)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_source_that_is_not_finite_is_refused(self, operator, single, kind, value):
        source = noise(operator)
        host = source.to_host()
        host[0, 1, 1, 2, 0] = value
        source.from_host(host)
        with pytest.raises(SpecError, match="`source`"):
            solve(kind, operator, single, source)

    @pytest.mark.parametrize("kind", KINDS)
    def test_links_that_are_not_finite_are_seen(self, kind):
        field = GaugeField(DIMS, threads=1)
        field.links.flat[5] = np.nan
        operator, single = (StaggeredOperator(field, MASS, precision=p) for p in ("f64", "f32"))
        with pytest.raises(SolverError, match="not finite"):
            solve(kind, operator, single, noise(field))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tolerance": 0}, "`tolerance` must be a number in"),
            ({"tolerance": -1e-8}, "`tolerance` must be a number in"),
            ({"tolerance": 1.0}, "`tolerance` must be a number in"),
            ({"tolerance": np.nan}, "`tolerance` must be a number in"),
            ({"max_iterations": 0}, "`max_iterations`"),
            ({"shift": -(MASS**2)}, "`shift` must be a finite number above -mass"),
            ({"shift": np.nan}, "`shift` must be a finite number above -mass"),
        ],
    )
    def test_arguments_are_checked(self, operator, single, options, message):
        for kind in KINDS:
            with pytest.raises(SpecError, match=message):
                solve(kind, operator, single, noise(operator), **options)

    def test_fields_must_fit(self, operator, single):
        source, options = noise(operator), {"tolerance": 1e-8, "max_iterations": 100}
        for out in (ColourField(operator, 1), ColourField(operator, 0, "f32")):
            with pytest.raises(SpecError, match=r"`out`.*field"):
                cg(operator, source, out, **options)
        with pytest.raises(SpecError, match=r"`guess`.*field"):
            cg(operator, source, ColourField(operator, 0), guess=ColourField(operator, 1), **options)
        with pytest.raises(SpecError, match=r"`source`.*field"):
            cg(single, source, ColourField(operator, 0), **options)
        with pytest.raises(SpecError, match=r"`out`.*its own"):
            cg(operator, source, source, **options)
        out = ColourField(operator, 0)
        with pytest.raises(SpecError, match=r"`out`.*its own"):
            multishift_cg(operator, source, [out, out], [0.0, 1.0], **options)
        for outs, shifts in (([], []), ([out], [0.0, 1.0]), ([out, ColourField(operator, 0)], [0.0])):
            with pytest.raises(SpecError, match="as many"):
                multishift_cg(operator, source, outs, shifts, **options)

    def test_mixed_precision_has_two_operators_of_one_mass(self, operator, single, field):
        source, out, options = noise(operator), ColourField(operator, 0), {"tolerance": 1e-8, "max_iterations": 100}
        with pytest.raises(SpecError, match=r"`operator`.*f64.*`single`.*f32"):
            cg(operator, source, out, single=operator, **options)
        with pytest.raises(SpecError, match="`single`"):
            cg(operator, source, out, single=StaggeredOperator(field, 0.2, precision="f32"), **options)


def test_a_solve_allocates_its_workspace_once(operator, single):
    """The fields lent to a solve come back and are lent again."""
    source, out = noise(operator), ColourField(operator, 0)
    for _ in range(3):
        cg(operator, source, out, tolerance=1e-4, max_iterations=2000)
        cg(operator, source, out, single=single, tolerance=1e-4, max_iterations=2000)
    assert len(operator._scratch) <= 3
    assert len(single._scratch) <= 3
    assert len(operator._solvers) == 1
