"""Faults that are put into a chain on purpose do what they say, and end when they are ended."""

import msgspec
import numpy as np
import pytest

from experiments.chain_faults import FAULTS, inject
from metalforge.core.errors import SpecError
from metalforge.core.rows import ChainFaultError
from metalforge.lattice import Chain, ChainSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp
from reference.spoiled_chains import faults_at

ALGORITHMS = ("heatbath", "hmc")


def chain_of(algorithm="heatbath", precision="f64", stream=0, updates=3):
    chain = Chain(
        ChainSpec(dims=(4, 2, 2, 2), beta=5.3, seed=5, stream=stream, algorithm=algorithm, precision=precision),
        threads=1,
    )
    chain.run(updates)
    return chain


def same_links(one, other):
    return bool((one.field.to_links() == other.field.to_links()).all())


def off_the_group(chain):
    projected = chain.field.copy()
    projected.reunitarise()
    return chain.field.distance(projected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_the_chain_and_the_step_counts_on(fault, algorithm):
    sound, faulty = chain_of(algorithm), chain_of(algorithm)
    inject(faulty, fault, np.random.default_rng(3))
    with np.errstate(all="ignore"):
        sound.run(4)
        faulty.run(4)
    assert not same_links(sound, faulty)
    assert faulty.step == sound.step
    assert faulty.spec == sound.spec


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_a_flip_changes_one_real_by_what_its_bit_is_worth(precision):
    for fault, least, most in (("flip_low", 0, 1e-3), ("flip_mantissa", 1e-9, 0.51), ("flip_exponent", 1e-9, np.inf)):
        chain, before = chain_of(precision=precision), chain_of(precision=precision)
        inject(chain, fault, np.random.default_rng(1))
        changed = chain.field.links != before.field.links
        assert changed.sum() == 1
        assert least < abs(chain.field.links - before.field.links)[changed][0] <= most


def test_links_drift_off_the_group_until_reunitarisation_is_back():
    chain = chain_of()
    end = inject(chain, "lost_reunitarisation", np.random.default_rng(1))
    chain.run(100)
    assert off_the_group(chain) > 3e-15
    end()
    chain.update()
    assert off_the_group(chain) < 1e-15


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_stream_that_is_stuck_or_behind_draws_numbers_of_other_steps(algorithm):
    for fault, drawn in (("stuck_stream", [19, 19, 19]), ("repeated_stream", [4, 5, 6])):
        faulty, other = chain_of(algorithm, updates=20), chain_of(algorithm, updates=20)
        inject(faulty, fault, np.random.default_rng(0))
        faulty.run(3)
        for step in drawn:
            other.step = step
            other.update()
        assert same_links(faulty, other)


def test_a_wrong_coupling_is_another_chain_whose_spec_says_nothing():
    faulty, other = chain_of(), chain_of()
    end = inject(faulty, "wrong_beta", np.random.default_rng(0))
    other.spec = msgspec.structs.replace(other.spec, beta=5.2)
    faulty.run(3)
    other.run(3)
    assert same_links(faulty, other)
    end()
    other.spec = msgspec.structs.replace(other.spec, beta=5.3)
    faulty.update()
    other.update()
    assert same_links(faulty, other)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_not_a_number_spoils_one_row_and_heals(algorithm):
    run = ChainRun(chain_of(algorithm), WarmUp(total=0), ("plaquette", "polyakov_re", "polyakov_im"))
    inject(run.chain, "nan", np.random.default_rng(0))
    with np.errstate(all="ignore"), pytest.raises(ChainFaultError):
        run.step()
    assert 0 < run.step().values["plaquette"] < 1


def test_planned_faults_happen_once_in_the_chain_they_are_meant_for():
    with faults_at({(1, 3): "flip_mantissa", (2, 5): "wrong_beta", (7, 0): "flip_low"}) as left:
        faulty = [chain_of(stream=stream, updates=8) for stream in range(3)]
        again = [chain_of(stream=stream, updates=8) for stream in range(3)]
        assert left == {(7, 0): "flip_low"}
    sound = [chain_of(stream=stream, updates=8) for stream in range(3)]
    assert [same_links(a, b) for a, b in zip(faulty, sound, strict=True)] == [True, False, False]
    assert all(same_links(a, b) for a, b in zip(again, sound, strict=True))


def test_an_unknown_fault_is_refused():
    with pytest.raises(SpecError, match="flip_low"):
        inject(chain_of(), "cosmic", np.random.default_rng(0))
