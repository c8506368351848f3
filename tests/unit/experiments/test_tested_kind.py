"""What scores are about: chains of a kind, and what another chain has that none of them had."""

import msgspec
import pytest

from experiments.heads.study import kinds_tested
from metalforge.conductor.features import ChainContext

SWEEPS = [ChainContext(beta=5.1, dims=(n_s, n_s, n_s, n_t)) for n_s, n_t in ((4, 2), (8, 2), (8, 4), (16, 4))]
SEA = ChainContext(beta=5.1, dims=(4, 4, 4, 2), algorithm="hmc", flavors=4, mass=0.1)


def test_kinds_are_made_of_chains_and_know_their_like():
    sweeps, sea = kinds_tested([*SWEEPS, SEA])
    assert (sweeps.algorithm, sweeps.n_t, sweeps.aspect) == ("heatbath", (2, 4), (2.0, 4.0))
    assert (sea.algorithm, sea.flavors) == ("hmc", 4)
    assert sweeps.lacks(ChainContext(beta=6.0, dims=(12, 12, 12, 4), start="cold")) is None
    assert sea.lacks(SEA, "leapfrog") is None


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"dims": (12, 12, 12, 6)}, "N_t"),
        ({"dims": (24, 24, 24, 4)}, "N_s"),
        ({"algorithm": "hmc"}, "HMC"),
        ({"flavors": 4, "mass": 0.1}, "flavours"),
        ({"action": "symanzik"}, "symanzik"),
    ],
)
def test_what_a_chain_has_that_none_had_is_said(other, word):
    (sweeps,) = kinds_tested(SWEEPS)
    chain = ChainContext(**{"beta": 5.1, "dims": (8, 8, 8, 4), **other})
    assert word in sweeps.lacks(chain)
    leapfrog = msgspec.structs.replace(kinds_tested([SEA])[0], integrators=("leapfrog",))
    assert "omelyan2" in leapfrog.lacks(SEA, "omelyan2")
