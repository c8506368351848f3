"""The tree-level Symanzik action sampled: an independent chain, the Schwinger-Dyson identity, Creutz's equality."""

import numpy as np
import pytest

from metalforge.lattice import Chain, ChainSpec, HmcSpec
from metalforge.lattice.actions import SYMANZIK, WILSON
from metalforge.lattice.field import Momenta
from metalforge.statistics import gamma_method
from reference.rectangle import metropolis_means
from reference.statistics import agrees, sigmas

DIMS, BETA, VOLUME = (4, 4, 4, 4), 3.0, 256
METROPOLIS = {"plaquette": (0.35516, 0.00038), "rectangle": (0.11426, 0.00031)}
"""4^4 at beta = 3 by `reference.rectangle.metropolis_means`, seed 7: NumPy, link by link, no dynamics; 3881 sweeps
after 100, tau_int 4.2. No published plaquette of this action with an error could be found for a lattice this small."""


def rectangle_of(energy, plaquette):
    """E / V = 5/3 6 (1 - P) - 1/12 12 (1 - R)."""
    return 1 + energy / VOLUME - 10 * (1 - plaquette)


@pytest.fixture(scope="module")
def rows():
    spec = ChainSpec(dims=DIMS, beta=BETA, algorithm="hmc", action="symanzik", seed=5, hmc=HmcSpec(n_steps=5))
    chain = Chain(spec)
    for _ in range(60):
        chain.update(accept_always=chain.step < 20)
    momenta, found = Momenta(chain.field), []
    for _ in range(700):
        info = chain.update()
        plaquette = sum(chain.field.plaquette_sums()) / (6 * VOLUME)
        rectangle = rectangle_of(SYMANZIK.energy(chain.field), plaquette)
        forces = []
        for action in (SYMANZIK, WILSON):
            momenta.kick(-BETA, keep=0.0, action=action)
            forces.append(2 * momenta.kinetic() / (4 * VOLUME))
        found.append((plaquette, rectangle, info.delta_h, *forces))
    columns = np.array(found).T
    return dict(zip(("plaquette", "rectangle", "delta_h", "force2", "wilson2"), columns, strict=True))


@pytest.mark.parametrize("name", list(METROPOLIS))
def test_loops_are_those_of_an_independent_chain(rows, name):
    assert agrees(gamma_method(rows[name]), *METROPOLIS[name], precision=8e-4)


def test_the_independent_chain_still_runs():
    means = metropolis_means((4, 4, 4, 2), BETA, sweeps=3, warmup=0, seed=7)
    assert means.shape == (3, 2)
    assert np.all((means[:, 1] < means[:, 0]) & (means[:, 0] < 1))


def test_schwinger_dyson(rows):
    """Per link sum_a F_a^2 = (4 beta / 3) (6 c0 P + 18 c1 R): a link is in six plaquettes and eighteen rectangles."""
    expected = 4 / 3 * BETA * (10 * rows["plaquette"] - 1.5 * rows["rectangle"])
    assert agrees(gamma_method(rows["force2"] - expected), 0.0, precision=0.05)
    assert sigmas(gamma_method(rows["wilson2"] - expected), 0.0) > 4


def test_exp_of_minus_delta_h_is_one(rows):
    assert agrees(gamma_method(np.exp(-rows["delta_h"])), 1.0, precision=0.03)
