import copy
import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from metalforge import native
from metalforge.core import SpecError, UnknownNameError
from metalforge.lattice import Chain, ChainSpec, FermionSpec, GaugeField, HeatbathSpec, HmcSpec, warm_up
from metalforge.lattice.io import ConfigurationFileError, write_links
from metalforge.lattice.warmup import TARGET_ACCEPTANCE, predicted_acceptance
from metalforge.native.cpu_engine import cpu_engine

SPECS = {
    "heatbath": {"algorithm": "heatbath", "heatbath": HeatbathSpec(heatbath=2, overrelax=3)},
    "leapfrog": {"algorithm": "hmc", "hmc": HmcSpec(tau=0.7, n_steps=5, integrator="leapfrog")},
    "omelyan2": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=4)},
    "omelyan4": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=2, integrator="omelyan4")},
}


def spec_of(name, **more):
    return ChainSpec(**({"dims": (4, 4, 4, 8), "beta": 5.6, "seed": 9, "stream": 2} | SPECS[name] | more))


def test_series_of_whole_numbers_come_back_from_a_checkpoint(tmp_path):
    """What is written there must be read again: an old checkpoint is gone then."""
    chain = Chain(spec_of("heatbath"), threads=1)
    chain.save(tmp_path / "c.h5", series={"counts": [1, 2], "accepted": np.array([True, False])})
    series = Chain.load(tmp_path / "c.h5").series
    assert {name: values.tolist() for name, values in series.items()} == {"counts": [1.0, 2.0], "accepted": [1.0, 0.0]}
    assert {values.dtype for values in series.values()} == {np.dtype(np.float64)}


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("name", SPECS)
def test_a_saved_chain_continues_bit_for_bit(tmp_path, name, precision):
    """run(20) and run(10); save; load; run(10), with one and two threads in any order."""
    links = []
    for first, second in itertools.product((1, 2), repeat=2):
        chain = Chain(spec_of(name, precision=precision), threads=first)
        chain.run(10)
        chain.save(tmp_path / "c.h5")
        chain = Chain.load(tmp_path / "c.h5", threads=second)
        assert chain.step == 10
        chain.run(10)
        links.append(chain.field.links.copy())
    whole = Chain(spec_of(name, precision=precision), threads=1)
    whole.run(20)
    assert all(np.array_equal(part, whole.field.links) for part in links)


def test_a_chain_is_named_by_seed_and_stream():
    def plaquette(**more):
        chain = Chain(spec_of("heatbath", **more))
        chain.run(2)
        return chain.field.plaquette_sums()

    assert plaquette() == plaquette()
    assert len({plaquette(), plaquette(seed=10), plaquette(stream=3)}) == 3


def test_any_trajectory_can_be_recomputed(tmp_path):
    chain = Chain(spec_of("omelyan2"))
    chain.run(3)
    chain.save(tmp_path / "c.h5")
    there = [chain.update().delta_h for _ in range(3)]
    again = Chain.load(tmp_path / "c.h5")
    assert [again.update().delta_h for _ in range(3)] == there


class Renamed:
    """The process's engine by another name: what a checkpoint of another machine looks like."""

    def __init__(self, name, family):
        self.name, self.family = name, family

    def __getattr__(self, name):
        return getattr(cpu_engine(), name)

    def grid(self, dims, precision):
        grid = copy.copy(cpu_engine().grid(dims, precision))
        grid.engine = self
        return grid


def test_another_bit_family_is_refused_unless_allowed(tmp_path):
    """The other families that this CPU runs, and one by name alone, whose products have the bits of here."""
    here = cpu_engine()
    others = [engine for engine in map(cpu_engine, native.available_levels()) if engine.family != here.family]
    Chain(spec_of("omelyan2"), engine=here).save(tmp_path / "c.h5")
    for other in [*others, Renamed("cpu:v99", "another")]:
        with pytest.raises(SpecError, match=rf"{here.name} \(bits: {here.family}\), this is {other.name}.*\nhint"):
            Chain.load(tmp_path / "c.h5", engine=other)
        moved = Chain.load(tmp_path / "c.h5", engine=other, allow_different_isa=True)
        # Elsewhere the chain agrees within rounding, amplified by one trajectory.
        stayed = Chain.load(tmp_path / "c.h5", engine=here)
        moved.update()
        stayed.update()
        difference = np.max(np.abs(stayed.field.to_links() - moved.field.to_links()))
        assert difference < 1e-10
        assert (difference > 0) == (other in others)


