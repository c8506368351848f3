"""`chain.h5` is a run of HMC, stopped at its end: `metalforge lattice generate` must be able to go on with it."""

from pathlib import Path

import pytest

from metalforge.lattice import ChainSpec, HmcSpec
from metalforge.lattice.generate import Generation
from metalforge.lattice.io import read_checkpoint

FILE = Path(__file__).with_name("chain.h5")


def test_a_checkpoint_is_read_and_its_chain_goes_on():
    found = read_checkpoint(FILE)
    assert (found.engine, found.family) == ("cpu:v4", "fma")
    run = Generation.resume(FILE, allow_different_isa=True)
    assert run.chain.spec == ChainSpec(
        dims=(4, 2, 2, 2), beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(tau=1.0, n_steps=10)
    )
    assert run.chain.sea is None
    assert (run.chain.step, run.measured, run.remaining) == (10, 6, 0)
    assert run.series["plaquette"][-1] == 0.5233639995603822
    assert sum(run.chain.field.plaquette_sums()) / (6 * 32) == pytest.approx(run.series["plaquette"][-1], rel=1e-14)
    # It goes on where it stopped: the eleventh update, up to the rounding of another build level.
    info = run.chain.update()
    assert info.step == 11
    assert info.delta_h == pytest.approx(-0.0019836361032048444, abs=1e-9)
