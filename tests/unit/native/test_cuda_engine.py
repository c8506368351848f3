"""Chains on a GPU have the CPU's bits: on the host as a card, where kernels and indices are the same, and on a card.

`pytest -m cuda` runs them on a card, `make check-cuda` on the host.
"""

import contextlib
import hashlib
import json
import math
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from metalforge import native
from metalforge.core import PlacementError, SpecError
from metalforge.core.errors import DeviceLostError
from metalforge.lattice import (
    Chain,
    ChainSpec,
    FermionSpec,
    GaugeField,
    HmcSpec,
    Inverter,
    gradient_flow,
    pion_correlator,
)
from metalforge.lattice.batch import ChainBatch
from metalforge.lattice.field import Momenta
from metalforge.lattice.run import ChainRun
from metalforge.lattice.solvers import multishift_cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from metalforge.lattice.warmup import WarmUp
from metalforge.native.cpu_engine import cpu_engine
from metalforge.native.cuda.card import CardLimits
from metalforge.native.cuda.engine import CupyCard, cuda_engine
from metalforge.native.cuda.grid import CudaEngine, CudaGrid
from metalforge.native.cuda.precision import Fp64Choice
from metalforge.native.cuda.solver import way_of
from metalforge.native.engine import Iterations, family_of_engine
from reference.cuda_host import host_engine

ON_CARD = pytest.param("card", marks=pytest.mark.cuda)
ON_HOST = pytest.param("host", marks=pytest.mark.long)
"""Kernels are compiled for the host first, which takes as long as `make test` has for a room."""
BITS = json.loads((Path(__file__).parents[2] / "golden/quenched_bits.json").read_text())


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """Engines by name, made when they are asked for."""
    made = {}

    def engine(name):
        if name not in made:
            if name == "host":
                made[name] = host_engine(tmp_path_factory.mktemp("cuda"))
            else:
                made[name] = cuda_engine(0)
        return made[name]

    return engine


@pytest.fixture(params=[ON_HOST, ON_CARD])
def engine(engines, request):
    """The host as a card, and a card."""
    return engines(request.param)


@pytest.fixture
def cpu():
    return cpu_engine(threads=1)


def digest(field):
    """The bits of links in file order, as the sign of zero is none of theirs."""
    return hashlib.sha256((field.to_links() + 0.0).tobytes()).hexdigest()[:32]


def same_links(one, other):
    return np.array_equal(one.to_links(), other.to_links())


SPECS = {
    "heatbath": {"algorithm": "heatbath"},
    "leapfrog": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=8, integrator="leapfrog")},
    "omelyan2": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=4)},
    "omelyan4": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=3, integrator="omelyan4")},
    "symanzik": {"algorithm": "hmc", "action": "symanzik", "beta": 4.0, "hmc": HmcSpec(n_steps=5)},
    "rough": {"algorithm": "hmc", "hmc": HmcSpec(n_steps=2, integrator="leapfrog")},
}


def spec_of(name, dims, **more):
    return ChainSpec(**({"dims": dims, "beta": 5.6, "seed": 9, "stream": 2} | SPECS[name] | more))


def check_chain(spec, cpu, engine, updates):
    here, there = Chain(spec, engine=cpu), Chain(spec, engine=engine)
    assert same_links(here.field, there.field)
    for _ in range(updates):
        one, other = here.update(), there.update()
        assert one.accepted == other.accepted
        if one.delta_h is not None:
            assert one.delta_h == pytest.approx(other.delta_h, abs=1e-9)
    assert same_links(here.field, there.field)
    # The same numbers in another order: the CPU adds those of a vector in the links' own precision.
    eps = 1e-13 if spec.precision == "f64" else 1e-8
    mine, its = here.measure(), there.measure()
    for name in ("plaquette_spatial", "plaquette_temporal", "polyakov_re", "polyakov_im"):
        assert getattr(mine, name) == pytest.approx(getattr(its, name), abs=eps)
    return here, there


@pytest.mark.parametrize("dims", [(4, 4, 4, 2), (6, 2, 4, 2)])
@pytest.mark.parametrize("name", SPECS)
def test_a_quenched_chain_has_the_bits_of_the_cpu(engine, cpu, name, dims):
    check_chain(spec_of(name, dims), cpu, engine, 3)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["f64", "f32"])