@pytest.mark.parametrize(("name", "continues"), [("omelyan2", True), ("heatbath", True), ("fermions", False)])
def test_a_family_continues_quenched_chains_and_an_engine_those_with_fermions(tmp_path, name, continues):
    """Solves hold sums, and those follow the vectors of an engine; matrix products do not."""
    more = {"fermions": FermionSpec(flavors=(4,), masses=(0.5,)), "dims": (4, 4, 4, 4)} if name == "fermions" else {}
    spec = spec_of("omelyan2" if more else name, **more)
    elsewhere = Renamed("cpu:v99", cpu_engine().family)
    chain = Chain(spec, engine=elsewhere)
    chain.save(tmp_path / "c.h5")
    assert Chain.load(tmp_path / "c.h5", engine=elsewhere).step == 0
    if not continues:
        with pytest.raises(SpecError, match="engine cpu:v99"):
            Chain.load(tmp_path / "c.h5")
        return
    again = Chain.load(tmp_path / "c.h5")
    assert chain.update() == again.update()
    assert np.array_equal(chain.field.to_links(), again.field.to_links())


def test_a_file_that_is_not_a_chain_is_refused(tmp_path):
    write_links(tmp_path / "plain.h5", GaugeField((4, 4, 4, 4)).to_links(), "hdf5")
    with pytest.raises(SpecError, match="lattice chain"):
        Chain.load(tmp_path / "plain.h5")
    (tmp_path / "noise.h5").write_bytes(b"noise")
    with pytest.raises(ConfigurationFileError):
        Chain.load(tmp_path / "noise.h5")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dims": (4, 4, 4, 5)}, "four even integers"),
        ({"beta": float("nan")}, "`beta` must be"),
        ({"beta": -1.0}, "`beta` must be"),
        ({"hmc": HmcSpec(n_steps=0)}, "n_steps >= 1"),
        ({"hmc": HmcSpec(tau=float("inf"))}, "tau > 0"),
        ({"heatbath": HeatbathSpec(heatbath=0, overrelax=0)}, "at least one sweep"),
    ],
)
def test_bad_specs(fields, message):
    with pytest.raises(SpecError, match=message):
        spec_of("heatbath", **fields)


def test_unknown_integrator_and_mismatched_field():
    with pytest.raises(UnknownNameError, match="did you mean `leapfrog`"):
        spec_of("heatbath", hmc=HmcSpec(integrator="leapfrg"))
    with pytest.raises(SpecError, match="spec says"):
        Chain(spec_of("heatbath"), field=GaugeField((4, 4, 4, 4)))


def test_warm_up_tunes_into_the_target_and_then_leaves_the_chain_alone():
    chain = Chain(spec_of("leapfrog", hmc=HmcSpec(tau=1.0, n_steps=3, integrator="leapfrog"), start="cold"))
    warm_up(chain, 150)
    frozen = chain.spec
    assert frozen.hmc.n_steps > 3
    infos = [chain.update() for _ in range(150)]
    assert chain.spec == frozen
    assert TARGET_ACCEPTANCE[0] - 0.1 < np.mean([i.accepted for i in infos])


def test_predicted_acceptance_is_that_of_a_gaussian():
    # <dH> = var / 2 = s^2 / 2 and P = erfc(s / (2 sqrt 2)): s = 1 gives 0.617 (Creutz).
    sample = tuple(native.Stream(3).normal(step=0, sites=50_000, draws=2).ravel() + 0.5)
    assert predicted_acceptance(sample) == pytest.approx(0.6171, abs=0.005)


def test_trajectories_allocate_nothing_large():
    chain = Chain(spec_of("omelyan2", dims=(8, 8, 8, 8)))
    chain.update()
    tracemalloc.start()
    for _ in range(3):
        chain.update()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_a_quenched_run_on_16_4_fits_in_130_megabytes():
    """Links, their copy and momenta are 92 MB; the rest is tables."""
    code = (
        "import re\n"
        "from metalforge.lattice import Chain, ChainSpec, HmcSpec, GaugeField\n"
        "def memory(key): return int(re.search(key + r':\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
        "Chain(ChainSpec(dims=(4, 4, 4, 4), beta=6.0, algorithm='hmc', hmc=HmcSpec(n_steps=1))).update()\n"
        "before = memory('VmRSS')\n"
        "chain = Chain(ChainSpec(dims=(16, 16, 16, 16), beta=6.0, algorithm='hmc', hmc=HmcSpec(n_steps=1)))\n"
        "chain.run(2, lambda info, observed: None)\n"
        "print(memory('VmHWM') - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 130e6
