"""The worker's answers where they are used: in a real solver."""

import numpy as np
import pytest

from metalforge.conductor.features import SCHEMA, ChainContext
from metalforge.conductor.heuristics import cg_iterations, check_interval
from metalforge.conductor.layouts import GPU_PREP_11
from metalforge.conductor.questions import ComingTrajectory, HeadQuestion
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.worker import Worker
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.field import GaugeField
from metalforge.lattice.sea import FermionSpec
from metalforge.lattice.solvers import cg
from metalforge.lattice.staggered import ColourField, StaggeredOperator
from metalforge.reservoir.generate import make_esn

DIMS, BETA, MASS = (4, 4, 4, 2), 5.0, 0.1


def conductor(units=32):
    rng = np.random.default_rng(1)
    w_out = 0.01 * rng.normal(size=(GPU_PREP_11.width, units)).astype(np.float32)
    bias = np.full(GPU_PREP_11.width, 0.3, np.float32)
    made = make_esn(units, len(SCHEMA), seed=1, dtype=np.float32, features=SCHEMA)
    return NetworkConductor(made.with_readout(w_out, bias, heads=GPU_PREP_11))


@pytest.fixture(scope="module")
def operator():
    links = GaugeField.hot((4, 4, 4, 4), seed=1, threads=1)
    links.heatbath(5.5, seed=1, stream=0, step=1)
    return StaggeredOperator(links, 0.01)


def solved(operator, **options):
    source, out = ColourField(operator, 0, "f64"), ColourField(operator, 0, "f64")
    source.gaussian(seed=1, stream=0, step=0, draw=5 << 28)
    info = cg(operator, source, out, tolerance=1e-10, max_iterations=5000, **options)
    return out.to_host(), info


@pytest.mark.parametrize(("predicted", "interval"), [(150.0, 20), (None, 10), (400.0, 10), (3000.0, 5)])
def test_a_prediction_sets_how_often_a_real_solve_is_looked_at_and_changes_no_bit_of_it(operator, predicted, interval):
    plain, _ = solved(operator)
    watched, info = solved(operator, check_interval=check_interval(predicted))
    assert np.array_equal(plain, watched)
    assert set(np.diff([0, *(iteration for iteration, _ in info.history)])[:-1]) == {interval}


def test_the_workers_prediction_goes_into_the_solver_of_a_dynamical_chain():
    sea = FermionSpec(flavors=(4,), masses=(MASS,), tolerance=1e-8, force_tolerance=1e-6)
    hmc = HmcSpec(tau=0.3, n_steps=3, integrator="leapfrog")
    spec = ChainSpec(dims=DIMS, beta=BETA, algorithm="hmc", seed=1, start="hot", hmc=hmc, fermions=sea)
    plain, watched = Chain(spec, threads=1), Chain(spec, threads=1)
    context = ChainContext(beta=BETA, dims=DIMS, mass=MASS, flavors=4, algorithm="hmc", tau=hmc.tau)
    coming = ComingTrajectory(phase="warmup", n_steps=hmc.n_steps)
    baseline = float(cg_iterations(int(np.prod(DIMS)), MASS))
    with Worker(conductor()) as worker:
        worker.begin("c", context)
        answer = worker.ask(HeadQuestion(head="cg_estimate", chain="c", of=coming, baseline=baseline)).get()
    seen = []

    def watch(iteration, residual):
        seen.append(iteration)
        return check_interval(answer.value)

    inverter = watched.sea.inverter
    inverter.watch, inverter.check_interval = watch, check_interval(answer.value)
    for chain in (plain, watched):
        chain.update(accept_always=True)
    assert np.array_equal(plain.field.to_links(), watched.field.to_links())
    assert answer.value == 213  # the formula: the head has no pairs yet
    assert {iteration % 10 for iteration in seen} == {0}
    assert len(seen) >= inverter.solves > 0