@pytest.mark.parametrize("dims", [(4, 4, 4, 2), (6, 6, 6, 6), (8, 8, 8, 4), (12, 12, 12, 4)])
def test_fifty_updates_and_twenty_trajectories(engines, cpu, dims, precision):
    """Hot start, 50 heat-bath updates, then 20 trajectories from there, with the same decisions."""
    card = engines("card")
    chains = check_chain(spec_of("heatbath", dims, precision=precision), cpu, card, 50)
    spec = spec_of("omelyan2", dims, precision=precision, start="file", hmc=HmcSpec(n_steps=5))
    here, there = (Chain(spec, field=chain.field) for chain in chains)
    decisions = [(here.update().accepted, there.update().accepted) for _ in range(20)]
    assert all(one == other for one, other in decisions)
    assert same_links(here.field, there.field)


@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_single_precision_and_copies(engine, cpu, precision):
    for name in ("heatbath", "omelyan2"):
        check_chain(spec_of(name, (4, 4, 2, 6), precision=precision), cpu, engine, 2)
    field = GaugeField.hot((6, 2, 4, 2), seed=1, precision=precision, engine=engine)
    assert same_links(GaugeField.from_links(field.to_links(), precision=precision, engine=engine), field)
    momenta = Momenta(field)
    momenta.refresh(seed=3, stream=1, step=4)
    values = field.grid.download("momenta", momenta.values)
    other = Momenta(field)
    field.grid.upload("momenta", other.values, values)
    assert other.kinetic() == momenta.kinetic() == pytest.approx(float((values**2).sum() / 2), rel=1e-12)
    assert field.distance(field.copy()) == 0.0


def test_flow_and_clover(engine, cpu):
    here, there = (gradient_flow(GaugeField.hot((4, 4, 4, 2), seed=4, engine=x), 0.1) for x in (cpu, engine))
    for one, other in zip(here, there, strict=True):
        assert list(one) == pytest.approx(list(other), abs=1e-12)


def check_bits(case, engine):
    spec = case["spec"]
    chain = Chain(ChainSpec(**spec | {"hmc": HmcSpec(**spec.get("hmc", {}))}), engine=engine)
    chain.run(case["updates"])
    assert digest(chain.field) == case["digest"]


@pytest.mark.parametrize("case", BITS, ids=[case["name"] for case in BITS])
def test_the_bits_that_are_kept_are_the_cpus(case):
    """Digests of links that engines of the family `fma` give, at whatever level."""
    for name in native.available_levels():
        if family_of_engine(f"cpu:{name}") == "fma":
            check_bits(case, cpu_engine(name, threads=1))


def test_the_family_of_an_engine_follows_from_its_name():
    for name in native.available_levels():
        assert family_of_engine(f"cpu:{name}") == cpu_engine(name).family
    card, open_again = SimpleNamespace(name="cuda:1"), (cuda_engine, (1,))
    for fp64 in (Fp64Choice.of("native"), Fp64Choice.of("hybrid"), Fp64Choice.of("concurrent", 3)):
        engine = CudaEngine(card, open_again, fp64)
        assert family_of_engine(engine.name) == engine.family
    assert (family_of_engine("cuda:0"), family_of_engine("cpu:v2")) == ("fma", "plain")


@pytest.mark.cuda
@pytest.mark.parametrize("case", BITS, ids=[case["name"] for case in BITS])
def test_the_bits_that_are_kept_are_a_cards(engines, case):
    check_bits(case, engines("card"))


@pytest.mark.parametrize("name", ["heatbath", "leapfrog", "symanzik"])
def test_chains_of_a_batch_are_what_they_are_alone(engine, cpu, name):
    """Five couplings in groups of two; the second run repeats what the first recorded."""
    if hasattr(engine.card, "launches"):
        engine.card.cache_bytes = 300_000
    specs = [spec_of(name, (4, 4, 4, 2), beta=5.3 + 0.1 * n, seed=n, stream=7 - n) for n in range(5)]
    alone, together = (ChainBatch([Chain(spec, engine=x) for spec in specs]) for x in (cpu, engine))
    for _ in range(3):
        for mine, its in zip(alone.run(2), together.run(2), strict=True):
            assert mine.get("accepted") == its.get("accepted")
            for column in ("plaquette", "polyakov_re", "polyakov_im"):
                assert mine[column] == pytest.approx(its[column], abs=1e-13)
    together.bring_back()
    for one, other in zip(alone.chains, together.chains, strict=True):
        assert one.step == other.step == 6
        assert same_links(one.field, other.field)


