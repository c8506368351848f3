"""The gradient flow against solutions known in closed form, its order in the step, and the scales it sets."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import FlowPoint, GaugeField, gradient_flow, scale_t0, scale_w0
from metalforge.lattice import flow as module
from metalforge.lattice.field import Momenta
from reference import gauge as twin


class EndlessFlow(Exception):  # noqa: N818
    """Stands for a hang."""


@cache
def rough_links():
    field = GaugeField.hot((4, 4, 4, 4), seed=7, threads=1)
    for step in range(1, 31):
        field.heatbath(6.0, seed=7, stream=0, step=step)
    return field.to_links()


def rough(**options):
    return GaugeField.from_links(rough_links(), threads=1, **options)


def fixed(field, t_max, eps, measure_every=0.1):
    return gradient_flow(field, t_max, eps=eps, measure_every=measure_every, tolerance=None)


def abelian(angles):
    """Links exp(i angle lambda_3) for angles of shape (Nt, Nz, Ny, Nx, 4)."""
    return twin.exp_i(2 * angles[..., None] * np.eye(8)[2])


def flux(dims, planes):
    """A constant field strength: n quanta of 2 pi through each plane {(mu, nu): n}, spread evenly."""
    angles = np.zeros((*dims[::-1], 4))
    x = np.indices(dims[::-1])[::-1]
    for (mu, nu), n in planes.items():
        theta = 2 * np.pi * n / (dims[mu] * dims[nu])
        angles[..., nu] += theta * x[mu]
        angles[..., mu] -= theta * dims[mu] * x[nu] * (x[mu] == dims[mu] - 1)
    return abelian(angles)


class TestKnownSolutions:
    def test_one_step_is_the_third_order_scheme_of_luscher(self, isa):
        """Written with its three Z_i = eps Z(W_i), as in arXiv:1006.4518, eq. C.1."""
        dims, eps = (4, 2, 4, 2), 0.05
        w = links = twin.random_links(np.random.default_rng(2), dims, 0.5)
        z = []
        for weights in ([1 / 4], [-17 / 36, 8 / 9], [17 / 36, -8 / 9, 3 / 4]):
            z.append(-eps * twin.force(w, 6.0))
            w = twin.exp_i(sum(c * part for c, part in zip(weights, z, strict=True))) @ w
        field = GaugeField.from_links(links, threads=1)
        module._step(field, Momenta(field), eps)
        assert np.max(np.abs(field.to_links() - w)) <= 1e-14

    def test_a_cold_field_is_a_fixed_point(self, isa):
        for tolerance in (None, 1e-6):
            points = gradient_flow(GaugeField((4, 4, 2, 6), threads=1), 0.2, tolerance=tolerance)
            assert all(p[1:] == (0, 0, 1) for p in points)

    @pytest.mark.parametrize("mode", [1, 2, 3])
    def test_a_weak_plane_wave_decays_by_its_momentum(self, isa, mode):
        """To first order the flow is the heat equation: A_y(x) = cos(k x) shrinks as exp(-k_hat^2 t)."""
        dims, amplitude = (8, 4, 2, 2), 1e-4
        angles = np.zeros((*dims[::-1], 4))
        angles[..., 1] = amplitude * np.cos(2 * np.pi * mode * np.arange(8) / 8)
        points = fixed(GaugeField.from_links(abelian(angles), threads=1), 1.0, 0.005, 0.25)
        k_squared = 4 * math.sin(math.pi * mode / 8) ** 2
        for point in points[1:]:
            assert point.energy / points[0].energy == pytest.approx(math.exp(-2 * k_squared * point.t), rel=1e-5)
            assert point.energy < points[0].energy

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_constant_field_has_its_charge_and_does_not_flow(self, isa, sign):
        dims = (4, 6, 4, 8)
        field = GaugeField.from_links(flux(dims, {(0, 1): 1, (2, 3): sign}), threads=1)
        a, b = math.sin(2 * math.pi / 24), math.sin(2 * math.pi * sign / 32)
        for point in gradient_flow(field, 0.1):
            assert point.energy == pytest.approx(2 * (a * a + b * b), rel=1e-12)
            assert point.charge == pytest.approx(field.volume * 2 * a * b / (4 * math.pi**2), rel=1e-12)
            # 2 in the continuum; the sines make the lattice miss some of it.
            assert point.charge == pytest.approx(2 * sign, rel=0.05)

    @pytest.mark.parametrize("planes", [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))])
    def test_each_pair_of_planes_has_its_sign_in_the_charge(self, planes):
        dims = (4, 4, 4, 4)
        field = GaugeField.from_links(flux(dims, dict.fromkeys(planes, 1)), threads=1)
        sign = -1 if planes[0] == (0, 2) else 1
        density = math.sin(2 * math.pi / 16) ** 2 * 2 / (4 * math.pi**2)
        assert field.clover()[1] == pytest.approx(sign * 256 * density, rel=1e-12)

    def test_the_action_falls_by_the_square_of_the_force(self):
        field = rough()
        force = twin.force(rough_links(), 6.0)
        eps = 1e-5
        flowed = field.copy()
        module._step(flowed, Momenta(flowed), eps)
        slope = (flowed.action(6.0) - field.action(6.0)) / eps
        assert slope == pytest.approx(-np.sum(force**2), rel=1e-3)


class TestReflections:
    @pytest.mark.parametrize("mu", range(4))
    def test_the_charge_changes_sign_in_a_mirror(self, mu):
        energy, charge = rough().clover()
        mirrored = GaugeField.from_links(twin.reflect(rough_links(), mu), threads=1)
        assert mirrored.clover() == (pytest.approx(energy, rel=1e-13), pytest.approx(-charge, abs=1e-14))
        assert abs(charge) > 1e-3
        assert mirrored.plaquette_sums() == pytest.approx(rough().plaquette_sums(), rel=1e-13)

    def test_the_charge_changes_sign_under_parity(self):
        links = rough_links()
        for mu in range(3):
            links = twin.reflect(links, mu)
        assert twin.clover(links)[1] == pytest.approx(-twin.clover(rough_links())[1], abs=1e-14)
        assert GaugeField.from_links(links, threads=1).clover()[1] == pytest.approx(-rough().clover()[1], abs=1e-14)

    def test_two_reflections_are_none(self):
        assert np.array_equal(twin.reflect(twin.reflect(rough_links(), 1), 1), rough_links())


class TestIntegration:
    def test_the_flow_smooths(self, isa):
        points = fixed(rough(), 1.0, 0.02, 0.05)
        assert np.all(np.diff([p.plaquette for p in points]) > 0)
        assert np.all(np.diff([p.energy for p in points]) < 0)
        assert [p.t for p in points] == pytest.approx(np.arange(21) * 0.05)

    def test_the_error_of_a_fixed_step_is_of_third_order(self):
        def flowed(n):
            field = rough()
            momenta = Momenta(field)
            for _ in range(n):
                module._step(field, momenta, 0.2 / n)
            return field.links

        links = [flowed(n) for n in (10, 20, 40, 80)]
        changes = [np.max(np.abs(a - b)) for a, b in pairwise(links)]
        orders = np.log2(np.divide(changes[:-1], changes[1:]))
        assert orders == pytest.approx([3, 3], abs=0.2)

    def test_halving_the_step_hardly_changes_the_energy(self):
        pairs = list(zip(fixed(rough(), 1.0, 0.02), fixed(rough(), 1.0, 0.01), strict=True))
        for coarse, fine in pairs:
            # The first steps meet the full roughness of the lattice; from t = 1/2 on the field is smooth.
            assert abs(coarse.energy - fine.energy) < (1e-6 if coarse.t >= 0.5 else 1e-5)
        assert pairs[-1][0].energy != pairs[-1][1].energy

    @pytest.mark.parametrize("tolerance", [1e-5, 1e-6, 1e-8])
    @pytest.mark.parametrize("eps", [1e-4, 0.01, 0.5])
    def test_an_adaptive_step_agrees_with_tiny_ones(self, tolerance, eps):
        adaptive = gradient_flow(rough(), 0.6, eps=eps, measure_every=0.1, tolerance=tolerance)
        for a, b in zip(adaptive, tiny_steps(), strict=True):
            assert a.t == b.t
            assert abs(a.energy - b.energy) <= 10 * tolerance
            assert abs(a.plaquette - b.plaquette) <= tolerance
            assert abs(a.charge - b.charge) <= 10 * tolerance

    def test_single_precision_follows_double(self):
        for a, b in zip(gradient_flow(rough(precision="f32"), 0.6, measure_every=0.1), tiny_steps(), strict=True):
            assert a.energy == pytest.approx(b.energy, rel=1e-5)
            assert a.charge == pytest.approx(b.charge, abs=1e-5)

    def test_the_field_itself_does_not_flow(self):
        field = rough()
        gradient_flow(field, 0.1)
        assert np.array_equal(field.to_links(), rough_links())

    def test_it_stops_once_the_reference_is_passed(self):
        points = gradient_flow(rough(), 5.0, measure_every=0.1, stop_at_t2_energy=0.04)
        assert points[-1].t2_energy > 0.04
        assert all(p.t2_energy <= 0.04 for p in points[:-1])
        assert points[-1].t < 1

    @pytest.mark.parametrize("argument", ["t_max", "eps", "measure_every"])
    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
    def test_lengths_must_be_positive(self, argument, bad):
        arguments = {"t_max": 0.1, "eps": 0.01, "measure_every": 0.05} | {argument: bad}
        with pytest.raises(SpecError, match=f"`{argument}`"):
            gradient_flow(rough(), **arguments)

    @pytest.mark.parametrize("tolerance", [0.0, -1e-6, math.nan])
    def test_a_tolerance_that_cannot_be_met_is_refused(self, monkeypatch, tolerance):
        steps = iter(range(150))
        one_step = module._step

        def limited_step(*arguments):
            if next(steps, None) is None:
                raise EndlessFlow
            one_step(*arguments)

        monkeypatch.setattr(module, "_step", limited_step)
        with pytest.raises(SpecError, match="`tolerance`"):
            gradient_flow(rough(), 0.1, tolerance=tolerance)


@cache
def tiny_steps():
    return fixed(rough(), 0.6, 0.0025)


def synthetic(t2_energy, times):
    return [FlowPoint(t, t2_energy(t) / t**2 if t else 1.0, 0.0, 1.0) for t in times]


class TestScales:
    times = np.linspace(0, 4, 41).tolist()

    def test_a_line_is_crossed_where_it_is(self):
        points = synthetic(lambda t: 0.15 * t, self.times)
        assert scale_t0(points) == pytest.approx(2.0, rel=1e-14)
        assert scale_w0(points) == pytest.approx(math.sqrt(2.0), rel=1e-14)
        assert scale_t0(points, reference=0.45) == pytest.approx(3.0, rel=1e-14)
        assert scale_w0(points, reference=0.45) == pytest.approx(math.sqrt(3.0), rel=1e-14)

    def test_a_parabola_is_crossed_up_to_the_interpolation(self):
        points = synthetic(lambda t: 0.1 * t * t, self.times)
        assert scale_t0(points) == pytest.approx(math.sqrt(3.0), rel=1e-3)
        # t d/dt (0.1 t^2) = 0.2 t^2
        assert scale_w0(points) == pytest.approx(1.5**0.25, rel=1e-3)

    def test_a_level_met_at_a_point_is_that_point(self):
        points = [FlowPoint(t, e, 0.0, 1.0) for t, e in ((0.0, 1.0), (1.0, 0.25), (2.0, 0.0625), (4.0, 0.25))]
        assert scale_t0(points, reference=0.25) == 1.0

    def test_a_flow_too_short_has_no_scale(self):
        points = synthetic(lambda t: 0.01 * t, self.times)
        assert math.isnan(scale_t0(points))
        assert math.isnan(scale_w0(points))
        assert math.isnan(scale_t0(points[:1]))

    @pytest.mark.parametrize("n", [0, 1])
    def test_a_flow_of_one_point_has_no_scale(self, n):
        assert math.isnan(scale_w0(synthetic(lambda t: 0.01 * t, self.times)[:n]))
