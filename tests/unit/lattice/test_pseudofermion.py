"""Pseudofermions against the dense twin: heat bath, action, and force against differences of the action."""

from fractions import Fraction

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.lattice import GaugeField
from metalforge.lattice.field import Momenta
from metalforge.lattice.pseudofermion import NOISE_DRAW, FourFlavors, RootFlavors
from metalforge.lattice.rational import rational_power
from metalforge.lattice.solvers import Inverter
from reference import gauge
from reference import staggered as twin

DIMS, MASS, HEAVY = (4, 2, 2, 4), 0.1, 0.5
EXACT = {"tolerance": 1e-13, "force_tolerance": 1e-13}
ADDRESS = {"seed": 5, "stream": 1, "step": 3}
FORCE_ERROR = 1e-7
"""Relative: differences over 1e-3 with a five-point stencil are exact to some 1e-9 with solves at 1e-13."""


@pytest.fixture
def field():
    field = GaugeField.hot(DIMS, seed=3)
    for step in range(1, 9):
        field.heatbath(5.4, seed=3, stream=0, step=step)
    field.reunitarise()
    return field


@pytest.fixture
def inverter(field):
    return Inverter(field, MASS)


def host(field, draw, parity):
    """The noise of an address as the twin wants it."""
    inverter = Inverter(field, MASS)
    noise = inverter.fresh(parity)
    noise.gaussian(**ADDRESS, draw=draw)
    return noise.to_host()


def make(kind, inverter, **options):
    number = {"field_number": 2}
    if kind == "four":
        return FourFlavors(inverter, MASS, **number, **EXACT | options)
    if kind == "ratio":
        return FourFlavors(inverter, MASS, HEAVY, **number, **EXACT | options)
    root = RootFlavors(inverter, MASS, int(kind), **number, **EXACT | options)
    root.set_range(7.0)
    return root