COMPANIES = (1, 2, 3, 5, 8, 33, 34, 40)
"""Chains side by side: an H200 has 132 multiprocessors, which 33 lattices of 4^3x2 fill; the host as a card has 4."""


@pytest.mark.parametrize("name", ["heatbath", "leapfrog"])
def test_the_row_of_a_chain_does_not_depend_on_how_many_run_beside_it(engine, name):
    """All bits of every observable, alone and in a batch of any size; dH of a trajectory alone is rounded otherwise."""
    on_host = hasattr(engine.card, "launches")
    if on_host:
        engine.card.cache_bytes = 1 << 20
    spec = spec_of(name, (4, 4, 4, 2))
    alone = Chain(spec, engine=engine)
    expected, deltas = [], set()
    for _ in range(3):
        info = alone.update()
        expected.append((alone.measure().plaquette, info.accepted))
    for size in [size for size in COMPANIES if size <= 5 or not on_host]:
        others = [spec_of(name, (4, 4, 4, 2), beta=5.3 + 0.01 * n, seed=n) for n in range(1, size)]
        batch = ChainBatch([Chain(one, engine=engine) for one in (*others, spec)])
        columns = batch.run(3)[-1]
        accepted = columns.get("accepted", [None] * 3)
        assert list(zip(columns["plaquette"], accepted, strict=True)) == expected, size
        deltas.add(tuple(columns.get("delta_h", ())))
    assert len(deltas) == 1


def test_chains_go_on_from_checkpoints_of_every_stretch_in_any_company(engine, cpu, tmp_path):
    """Rows and links after each checkpoint are those of a batch that was never interrupted, and links are the CPU's."""
    names = ("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im")
    specs = [spec_of("heatbath", (4, 4, 4, 2), beta=5.0 + 0.1 * n, seed=n) for n in range(4)]

    def runs():
        return [ChainRun(Chain(spec, engine=engine), WarmUp(total=0), names) for spec in specs]

    def move(some):
        batch = ChainBatch([run.chain for run in some])
        batch.start(STRETCH)
        for run, columns in zip(some, batch.collect(), strict=True):
            run.extend(columns)
        batch.bring_back()

    whole, resumed = runs(), runs()
    alone = [Chain(spec, engine=cpu) for spec in specs]
    for stretch in range(4):
        move(whole)
        for chain in alone:
            chain.run(STRETCH)
        # One alone, one pair, the rest: groups change with every stretch.
        order = [(stretch + i) % 4 for i in range(4)]
        for group in (order[:1], order[1:3], order[3:]):
            move([resumed[i] for i in group])
        for i, run in enumerate(resumed):
            run.save(tmp_path / f"{i}.h5")
            resumed[i] = ChainRun.load(tmp_path / f"{i}.h5", engine=engine)
        for one, other, third in zip(whole, resumed, alone, strict=True):
            assert one.log.columns == other.log.columns
            assert same_links(one.chain.field, other.chain.field)
            assert same_links(one.chain.field, third.field)


STRETCH = 3
"""Updates between two checkpoints."""


def test_a_batch_takes_other_couplings_on_the_way(engine, cpu):
    specs = [spec_of("heatbath", (4, 4, 4, 2), seed=n) for n in range(2)]
    batches = [ChainBatch([Chain(spec, engine=x) for spec in specs]) for x in (cpu, engine)]
    for batch in batches:
        batch.run(2)
        batch.chains[1].spec = msgspec.structs.replace(batch.chains[1].spec, beta=6.1)
        batch.bring_back()
        batch.take_up()
        batch.run(2)
        batch.bring_back()
    for one, other in zip(*(batch.chains for batch in batches), strict=True):
        assert same_links(one.field, other.field)


