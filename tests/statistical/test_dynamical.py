"""Dynamical staggered quarks: exact laws, agreement of independent algorithms, independently measured values.

On 4^4. Laws and agreement are shown at beta = 5.6 and am = 0.3, where trajectories are cheap and forget quickly; the
values of MILC are at beta = 5.2 and am = 0.1, close to the transition.
"""

import numpy as np
import pytest

from metalforge.lattice import Chain, ChainSpec, FermionSpec, GaugeField, HmcSpec, scheme, warm_up
from metalforge.lattice.hmc import hmc_trajectory
from metalforge.lattice.pseudofermion import FourFlavors, RootFlavors
from metalforge.lattice.sea import Sea
from metalforge.lattice.solvers import Inverter
from metalforge.lattice.staggered import StaggeredOperator
from metalforge.statistics import chiral_susceptibility, gamma_method
from reference.measured import CONDENSATE, LOOP, PLAQUETTE
from reference.statistics import Mean, agrees, sigmas


def sea(flavors=(4,), mass=0.3, **options):
    return FermionSpec(flavors=flavors, masses=(mass,) * len(flavors), **{"noise_vectors": 1, "n_inner": 3} | options)


def chain_of(fermions, *, n_steps, beta=5.6, seed=83, warmup=45, **hmc):
    """A chain from a cold start, the first third of its warm-up without the accept test; nothing is tuned."""
    spec = ChainSpec(
        dims=(4, 4, 4, 4),
        beta=beta,
        seed=seed,
        start="cold",
        algorithm="hmc" if fermions.exact else "rhmc",
        fermions=fermions,
        hmc=HmcSpec(n_steps=n_steps, **hmc),
    )
    chain = Chain(spec, threads=1)  # a lattice this small gains nothing from more
    for n in range(warmup):
        chain.update(accept_always=n < warmup // 3, adapting=True)
    return chain


def record(chain, n):
    """Series over n updates, by name."""
    rows = []

    def note(info, observed):
        rows.append((observed.plaquette, observed.condensate, observed.polyakov_re, info.delta_h, info.accepted))

    chain.run(n, note)
    names = ("plaquette", "condensate", "loop", "delta_h", "accepted")
    return dict(zip(names, np.array(rows, float).T, strict=True))


# --- the heat bath ---------------------------------------------------------------------------------------------------


def pseudofermion(kind, inverter):
    if kind == "four":
        return FourFlavors(inverter, 0.1, field_number=0)
    if kind == "ratio":
        return FourFlavors(inverter, 0.1, 0.4, field_number=0)
    root = RootFlavors(inverter, 0.1, int(kind), field_number=0)
    root.set_range(7.0)
    return root


def heat_bath_actions(kind, draws, factor=1.0):
    """S(phi) of fresh fields on fixed links: with N complex components it is the sum of N exponentials of mean one."""
    field = GaugeField.hot((2, 2, 2, 4), seed=7, threads=1)
    for step in range(1, 6):
        field.heatbath(5.2, seed=7, stream=0, step=step)
    term = pseudofermion(kind, Inverter(field, 0.1))
    actions = []
    for step in range(draws):
        term.refresh(seed=89, stream=0, step=step)
        term.phi.scale(factor)
        actions.append(term.action())
    return np.array(actions), 3 * field.volume // 2


@pytest.mark.parametrize("kind", ["four", "ratio", "1", "2", "3"])
def test_the_heat_bath_has_its_exact_mean_and_variance(kind):
    """<S> = var S = N: what is left of a Gaussian integral whatever its matrix."""
    actions, n = heat_bath_actions(kind, 1000)
    assert agrees(Mean(actions), n, precision=0.005 * n)
    assert agrees(Mean((actions - n) ** 2), n, precision=0.06 * n)


def test_noise_of_variance_one_is_noticed():
    """Real and imaginary parts of variance 1 in place of 1/2: the mean is twice too large."""
    actions, n = heat_bath_actions("four", 100, factor=np.sqrt(2))
    assert sigmas(Mean(actions), n) > 4
    assert agrees(Mean(actions), 2 * n)


# --- laws of the trajectory ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    """Four flavours exactly, and as two fields of two flavours: different code from the heat bath to the force."""
    return {
        "four": record(chain_of(sea(), n_steps=3, tau=0.9), 800),
        "two and two": record(chain_of(sea((2, 2)), n_steps=2, tau=0.9, seed=97), 450),
    }


@pytest.mark.parametrize("name", ["four", "two and two"])
def test_creutz_equality_and_the_mean_of_dh(runs, name):
    """<exp(-dH)> = 1, and <dH> = var(dH) / 2 where dH is nearly Gaussian."""
    delta_h = runs[name]["delta_h"]
    squares = (delta_h - delta_h.mean()) ** 2
    assert 0.05 < np.var(delta_h) < 0.3
    assert agrees(gamma_method(np.exp(-delta_h)), 1.0, precision=0.03)
    assert agrees(gamma_method(delta_h - squares / 2), 0.0, precision=0.03)
    # The laws mean something here: they break for dH of the wrong sign.
    assert sigmas(gamma_method(np.exp(delta_h)), 1.0) > 4
    assert sigmas(gamma_method(-delta_h - squares / 2), 0.0) > 4


def test_hmc_and_rhmc_agree(runs):
    for name, precision in (("plaquette", 1.5e-3), ("condensate", 0.008)):
        exact, rooted = (gamma_method(run[name]) for run in runs.values())
        assert agrees(exact, rooted.mean, rooted.error, precision=precision)
    # Two flavours are something else.
    half = record(chain_of(sea((2,)), n_steps=2, tau=0.9, seed=97), 100)
    assert sigmas(gamma_method(half["plaquette"]), np.mean(runs["four"]["plaquette"])) > 4


@pytest.mark.parametrize("flavors", [(4,), (2,)])
def test_the_energy_error_shrinks_with_the_square_of_the_step(flavors):
    """At fixed length; gauge steps within shrink along, so both parts of the error do."""
    start = chain_of(sea(flavors), n_steps=4, tau=0.8, warmup=20).field
    steps, rms = (4, 6, 8, 12), []
    for n_steps in steps:
        delta_h = []
        for step in range(8):
            field = start.copy()
            fermions = Sea(field, sea(flavors))
            info = hmc_trajectory(
                field, beta=5.6, tau=0.8, n_steps=n_steps, integrator=scheme("omelyan2"), seed=101, stream=0,
                step=step, sea=fermions,
            )  # fmt: skip
            delta_h.append(info.delta_h)
        rms.append(np.sqrt(np.mean(np.square(delta_h))))
    exponent = -np.polyfit(np.log(steps), np.log(rms), 1)[0]
    assert exponent == pytest.approx(2, abs=0.4)


def quenched_plaquettes(beta, n):
    chain = Chain(ChainSpec(dims=(4, 4, 4, 4), beta=beta, seed=109, start="cold"), threads=1)
    warm_up(chain, 100)
    series = []
    chain.run(n, lambda info, observed: series.append(observed.plaquette))
    return np.array(series)


@pytest.mark.parametrize(("flavors", "seed"), [((4,), 103), ((2, 1), 107)])
def test_quarks_too_heavy_to_move_are_quenched(flavors, seed):
    """am = 20: the determinant's dependence on plaquettes is of order (1 / 2m)^4 ~ 4e-7."""
    reference = gamma_method(quenched_plaquettes(5.0, 1000))
    heavy = record(chain_of(sea(flavors, mass=20.0), n_steps=3, beta=5.0, seed=seed), 400)
    assert agrees(gamma_method(heavy["plaquette"]), reference.mean, reference.error, precision=2e-3)
    # To leading order in 1/m the condensate is 3 / m, whatever the links.
    assert np.mean(heavy["condensate"]) == pytest.approx(3 / 20, rel=0.01)


def test_lighter_quarks_are_not_quenched(runs):
    assert sigmas(gamma_method(quenched_plaquettes(5.6, 300)), np.mean(runs["four"]["plaquette"])) > 4


# --- an independent code ---------------------------------------------------------------------------------------------


def test_four_flavours_are_those_of_an_independent_code():
    found = record(chain_of(sea(mass=0.1, preconditioners=(0.5,)), n_steps=4, beta=5.2, seed=113), 220)
    assert agrees(gamma_method(found["plaquette"]), *PLAQUETTE, precision=4e-3)
    assert agrees(gamma_method(found["condensate"]), *CONDENSATE, precision=0.025)
    assert np.mean(found["accepted"]) > 0.8


# --- what has gone wrong elsewhere, and must not go unnoticed --------------------------------------------------------


def test_a_force_of_the_wrong_sign_is_noticed(runs, monkeypatch):
    kick = FourFlavors.kick
    chain = chain_of(sea(), n_steps=3, tau=0.9)

    def wrong(self, momenta, coefficient, **options):
        kick(self, momenta, -coefficient, **options)

    monkeypatch.setattr(FourFlavors, "kick", wrong)
    accepted = [chain.update().accepted for _ in range(20)]
    assert np.mean(accepted) < 0.2 < 0.7 < np.mean(runs["four"]["accepted"])


def test_a_chain_with_noise_of_variance_one_is_noticed(runs, monkeypatch):
    draw = FourFlavors._draw_noise

    def wrong(self, **address):
        draw(self, **address)
        for noise in (self.phi, self._odd):
            noise.scale(np.sqrt(2))

    monkeypatch.setattr(FourFlavors, "_draw_noise", wrong)
    found = record(chain_of(sea(), n_steps=4, tau=0.9), 150)
    right = gamma_method(runs["four"]["plaquette"])
    assert sigmas(gamma_method(found["plaquette"]), right.mean, right.error) > 4


def test_periodic_time_is_noticed(runs, monkeypatch):
    """The sign of the links at the border undone: quarks then prefer another sector of the Polyakov loop."""
    refresh = StaggeredOperator.refresh

    def periodic(self):
        gauge = self.gauge
        links = gauge.to_links()
        links[-1, :, :, :, 3] *= -1
        self.gauge = GaugeField.from_links(links)
        refresh(self)
        self.gauge = gauge

    monkeypatch.setattr(StaggeredOperator, "refresh", periodic)
    found = record(chain_of(sea(), n_steps=4, tau=0.9), 100)
    right = gamma_method(runs["four"]["loop"])
    assert sigmas(gamma_method(found["loop"]), right.mean, right.error) > 4
    assert np.mean(found["loop"]) < 0 < right.mean


# --- long runs -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("fermions", "n_steps", "seed"),
    [
        (sea(mass=0.1), 9, 127),
        (sea(mass=0.1, preconditioners=(0.5,)), 4, 131),
        (sea((2, 2), mass=0.1), 4, 137),
    ],
    ids=["hmc", "hasenbusch", "rhmc"],
)
def test_four_flavours_at_length(fermions, n_steps, seed):
    found = record(chain_of(fermions, n_steps=n_steps, beta=5.2, seed=seed, warmup=150), 5000)
    assert agrees(gamma_method(found["plaquette"]), *PLAQUETTE, gate=3.0, precision=8e-4)
    assert agrees(gamma_method(found["condensate"]), *CONDENSATE, gate=3.0, precision=4e-3)
    assert agrees(gamma_method(found["loop"]), *LOOP, gate=3.0, precision=0.02)
    assert agrees(gamma_method(np.exp(-found["delta_h"])), 1.0, gate=3.0, precision=0.02)


@pytest.mark.long
def test_the_condensate_changes_with_the_mass_as_the_susceptibility_says():
    """d<condensate>/dm by two runs against connected + disconnected of one between them."""
    means = {}
    for mass, seed in ((0.27, 139), (0.3, 149), (0.33, 151)):
        chain = chain_of(sea(mass=mass, noise_vectors=4), n_steps=4, seed=seed)
        rows = []
        chain.run(
            3000,
            lambda info, seen, rows=rows: rows.append(
                (seen.condensate, seen.condensate_pairs, seen.condensate_connected)
            ),
        )
        means[mass] = np.array(rows).T
    parts = chiral_susceptibility(*means[0.3], volume=256, flavors=4)
    above, below = (gamma_method(means[mass][0]) for mass in (0.33, 0.27))
    slope, error = (above.mean - below.mean) / 0.06, np.hypot(above.error, below.error) / 0.06
    total = parts.connected.mean + parts.disconnected.mean
    total_error = np.hypot(parts.connected.error, parts.disconnected.error)
    assert total_error < 0.15
    assert abs(total - slope) < 3 * np.hypot(error, total_error)
    # Without the disconnected part it would not agree.
    assert parts.disconnected.mean > 4 * parts.disconnected.error