KINDS = ["four", "ratio", "1", "2", "3"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def exact_power(kind):
    """S = phi^+ f(A) phi and phi = g(A) eta_e; f in terms of A(m)."""
    if kind == "four":
        return lambda x: 1 / x
    if kind == "ratio":
        return lambda x: (x + HEAVY**2 - MASS**2) / x
    return lambda x: x ** (-int(kind) / 4)


@every_kind
def test_the_action_is_the_twins(field, inverter, kind):
    term = make(kind, inverter)
    term.refresh(**ADDRESS)
    phi = term.phi.to_host()
    exact = twin.dot(phi, twin.apply_function(field.to_links(), phi, MASS, exact_power(kind))).real
    assert term.action() == pytest.approx(exact, rel=3e-10)


def test_the_heat_bath_of_four_flavours_is_d_dagger_eta(field, inverter):
    term = make("four", inverter)
    term.refresh(**ADDRESS)
    eta = sum(host(field, NOISE_DRAW + 512, parity) for parity in (0, 1))
    wanted = twin.dirac_dagger(field.to_links(), eta, MASS) * gauge.parity_mask(field.to_links(), 0)[..., None]
    assert np.max(np.abs(term.phi.to_host() - wanted)) < 1e-13


def test_the_heat_bath_of_a_ratio_is_a_quotient_of_operators(field, inverter):
    """phi = [D(m)^+ D(M)^+^-1 eta]_e by dense matrices."""
    term = make("ratio", inverter)
    term.refresh(**ADDRESS)
    links = field.to_links()
    eta = sum(host(field, NOISE_DRAW + 512, parity) for parity in (0, 1)).reshape(-1)
    light, heavy = (twin.dense(twin.dirac_dagger, links, mass=mass) for mass in (MASS, HEAVY))
    wanted = (light @ np.linalg.solve(heavy, eta)).reshape(*links.shape[:4], 3)
    wanted = wanted * gauge.parity_mask(links, 0)[..., None]
    assert np.max(np.abs(term.phi.to_host() - wanted)) < 1e-11


@pytest.mark.parametrize("flavors", [1, 2, 3])
def test_the_heat_bath_of_a_root_is_a_root(field, inverter, flavors):
    term = make(str(flavors), inverter)
    term.refresh(**ADDRESS)
    eta = host(field, NOISE_DRAW + 512, 0)
    wanted = twin.apply_function(field.to_links(), eta, MASS, lambda x: x ** (flavors / 8))
    assert np.max(np.abs(term.phi.to_host() - wanted)) < 1e-9
    # So S is that of the noise: exact up to the errors of two rational functions.
    assert term.action() == pytest.approx(twin.dot(eta, eta).real, rel=1e-9)


def directional_difference(field, inverter, action, direction, h=1e-3):
    """dS along a direction of the algebra by a five-point stencil."""
    links = field.links.copy()
    host_links = field.to_links()

    def at(eps):
        field.links[...] = GaugeField.from_links(gauge.move(host_links, direction, eps)).links
        inverter.links_moved()
        value = action()
        field.links[...] = links
        inverter.links_moved()
        return value

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def force_of(field, kick):
    """The force as (Nt, Nz, Ny, Nx, 4, 8), from a kick of momenta that were zero."""
    momenta = Momenta(field)
    kick(momenta)
    return -gauge.momenta_to_host(field, momenta.values)


def check_force(field, inverter, action, kick):
    force = force_of(field, kick)
    rng = np.random.default_rng(11)
    for _ in range(2):
        direction = rng.normal(size=force.shape)
        along = float(np.sum(force * direction))
        scale = np.linalg.norm(force)  # a direction may lie nearly across the force
        difference = directional_difference(field, inverter, action, direction)
        assert abs(difference - along) < FORCE_ERROR * scale
        # The wrong sign, and a factor of two, would be seen.
        assert abs(difference + along) > 100 * FORCE_ERROR * scale
        assert abs(difference - 2 * along) > 100 * FORCE_ERROR * scale


@every_kind
def test_the_force_is_the_derivative_of_the_action(field, inverter, kind):
    """Of the same rational function where there is one, together with the gauge action."""
    term = make(kind, inverter)
    term.refresh(**ADDRESS)
    action = term.action if not isinstance(term, RootFlavors) else lambda: term._sum_of_poles(term.for_force)

    def kick(momenta):
        momenta.kick(5.4)
        term.kick(momenta, 1.0)

    check_force(field, inverter, lambda: field.action(5.4) + action(), kick)
    check_force(field, inverter, action, lambda momenta: term.kick(momenta, 1.0))


def test_the_force_of_every_pole(field, inverter):
    term = make("2", inverter)
    term.refresh(**ADDRESS)
    whole = term.for_force
    assert len(whole.shifts) > 5
    total = 0
    for residue, shift in zip(whole.residues, whole.shifts, strict=True):
        term.for_force = whole._replace(constant=0.0, residues=(residue,), shifts=(shift,))
        check_force(
            field, inverter, lambda: term._sum_of_poles(term.for_force), lambda momenta: term.kick(momenta, 1.0)
        )
        total = total + force_of(field, lambda momenta: term.kick(momenta, 1.0))
    term.for_force = whole
    together = force_of(field, lambda momenta: term.kick(momenta, 1.0))
    assert np.max(np.abs(together - total)) < 1e-12 * np.max(np.abs(together))


@pytest.mark.parametrize("flavors", [1, 2, 3])
def test_the_force_of_a_root_is_the_exact_one(field, inverter, flavors):
    """By perturbation theory in the whole spectrum: no rational function in it."""
    term = make(str(flavors), inverter)
    term.refresh(**ADDRESS)
    exact = twin.power_force(field.to_links(), term.phi.to_host(), MASS, -flavors / 4)
    force = force_of(field, lambda momenta: term.kick(momenta, 1.0))
    assert np.max(np.abs(force - exact)) < 1e-5 * np.max(np.abs(exact))


def test_two_masses_share_one_operator(field, inverter):
    heavy = FourFlavors(inverter, HEAVY, field_number=0, **EXACT)
    alone = FourFlavors(Inverter(field, HEAVY), HEAVY, field_number=0, **EXACT)
    for term in (heavy, alone):
        term.refresh(**ADDRESS)
    assert heavy.action() == pytest.approx(alone.action(), rel=1e-12)


def test_solves_are_counted(inverter):
    term = make("four", inverter)
    term.refresh(**ADDRESS)
    assert (inverter.solves, inverter.iterations) == (0, 0)
    term.action()
    solves, iterations = inverter.solves, inverter.iterations
    assert solves == 1
    assert iterations > 10
    with inverter.uncounted():
        term.action()
    assert (inverter.solves, inverter.iterations) == (solves, iterations)


def test_links_are_taken_up_when_they_moved(field, inverter):
    term = make("four", inverter)
    term.refresh(**ADDRESS)
    before = term.action()
    links = field.links.copy()
    momenta = Momenta(field)
    momenta.refresh(**ADDRESS)
    momenta.move_links(0.1)
    inverter.links_moved()
    assert abs(term.action() - before) > 1e-3
    field.links[...] = links
    inverter.links_moved()
    assert term.action() == before


def test_mixed_precision_gives_the_same_action_and_force(field):
    results = []
    for mixed in (False, True):
        inverter = Inverter(field, MASS, mixed_precision=mixed)
        term = make("four", inverter, tolerance=1e-11, force_tolerance=1e-11)
        term.refresh(**ADDRESS)
        results.append((term.action(), force_of(field, lambda momenta, t=term: t.kick(momenta, 1.0))))
    (action, force), (mixed_action, mixed_force) = results
    assert mixed_action == pytest.approx(action, rel=1e-10)
    assert np.max(np.abs(mixed_force - force)) < 1e-8 * np.max(np.abs(force))


def test_a_guess_from_the_past_saves_iterations_and_changes_nothing_else():
    """A short trajectory, its force solved from zero and from four past solutions."""
    iterations, forces = [], []
    for depth in (0, 4):
        field = GaugeField.hot((4, 4, 4, 4), seed=3)
        inverter = Inverter(field, MASS)
        term = FourFlavors(inverter, MASS, field_number=0, tolerance=1e-11, force_tolerance=1e-11, chronological=depth)
        term.refresh(**ADDRESS)
        momenta = Momenta(field)
        momenta.refresh(**ADDRESS)
        for _ in range(6):
            term.kick(momenta, 0.01)
            momenta.move_links(0.01)
            inverter.links_moved()
        before = inverter.iterations
        forces.append(force_of(field, lambda kicked, t=term: t.kick(kicked, 1.0)))
        iterations.append(inverter.iterations - before)
    assert iterations[1] < 0.8 * iterations[0]
    assert np.max(np.abs(forces[1] - forces[0])) < 1e-7 * np.max(np.abs(forces[0]))


def test_a_guess_forgets_at_the_next_trajectory_and_does_not_learn_from_onlookers(inverter, field):
    term = FourFlavors(inverter, MASS, field_number=0, **EXACT, chronological=3)

    def cost(**options):
        before = inverter.iterations
        term.kick(Momenta(field), 1.0, **options)
        return inverter.iterations - before

    term.refresh(**ADDRESS)
    first = cost(remember=False)
    assert cost(remember=False) == first
    assert cost() == first
    assert cost() <= 2
    term.refresh(**ADDRESS)
    assert cost() == first


def test_bad_terms(inverter):
    with pytest.raises(SpecError, match=r"larger than 0\.1"):
        FourFlavors(inverter, MASS, MASS, field_number=0)
    with pytest.raises(SpecError, match=r"flavours\. Got 4"):
        RootFlavors(inverter, MASS, 4, field_number=0)


def test_the_rational_functions_are_those_asked_for(inverter):
    term = RootFlavors(inverter, MASS, 3, field_number=0, action_error=1e-9, force_error=1e-5)
    term.set_range(6.5)
    low, high = MASS**2, MASS**2 + 6.5
    assert term.for_heat_bath == rational_power(Fraction(3, 8), low, high, 1e-9)
    assert term.for_action == rational_power(Fraction(-3, 4), low, high, 1e-9)
    assert term.for_force == rational_power(Fraction(-3, 4), low, high, 1e-5)