def test_a_batch_says_what_does_not_belong_to_it(engine, cpu):
    chains = [Chain(spec_of("heatbath", (4, 4, 4, 2), seed=n), engine=engine) for n in range(2)]
    with pytest.raises(SpecError, match="one kind"):
        ChainBatch([*chains, Chain(spec_of("omelyan2", (4, 4, 4, 2)), engine=engine)])
    with pytest.raises(SpecError, match="one kind"):
        ChainBatch([*chains, Chain(spec_of("heatbath", (4, 4, 4, 2)), engine=cpu)])
    with pytest.raises(SpecError, match="none"):
        ChainBatch([])
    batch = ChainBatch(chains)
    batch.start(1)
    with pytest.raises(SpecError, match="not collected"):
        batch.bring_back()


def test_checkpoints_move_both_ways(engine, cpu, tmp_path):
    """A chain that changes engines twice is one that never did."""
    spec = spec_of("omelyan2", (4, 4, 4, 2))
    stays = Chain(spec, engine=cpu)
    stays.run(6)
    chain = Chain(spec, engine=cpu)
    for next_engine in (engine, cpu):
        chain.run(2)
        chain.save(tmp_path / "c.h5")
        chain = Chain.load(tmp_path / "c.h5", engine=next_engine)
    chain.run(2)
    assert chain.step == stays.step
    assert same_links(chain.field, stays.field)


def test_an_engine_and_its_fields_can_be_pickled(engine):
    field = GaugeField.hot((4, 4, 4, 2), seed=5, engine=engine)
    assert same_links(pickle.loads(pickle.dumps(field)), field)


@pytest.mark.parametrize("dims", [(4, 4, 4, 2), (6, 2, 4, 6)])
@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_the_staggered_operator(engine, cpu, dims, precision):
    eps = 1e-12 if precision == "f64" else 1e-5
    results = []
    for one in (cpu, engine):
        field = GaugeField.hot(dims, seed=4, engine=one)
        operator = StaggeredOperator(field, 0.3, precision=precision)
        source, out, normal = (ColourField(field, parity, precision) for parity in (0, 1, 0))
        source.gaussian(seed=5, stream=2, step=3, draw=7)
        operator.hop(out, source)
        norm2 = operator.residual(normal, source, source, shift=0.1)
        results.append((source.to_host(), out.to_host(), normal.to_host(), norm2, source.dot(normal)))
    (source, *here), (its, *there) = results
    assert np.array_equal(source, its)
    for one, other in zip(here, there, strict=True):
        assert np.allclose(one, other, rtol=eps, atol=eps)


def test_solves_and_forces(engine, cpu):
    correlators, kicks = [], []
    for one in (cpu, engine):
        field = GaugeField.hot((4, 4, 4, 4), seed=4, engine=one)
        correlators.append(pion_correlator(Inverter(field, 0.5), 0.5))
        fields = [ColourField(field, 0) for _ in range(3)]
        for n, colours in enumerate(fields):
            colours.gaussian(seed=n, stream=2, step=3, draw=7)
        momenta = Momenta(field)
        StaggeredOperator(field, 0.3).force(momenta, fields, [0.2, -0.3, 0.5])
        kicks.append(field.grid.download("momenta", momenta.values))
    assert correlators[0] == pytest.approx(correlators[1], rel=1e-10)
    assert np.allclose(*kicks, rtol=1e-12, atol=1e-12)


WAYS = {"cg_cluster": {}, "cg_resident": {"clusters": False}, "cg_streamed": {"shared_bytes": 0}}
"""Ways of a solve, and what a card lacks that goes that way. On a card, lattices below decide."""


def check_solve(field, source, mass, shifts, tolerance, precision="f64", **options):
    """Solve; returns the solutions on the host, what the solve did, and the way it went."""
    operator = StaggeredOperator(field, mass, precision=precision)
    outs = [ColourField(field, 0, precision) for _ in shifts]
    options = {"tolerance": tolerance, "max_iterations": 2000} | options
    info = multishift_cg(operator, source, outs, shifts, **options)
    solver = operator.solver(len(shifts))
    met = solver.way.kernel if hasattr(solver, "way") else None
    return [out.to_host() for out in outs], info, met


