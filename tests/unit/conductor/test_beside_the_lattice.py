"""The worker's answers where they are used: before a quenched phase, and in the callback of a real solver."""

import numpy as np
import pytest

from metalforge.conductor.heads_training import reservoir
from metalforge.conductor.intervals import build_on_check, check_interval
from metalforge.conductor.layouts import GPU_PREP_11
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.requests import PredictCgIterations, PredictQuenchedLength, SuggestParameters
from metalforge.conductor.worker import Worker
from metalforge.lattice.chain import Chain, ChainSpec, HmcSpec
from metalforge.lattice.colour import ColourField
from metalforge.lattice.fermions import FermionSpec
from metalforge.lattice.field import GaugeField
from metalforge.lattice.solvers import cg
from metalforge.lattice.staggered import StaggeredOperator

DIMS, BETA, MASS = (4, 4, 4, 2), 5.0, 0.1
LONG = 30.0


def conductor(units=32):
    rng = np.random.default_rng(1)
    w_out = 0.01 * rng.normal(size=(GPU_PREP_11.width, units)).astype(np.float32)
    bias = np.full(GPU_PREP_11.width, 0.3, np.float32)
    return NetworkConductor(reservoir(1, units=units).with_readout(w_out, bias, heads=GPU_PREP_11))


def test_predictions_fired_before_a_quenched_phase_cost_the_producer_nothing():
    """Measured by the worker's clock inside `get`, which is where a producer would be held up."""
    chain = Chain(ChainSpec(dims=DIMS, beta=BETA, seed=1, start="hot"), threads=1)
    questions = (
        PredictQuenchedLength(dims=DIMS, beta=BETA, low=4.5, high=5.5),
        SuggestParameters(dims=DIMS, beta=BETA),
        PredictCgIterations(dims=DIMS, beta=BETA, mass=MASS),
    )
    with Worker(conductor()) as worker:
        fired = [worker.ask(question, deadline_s=LONG) for question in questions]
        updates = 0
        while updates < 20 or not all(future.done() for future in fired):  # the phase is longer than the answers take
            chain.quenched_update()
            updates += 1
        collected = [future.get() for future in fired]
        pipelined = worker.statistics().stalled
        blocking = worker.ask(questions[0])
        blocking.get(timeout=LONG)
        after = worker.statistics().stalled
    assert [type(response.answer).__name__ for response in collected] == ["QuenchedLength", "Parameters", "Iterations"]
    assert [future.stalled_s for future in fired] == [0.0, 0.0, 0.0]
    assert pipelined.value == 0.0
    assert pipelined.how == "worker's clock, inside Future.get"
    assert after.value == blocking.stalled_s  # the only request that anybody waited for


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
    watched, info = solved(operator, check_interval=check_interval(predicted), on_check=build_on_check(predicted))
    assert np.array_equal(plain, watched)
    at = [0, *(iteration for iteration, _ in info.history)]
    steps = np.diff(at)
    assert steps[0] == interval
    assert info.iterations > 200  # past the first threshold, where an easy prediction has been outlived
    for began, step in zip(at, steps, strict=False):
        assert step == (min(interval, check_interval(began)) if began else interval)


def test_the_workers_prediction_goes_into_the_solver_of_a_dynamical_chain():
    sea = FermionSpec(flavors=(4,), masses=(MASS,), tolerance=1e-8, force_tolerance=1e-6)
    hmc = HmcSpec(tau=0.3, n_steps=3, integrator="leapfrog")
    spec = ChainSpec(dims=DIMS, beta=BETA, algorithm="hmc", seed=1, start="hot", hmc=hmc, fermions=sea)
    plain, watched = Chain(spec, threads=1), Chain(spec, threads=1)
    with Worker(conductor()) as worker:
        answer = worker.ask(PredictCgIterations(dims=DIMS, beta=BETA, mass=MASS)).get(timeout=LONG).answer
    seen = []
    follow = build_on_check(answer.per_solve)

    def watch(iteration, residual):
        seen.append(iteration)
        return follow(iteration, residual)

    inverter = watched.sea.inverter
    inverter.watch, inverter.check_interval = watch, check_interval(answer.per_solve)
    for chain in (plain, watched):
        chain.update(accept_always=True)
    assert np.array_equal(plain.field.to_links(), watched.field.to_links())
    assert answer.per_solve == 213  # the formula: the head has no pairs yet
    assert {iteration % 10 for iteration in seen} == {0}
    assert len(seen) >= inverter.solves > 0
