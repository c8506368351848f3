"""The order parameter of a scan: what it is by default, and that what comes after reads the one that was chosen."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.analysis.selection import observe
from metalforge.campaign.spec import CampaignSpec, preset
from metalforge.lattice.campaign import Lattice
from reference.loop_series import loop_series

COLUMNS = {"polyakov_re": np.array([3.0, -3.0, 0.0]), "polyakov_im": np.array([4.0, 4.0, -2.0])}
RNG = np.random.default_rng(3)
PHASES = np.exp(2j * np.pi * RNG.integers(0, 3, 400) / 3)
LOOP = (0.2 + 0.05 * RNG.standard_normal(400)) * PHASES
PLAQUETTE = 0.5 + 0.01 * RNG.standard_normal(400)


def test_order_parameters_of_rows():
    assert Lattice(observable="abs_loop").order_of(COLUMNS.__getitem__).tolist() == [5.0, 5.0, 2.0]
    assert Lattice(observable="re_loop").order_of(COLUMNS.__getitem__).tolist() == [3.0, -3.0, 0.0]


def test_sea_quarks_change_the_order_parameter_unless_it_is_named():
    assert Lattice().order_name == "abs_loop"
    assert preset("dynamical-nf4").theory.order_name == "re_loop"
    assert msgspec.structs.replace(preset("dynamical-nf4").theory, observable="abs_loop").order_name == "abs_loop"


def test_a_series_without_one_has_the_modulus_of_the_loop():
    point = loop_series(5.6, (8, 8, 8, 4), PLAQUETTE, LOOP)
    assert np.array_equal(point.order, np.abs(LOOP))


def test_what_is_observed_is_the_chosen_order_parameter():
    """A loop that hops between the sectors of Z3 fluctuates little in its modulus and much in its real part."""
    point = loop_series(5.6, (8, 8, 8, 4), PLAQUETTE, LOOP)
    modulus = observe(point, id="c", cost=1.0)
    real = observe(point._replace(order=LOOP.real), id="c", cost=1.0)
    assert modulus.value == pytest.approx(512 * np.var(np.abs(LOOP)), rel=0.02)
    assert real.value == pytest.approx(512 * np.var(LOOP.real), rel=0.02)
    assert real.value > 5 * modulus.value


def test_the_hash_of_a_spec_knows_the_choice():
    plain = CampaignSpec(theory=Lattice())
    named = msgspec.structs.replace(plain, theory=Lattice(observable="re_loop"))
    assert plain.sha256 != named.sha256
    assert plain.sha256 == CampaignSpec(theory=Lattice(observable="auto")).sha256
