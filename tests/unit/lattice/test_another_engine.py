"""A second engine, written here, runs chains and campaigns with the CPU's bits: nobody else looks inside a buffer.

It is two files: a module with the engine (`Parcel` to `ParcelEngine`), and one with the substrate that opens it
(`ParcelSubstrate` and `discover`), which an entry point of the group `metalforge.substrates` names.
"""

import pickle

import msgspec
import numpy as np
import pytest

from metalforge import campaign
from metalforge.core import Cost, Discovery, Kind, SpecError, SubstrateInfo, substrate
from metalforge.core.capabilities import GENERAL_PURPOSE
from metalforge.lattice import (
    Chain,
    ChainSpec,
    FermionSpec,
    GaugeField,
    HmcSpec,
    Inverter,
    gradient_flow,
    largest_eigenvalue,
    pion_correlator,
)
from metalforge.lattice.staggered import ColourField
from metalforge.native.cpu_engine import cpu_engine
from metalforge.substrates import cpu
from metalforge.substrates.cpu import CpuSubstrate
from metalforge.testing import check_substrate
from reference.small_campaigns import ROUNDS

DIMS = (4, 4, 4, 2)
ADDRESS = {"seed": 5, "stream": 2, "step": 3}


class Parcel:
    """A buffer that tells nothing: no array, no length, no items."""

    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside


def opened(argument):
    if isinstance(argument, Parcel):
        return argument.inside
    return [opened(a) for a in argument] if isinstance(argument, list) else argument


class Wrapped:
    """Kernels that take parcels."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        kernel = getattr(self._inner, name)
        return lambda *arguments: kernel(*map(opened, arguments))

    def new(self, kind):
        return Parcel(self._inner.new(kind))

    def staggered(self):
        return Wrapped(self._inner.staggered())

    def solver(self, shifts):
        return Wrapped(self._inner.solver(shifts))


class ParcelEngine:
    """The CPU's kernels on parcels."""

    name, threads = "parcel:0", 1

    def __init__(self):
        self.family = cpu_engine().family

    def grid(self, dims, precision):
        grid = Wrapped(cpu_engine(threads=1).grid(dims, precision))
        grid.engine, grid.dims, grid.precision = self, dims, precision
        return grid


class ParcelSubstrate:
    """The substrate that has the engine."""

    info = SubstrateInfo(kind=Kind.CPU, name="parcel:0", model="cores that take parcels", capabilities=GENERAL_PURPOSE)

    def cost(self, workload):
        return Cost(unknown="nobody has timed it")

    def meter(self):
        return CpuSubstrate().meter()

    def open_engine(self, *, threads=None, variant=""):
        return ParcelEngine()


def discover():
    return Discovery(substrates=(ParcelSubstrate(),))


SPECS = {
    "heatbath": ChainSpec(dims=DIMS, beta=5.6, seed=3),
    "single": ChainSpec(dims=DIMS, beta=5.6, seed=3, precision="f32", algorithm="hmc", hmc=HmcSpec(n_steps=4)),
    "hmc": ChainSpec(dims=DIMS, beta=5.6, seed=3, algorithm="hmc", hmc=HmcSpec(n_steps=4)),
    "symanzik": ChainSpec(dims=DIMS, beta=4.0, algorithm="hmc", action="symanzik", hmc=HmcSpec(n_steps=4)),
    "four flavours": ChainSpec(
        dims=DIMS,
        beta=5.0,
        algorithm="hmc",
        start="cold",
        hmc=HmcSpec(n_steps=4),
        fermions=FermionSpec(flavors=(4,), masses=(0.3,), mixed_precision=True, noise_vectors=2),
    ),
    "two flavours": ChainSpec(
        dims=DIMS,
        beta=5.0,
        algorithm="rhmc",
        start="cold",
        hmc=HmcSpec(n_steps=4),
        fermions=FermionSpec(flavors=(2,), masses=(0.3,), noise_vectors=1),
    ),
}


def run(chain, updates):
    """Move a chain on, the first updates as in warm-up; what another process is asked to do."""
    return [chain.update(adapting=chain.step < 3) for _ in range(updates)], chain


def same(one, other):
    return one.step == other.step and np.array_equal(one.field.to_links(), other.field.to_links())


@pytest.mark.parametrize("name", SPECS)
def test_every_kind_of_chain_runs_on_it_with_the_same_bits(name):
    here, there = Chain(SPECS[name], threads=1), Chain(SPECS[name], engine=ParcelEngine())
    assert isinstance(there.field.links, Parcel)
    assert run(here, 4)[0] == run(there, 4)[0]
    assert here.measure() == there.measure()
    assert same(here, there)


def test_flow_spectrum_and_correlator_run_on_it():
    fields = [GaugeField.hot(DIMS, seed=4, engine=engine) for engine in (cpu_engine(threads=1), ParcelEngine())]
    here, there = ((gradient_flow(f, 0.1), pion_correlator(Inverter(f, 0.5), 0.5).tolist()) for f in fields)
    assert here == there
    values = [largest_eigenvalue(Inverter(field, 0.5).operator, **ADDRESS) for field in fields]
    assert values[0] == values[1]


def test_its_checkpoints_go_on_elsewhere(tmp_path):
    """A quenched chain moves between engines of one family; one with sea quarks stays."""
    chain = Chain(SPECS["hmc"], engine=ParcelEngine())
    chain.save(tmp_path / "c.h5")
    moved = Chain.load(tmp_path / "c.h5", threads=1)
    assert moved.field.engine is cpu_engine(threads=1)
    assert run(moved, 2)[0] == run(chain, 2)[0]
    assert same(moved, chain)
    Chain(SPECS["four flavours"], engine=ParcelEngine()).save(tmp_path / "c.h5")
    with pytest.raises(SpecError, match="parcel:0"):
        Chain.load(tmp_path / "c.h5")


def test_its_substrate_keeps_the_contract_and_campaigns_run_on_it(monkeypatch):
    check_substrate(ParcelSubstrate())
    monkeypatch.setattr(substrate, "load_plugins", lambda group: {"cpu": cpu.discover, "parcel": discover})
    budget = campaign.Budget(trajectories=320)
    found = {}
    for name in ("cpu", "parcel:0"):
        running = msgspec.structs.replace(ROUNDS.running, producers=1, substrate=name)
        found[name] = campaign.run(msgspec.structs.replace(ROUNDS, budget=budget, running=running)).state
    assert {chain.substrate for chain in found["parcel:0"].chains.values()} == {"parcel:0"}
    here, there = ([chain.column("plaquette").tolist() for chain in state.chains.values()] for state in found.values())
    assert here == there
    assert sum(map(len, here)) >= 200


def test_fields_of_two_engines_do_not_meet():
    here, there = (ColourField(GaugeField(DIMS, engine=e), 0) for e in (cpu_engine(threads=1), ParcelEngine()))
    with pytest.raises(SpecError, match="parcel:0"):
        here.dot(there)


@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("dims", [DIMS, (6, 2, 4, 2), (8, 4, 8, 4)])
def test_fields_come_back_bit_for_bit(dims, precision):
    field = GaugeField.hot(dims, seed=1, precision=precision, threads=1)
    other = pickle.loads(pickle.dumps(field))
    assert np.array_equal(other.to_links(), field.to_links())
    assert other.precision == precision
