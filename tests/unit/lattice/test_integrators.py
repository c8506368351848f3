"""Integrators by their coefficients, their measured order and reversibility, and the trajectory built on them."""

import math
from itertools import pairwise

import numpy as np
import pytest

from metalforge import native
from metalforge.core import SpecError, UnknownNameError
from metalforge.lattice import SCHEMES, GaugeField, hmc_trajectory, scheme
from metalforge.lattice.field import Momenta
from metalforge.lattice.hmc import METROPOLIS_DRAW, Workspace
from reference import gauge as twin

BETA = 5.7
KICK, MOVE = 1.0, 0.0

# |dH| ~ eps^order at fixed length: what the fit of log rms against log eps may miss it by.
STEPS = {"leapfrog": (12, 16, 24, 32), "omelyan2": (6, 8, 12, 16), "omelyan4": (4, 6, 8, 12)}
ORDER_TOLERANCE = {"leapfrog": 0.25, "omelyan2": 0.25, "omelyan4": 0.5}
REVERSED_LINKS, REVERSED_ENERGY = 1e-10, 1e-9

every_scheme = pytest.mark.parametrize("name", list(SCHEMES))


def thermalised(dims, precision="f64"):
    field = GaugeField.hot(dims, seed=7, precision=precision, threads=1)
    for step in range(1, 21):
        field.heatbath(BETA, seed=7, stream=0, step=step)
    field.reunitarise()
    return field


class TestCoefficients:
    @every_scheme
    def test_a_step_is_a_palindrome(self, name):
        step = SCHEMES[name].step
        assert step == step[::-1]
        assert all(a != b for (a, _), (b, _) in pairwise(step))

    @every_scheme
    @pytest.mark.parametrize("kind", ["P", "U"])
    def test_coefficients_of_each_kind_sum_to_one(self, name, kind):
        assert math.fsum(c for k, c in SCHEMES[name].step if k == kind) == pytest.approx(1, abs=1e-15)

    @every_scheme
    @pytest.mark.parametrize("n_steps", [1, 2, 7])
    def test_the_kicks_between_steps_are_joined(self, name, n_steps):
        stages = SCHEMES[name].stages(0.7, n_steps)
        kinds, coefficients = stages.T
        assert np.all(kinds[1:] != kinds[:-1])
        assert np.sum(kinds == KICK) == n_steps * {"leapfrog": 1, "omelyan2": 2, "omelyan4": 5}[name] + 1
        assert np.sum(kinds == MOVE) == n_steps * sum(kind == "U" for kind, _ in SCHEMES[name].step)
        assert np.allclose(stages, stages[::-1], rtol=1e-15, atol=0)
        for kind in (KICK, MOVE):
            assert math.fsum(coefficients[kinds == kind]) == pytest.approx(0.7, abs=1e-15)

    def test_leapfrog_is_half_a_kick_a_move_half_a_kick(self):
        wanted = [[KICK, 0.05], [MOVE, 0.1], [KICK, 0.1], [MOVE, 0.1], [KICK, 0.05]]
        assert np.allclose(scheme("leapfrog").stages(0.2, 2), wanted, rtol=1e-15, atol=0)

    def test_a_trajectory_without_steps_is_refused(self):
        with pytest.raises(SpecError, match=r"`n_steps`.*Got 0"):
            scheme("leapfrog").stages(1.0, 0)

    def test_an_unknown_scheme_names_the_nearest(self):
        with pytest.raises(UnknownNameError, match=r"`omelyan`(.|\n)*mean `omelyan"):
            scheme("omelyan")


def energy(field, momenta):
    return field.action(BETA) + momenta.kinetic()


def delta_h(start, integrator, tau, n_steps, step):
    field = start.copy()
    momenta = Momenta(field)
    momenta.refresh(seed=7, stream=1, step=step)
    before = energy(field, momenta)
    momenta.evolve(BETA, integrator.stages(tau, n_steps))
    return energy(field, momenta) - before


@every_scheme
def test_the_energy_error_shrinks_with_the_order_of_the_scheme(name):
    start = thermalised((4, 4, 4, 4))
    rms = [
        math.sqrt(np.mean([delta_h(start, SCHEMES[name], 0.5, n, step) ** 2 for step in range(6)])) for n in STEPS[name]
    ]
    exponent = -np.polyfit(np.log(STEPS[name]), np.log(rms), 1)[0]
    assert exponent == pytest.approx(SCHEMES[name].order, abs=ORDER_TOLERANCE[name])


def test_better_schemes_are_better_at_one_price():
    """Twenty forces each; the fourth order wins, and the second-order minimal norm beats leapfrog."""
    start = thermalised((4, 4, 4, 4))
    errors = [
        abs(delta_h(start, scheme(name), 0.5, n, step=1))
        for name, n in (("omelyan4", 4), ("omelyan2", 10), ("leapfrog", 20))
    ]
    assert errors == sorted(errors)