@pytest.mark.parametrize("dims", [(4, 4, 4, 10), (6, 2, 4, 6)])
@pytest.mark.parametrize("precision", ["f64", "f32"])
def test_all_ways_of_a_solve_have_the_same_bits(engine, cpu, monkeypatch, dims, precision):
    """One cluster, resident blocks, passes: the sums have one order. Several shifts."""
    tolerance = 1e-11 if precision == "f64" else 1e-5
    shifts = [0.2, 0.0, 0.7, 3.0]
    results = {}
    for one, ways in ((cpu, {"cpu": {}}), (engine, WAYS)):
        field = GaugeField.hot(dims, seed=4, engine=one)
        source = ColourField(field, 0, precision)
        source.gaussian(seed=5, stream=2, step=3, draw=7)
        for name, lacks in ways.items():
            if one is engine:
                limits = CardLimits(multiprocessors=4, shared_bytes=227 << 10, clusters=True)
                monkeypatch.setattr(engine.card, "limits", limits._replace(**lacks))
            solutions, info, met = check_solve(field, source, 0.4, shifts, tolerance, precision)
            assert met == (None if one is cpu else name)
            results[name] = solutions, info
    (here, told), *there = results.values()
    for solutions, info in there:
        assert abs(info.iterations - told.iterations) <= 1
        for one, other in zip(here, solutions, strict=True):
            assert np.allclose(one, other, rtol=0, atol=10 * tolerance * np.abs(one).max())
    for solutions, info in there[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(there[0][0], solutions, strict=True))
        assert info.iterations == there[0][1].iterations


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("dims", "precision", "met"),
    [
        ((8, 8, 8, 4), "f64", "cg_cluster"),
        ((8, 8, 8, 8), "f32", "cg_cluster"),
        ((12, 12, 12, 4), "f64", "cg_resident"),
        ((16, 16, 16, 8), "f64", "cg_resident"),
        ((16, 16, 16, 16), "f32", "cg_resident"),
        ((24, 24, 24, 6), "f64", "cg_streamed"),
    ],
)
def test_solves_of_lattices_that_go_different_ways(engines, cpu, dims, precision, met):
    """On a card of Hopper's kind; the CPU's solution, and the bits of passes."""
    card, tolerance = engines("card"), 1e-10 if precision == "f64" else 1e-5
    solutions = []
    for one in (cpu, card):
        field = GaugeField.hot(dims, seed=4, engine=one)
        source = ColourField(field, 0, precision)
        source.gaussian(seed=5, stream=2, step=3, draw=7)
        (x,), _, way = check_solve(field, source, 0.5, [0.0], tolerance, precision)
        solutions.append(x)
    assert way == met
    assert np.allclose(*solutions, rtol=0, atol=10 * tolerance * np.abs(solutions[0]).max())
    limits = card.card.limits
    try:
        card.card.limits = limits._replace(shared_bytes=0)
        (x,), _, way = check_solve(field, source, 0.5, [0.0], tolerance, precision)
    finally:
        card.card.limits = limits
    assert way == "cg_streamed"
    assert np.array_equal(x, solutions[1])


def test_each_chain_of_a_grid_is_solved_for_itself(engine):
    """Three chains of a lattice in one launch, with links, sources and ends of their own."""
    dims, chains = (4, 4, 4, 2), 3
    together = CudaGrid(engine, dims, "f64", chains)
    alone = engine.grid(dims, "f64")
    big = {name: together.new(name) for name in ("links", "colours")}
    x = together.new("colours")
    expected = []

    def wanted(n):
        return Iterations(np.zeros(1), diagonal=0.25, parity=0, target2=1e-12 * 10**n, most=500, every=10, since=0)

    for n in range(chains):
        small = {name: alone.new(name) for name in ("links", "colours")}
        alone.set_hot(small["links"], n, 1, 2)
        alone.gaussian(small["colours"], 0, n, 2, 3, 4)
        for name, buffer in small.items():
            size = len(buffer.memory)
            engine.card.copy(big[name].memory[n * size : (n + 1) * size], buffer.memory)
        operator, y = alone.staggered(), alone.new("colours")
        operator.refresh(small["links"], "f64")
        solver = operator.solver(1)
        solver.begin(small["colours"], False)
        did = solver.iterate([y], wanted(n))
        expected.append((did, engine.card.read(y.memory)))
    operator = together.staggered()
    operator.refresh(big["links"], "f64")
    solver = operator.solver(1)
    for n in range(chains):
        together.clear(x)
        solver.begin(big["colours"], False)
        done = solver.iterate_chains([x], wanted(n))
        did, y = expected[n]
        assert done[n] == did
        assert np.array_equal(engine.card.read(x.memory)[n * len(y) : (n + 1) * len(y)], y)


