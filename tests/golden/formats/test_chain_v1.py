"""`chain-v1.h5` is a run of the release before sea quarks, stopped at its end, and must continue forever.

Never write the file again: a reader that cannot read it is wrong.
"""

from pathlib import Path

import pytest

from metalforge.lattice import ChainSpec, HmcSpec
from metalforge.lattice.generate import Generation
from metalforge.lattice.io import read_checkpoint

FILE = Path(__file__).with_name("chain-v1.h5")


def test_its_build_level_is_an_engine_with_a_bit_family():
    found = read_checkpoint(FILE)
    assert (found.engine, found.family) == ("cpu:v2", "plain")


def test_the_first_checkpoint_of_a_run_is_still_read():
    run = Generation.resume(FILE, allow_different_isa=True)
    assert run.chain.spec == ChainSpec(
        dims=(4, 2, 2, 2), beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(tau=1.0, n_steps=4, integrator="omelyan2")
    )
    assert run.chain.sea is None
    assert (run.chain.step, run.measured, run.remaining) == (10, 6, 0)
    assert run.series["plaquette"][-1] == 0.5204577777778787
    assert run.series["delta_h"][0] == -0.17849027441911858
    assert sum(run.chain.field.plaquette_sums()) / (6 * 32) == pytest.approx(run.series["plaquette"][-1], rel=1e-14)
    # It goes on where it stopped: the eleventh update, up to the rounding of another build level.
    info = run.chain.update()
    assert info.step == 11
    assert info.delta_h == pytest.approx(-0.007444542454777547, abs=1e-9)