@every_scheme
def test_a_trajectory_runs_back_to_where_it_came_from(isa, name):
    start = thermalised((8, 8, 8, 4))
    field = start.copy()
    momenta = Momenta(field)
    momenta.refresh(seed=7, stream=1, step=1)
    pi, before = momenta.values.copy(), energy(field, momenta)
    stages = SCHEMES[name].stages(1.0, 10)
    momenta.evolve(BETA, stages)
    assert np.max(np.abs(field.links - start.links)) > 0.1
    momenta.values *= -1
    momenta.evolve(BETA, stages)
    assert np.max(np.abs(field.links - start.links)) <= REVERSED_LINKS
    assert np.max(np.abs(momenta.values + pi)) <= REVERSED_LINKS
    assert abs(energy(field, momenta) - before) <= REVERSED_ENERGY


@every_scheme
def test_a_trajectory_equals_the_twin(isa, name):
    dims = (4, 2, 4, 2)
    field = GaugeField.hot(dims, seed=3, threads=1)
    links = field.to_links()
    momenta = Momenta(field)
    momenta.refresh(seed=3, stream=0, step=1)
    pi = twin.momenta_to_host(field, momenta.values)
    stages = SCHEMES[name].stages(0.4, 2)
    for kind, coefficient in stages:
        if kind == MOVE:
            links = twin.move(links, pi, coefficient)
        else:
            pi = pi - coefficient * twin.force(links, BETA)
    momenta.evolve(BETA, stages)
    assert np.max(np.abs(field.to_links() - links)) <= 1e-13
    assert np.max(np.abs(twin.momenta_to_host(field, momenta.values) - pi)) <= 1e-12


class TestTrajectory:
    chain = {"beta": BETA, "seed": 5, "stream": 2}  # noqa: RUF012
    gentle = {"tau": 0.5, "n_steps": 10, "integrator": scheme("omelyan2")}  # noqa: RUF012

    @pytest.mark.parametrize("precision", ["f64", "f32"])
    def test_an_accepted_trajectory_keeps_the_evolved_links(self, isa, precision):
        field = thermalised((4, 4, 4, 4), precision)
        copy = field.copy()
        copy.reunitarise()
        momenta = Momenta(copy)
        momenta.refresh(seed=5, stream=2, step=1)
        before = energy(copy, momenta)
        momenta.evolve(BETA, scheme("omelyan2").stages(0.5, 10))
        info = hmc_trajectory(field, **self.chain, **self.gentle, step=1)
        assert info.accepted
        assert np.array_equal(field.links, copy.links)
        assert info.delta_h == energy(copy, momenta) - before

    @pytest.mark.parametrize("precision", ["f64", "f32"])
    @pytest.mark.parametrize("tau", [3.0, 1e4, 1e30, 1e200, 1e300])
    def test_a_rejected_trajectory_restores_the_links_bit_for_bit(self, isa, precision, tau):
        """However far it goes astray: large momenta, overflow in the exponential, infinities, NaN."""
        field = thermalised((4, 4, 4, 4), precision)
        wanted = field.copy()
        wanted.reunitarise()
        info = hmc_trajectory(field, **self.chain, tau=tau, n_steps=1, integrator=scheme("leapfrog"), step=1)
        assert not info.accepted
        assert not info.delta_h < 10
        assert np.array_equal(field.links, wanted.links)

    def test_a_warm_up_may_accept_always_but_nothing_that_is_not_finite(self):
        field = thermalised((4, 4, 4, 4))
        before = field.copy()
        options = {"n_steps": 1, "integrator": scheme("leapfrog"), "step": 1, "accept_always": True}
        info = hmc_trajectory(field, **self.chain, tau=3.0, **options)
        assert info.accepted
        assert info.delta_h > 10
        assert np.max(np.abs(field.links - before.links)) > 0.1
        wanted = field.copy()
        wanted.reunitarise()
        assert not hmc_trajectory(field, **self.chain, tau=1e300, **options).accepted
        assert np.array_equal(field.links, wanted.links)

    def test_the_accept_test_uses_the_draw_of_its_address(self):
        field = thermalised((4, 4, 4, 4))
        workspace = Workspace(field)
        outcomes = []
        for step in range(1, 31):
            before = field.copy()
            info = hmc_trajectory(
                field, **self.chain, tau=1.0, n_steps=8, integrator=scheme("leapfrog"), step=step, workspace=workspace
            )
            u = native.Stream(5, 2).uniform(step=step, sites=1, draws=2, first_draw=METROPOLIS_DRAW)[0, 0]
            assert info.accepted == (u < math.exp(min(0.0, -info.delta_h)))
            assert info.accepted == (np.max(np.abs(field.links - before.links)) > 1e-3)
            outcomes.append(info.accepted)
        assert True in outcomes
        assert False in outcomes

    def test_a_step_can_be_recomputed_alone(self):
        field = thermalised((4, 4, 4, 4))
        for step in range(1, 4):
            before = field.copy()
            info = hmc_trajectory(field, **self.chain, **self.gentle, step=step, workspace=Workspace(field))
            assert hmc_trajectory(before, **self.chain, **self.gentle, step=step) == info
            assert np.array_equal(before.links, field.links)

    def test_the_links_stay_in_the_group_over_many_trajectories(self):
        field = thermalised((4, 4, 4, 4))
        workspace = Workspace(field)
        for step in range(1, 51):
            hmc_trajectory(field, **self.chain, **self.gentle, step=step, workspace=workspace)
        assert twin.distance_from_su3(field.to_links()) <= 1e-14