def test_the_way_of_a_solve_follows_the_card():
    hopper = CardLimits(multiprocessors=132, shared_bytes=227 << 10, clusters=True)
    ampere, turing = CardLimits(108, 163 << 10, False), CardLimits(68, 64 << 10, False)

    def met(limits, dims, precision="f64", chains=1):
        way = way_of(limits, math.prod(dims) // 2, precision, chains)
        return way.kernel.removeprefix("cg_"), way.blocks, way.warps

    assert met(hopper, (8, 8, 8, 4)) == ("cluster", 8, 4)
    assert met(hopper, (8, 8, 8, 4), "f32") == ("cluster", 8, 4)
    assert met(hopper, (8, 8, 8, 8)) == ("resident", 32, 2)
    assert met(hopper, (16, 16, 16, 8)) == ("resident", 128, 4)
    assert met(hopper, (16, 16, 16, 16), "f32") == ("resident", 128, 8)
    assert met(hopper, (16, 16, 16, 8), chains=2) == ("streamed", 64, 8)
    assert met(hopper, (32, 32, 32, 32)) == ("streamed", 264, 8)
    assert met(ampere, (8, 8, 8, 4)) == ("resident", 32, 1)
    assert met(ampere, (12, 12, 12, 4)) == ("resident", 54, 2)
    assert met(turing, (8, 8, 8, 4)) == ("resident", 32, 1)
    assert met(turing, (12, 12, 12, 4)) == ("streamed", 14, 8)
    with pytest.raises(PlacementError, match="300 chains"):
        met(hopper, (32, 32, 32, 32), chains=300)


SEAS = {
    "four flavours": FermionSpec(flavors=(4,), masses=(0.3,), mixed_precision=True, noise_vectors=1),
    "two flavours": FermionSpec(flavors=(2,), masses=(0.3,), noise_vectors=1),
}


@pytest.mark.parametrize("name", SEAS)
def test_chains_with_sea_quarks(engine, cpu, name):
    spec = ChainSpec(
        dims=(4, 4, 4, 2), beta=5.0, algorithm="rhmc", start="cold", hmc=HmcSpec(n_steps=3), fermions=SEAS[name]
    )
    here, there = (Chain(spec, engine=x) for x in (cpu, engine))
    for n in range(3):
        one, other = (chain.update(adapting=n < 1) for chain in (here, there))
        assert one.accepted == other.accepted
        assert one.delta_h == pytest.approx(other.delta_h, abs=1e-6)
    assert here.measure().condensate == pytest.approx(there.measure().condensate, rel=1e-6)


def test_a_lattice_that_is_too_large_is_refused(engine):
    with pytest.raises(PlacementError, match="2\\^29"):
        engine.grid((256, 256, 256, 256), "f64")


class DriverError(RuntimeError):
    """As CuPy's errors of the driver are."""


class LostCupy:
    """CuPy on a card that vanishes when memory is asked for."""

    class cuda:  # noqa: N801
        class Device(contextlib.nullcontext):
            compute_capability = "90"

        class Stream(contextlib.nullcontext):
            def __init__(self, *, non_blocking):
                super().__init__()

        runtime = SimpleNamespace(CUDARuntimeError=DriverError)
        driver = SimpleNamespace(CUDADriverError=DriverError)
        memory = SimpleNamespace(OutOfMemoryError=MemoryError)

    @staticmethod
    def zeros(count, kind):
        raise DriverError("cudaErrorDevicesUnavailable")


def test_a_card_that_vanishes_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", LostCupy)
    with pytest.raises(DeviceLostError, match=r"(?s)cuda:2.*DevicesUnavailable.*hint: .*checkpoints"):
        CupyCard(2).zeros(8, "f8")


def test_without_cupy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("metalforge.native.cuda.engine.find_spec", lambda name: None)
    with pytest.raises(PlacementError, match=r"(?s)cuda:3.*metalforge\[cuda\]"):
        cuda_engine(3)
