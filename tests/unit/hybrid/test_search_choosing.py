"""Phases 2 and 3: the front, budgets, int4 on the emulator, files that give the same network, learning on."""

import msgspec
import numpy as np
import pytest

from metalforge.core.errors import PlacementError, SpecError
from metalforge.core.quantities import Modelled
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task, loss, refit
from metalforge.hybrid.learning import DeviceNetwork
from metalforge.hybrid.search import Parameters, SearchBudget, Space, front, search_network, search_task
from metalforge.hybrid.search.candidates import Candidate, baselines, lagged
from metalforge.hybrid.search.choosing import Point, choose, finalists, fine_tune, on_chip, price
from metalforge.hybrid.search.study import FinishedTrial, StudyResult, run_study
from metalforge.reservoir.files import load_weights
from metalforge.reservoir.metrics import nrmse
from metalforge.substrates.npu import EmulatedDevice, wire
from metalforge.substrates.npu.costs import cost
from metalforge.substrates.profiles import profile

PUBLISHED, CLAIMED = profile("akd1000-published"), profile("akd1000-claimed")
POINT = Parameters(
    units=60,
    spectral_radius=0.9,
    leak=1.0,
    input_scaling=0.1,
    bias_scaling=0.3,
    connectivity=0.2,
    activation="tanh",
    ridge=1e-4,
)


@pytest.fixture(scope="module")
def study(narma):
    return run_study(narma, trials=24, space=Space(units=(20, 60, 20), activation=("tanh",)), batch=12)


def fitted(point, task):
    candidate = Candidate(point, task, 1)
    candidate.climb()
    candidate.climb()
    return candidate.weights()


def a_point(error, seconds, joules):
    return Point(
        parameters=POINT,
        precision="W4A8",
        error=error,
        latency=Modelled(value=seconds, unit="s", profile="p"),
        energy=Modelled(value=joules, unit="J", profile="p"),
    )


def test_the_front_is_what_nothing_beats():
    rng = np.random.default_rng(1)
    values = rng.integers(1, 6, (60, 3)).astype(float)
    found = front([a_point(*row) for row in values])
    kept = {(p.error, p.latency.value, p.energy.value) for p in found}
    wanted = set()
    for row in values:
        beaten = np.any(np.all(values <= row, axis=1) & np.any(values < row, axis=1))
        if not beaten:
            wanted.add(tuple(row))
    assert kept == wanted
    assert len(found) == len(kept)


@pytest.mark.parametrize("precision", ["W4A4", "W4A16"])
def test_prices_are_those_of_the_program(narma, precision):
    chip, esn = on_chip(a_point(0.3, 1.0, 1.0), fitted(POINT, narma), narma, precision, PUBLISHED, 0.1)
    rows = int(precision[3:]) // 4
    wanted = [cost(program, rows, PUBLISHED) for program in esn.programs.programs]
    assert chip.latency.value == pytest.approx(sum(c.latency.value for c in wanted))
    assert chip.energy.value == pytest.approx(sum(c.energy.value for c in wanted))
    latency, energy = price(POINT.units, 1, precision, PUBLISHED)
    assert latency.value == pytest.approx(chip.latency.value, rel=0.02)  # W_in may be on the host
    assert (latency.profile, energy.unit) == ("akd1000-published", "J")


def test_claimed_prices_are_flat():
    assert price(40, 1, "W4A4", CLAIMED)[0].value == pytest.approx(54e-6)
    assert price(200, 1, "W4A16", CLAIMED)[0].value == pytest.approx(4 * 54e-6)


def test_int4_with_refit_is_the_hybrid_network_with_refit(narma):
    reservoir = fitted(POINT, narma)
    chip, _ = on_chip(a_point(0.3, 1.0, 1.0), reservoir, narma, "W4A8", PUBLISHED, 0.1)
    esn = HybridEsn.from_weights(reservoir, calibration=narma.training.inputs)
    esn = esn.with_hardware_linear(EmulatedDevice(), precision="W4A8")
    errors = [loss(refit(esn, narma.training, ridge=POINT.ridge * f), narma.validation) for f in (1.0, 1e2, 1e4)]
    assert chip.error_int4 == pytest.approx(min(errors), rel=1e-4)


def test_candidates_beyond_the_budget_are_left_out(study, narma):
    dear = price(60, 1, "W4A4", PUBLISHED)[0].value
    picked = finalists(study, narma, PUBLISHED, SearchBudget(), 5)
    assert len(picked) == 5
    assert picked[0].error == study.best.error
    cheap = finalists(study, narma, PUBLISHED, SearchBudget(latency_s=dear), 50)
    assert {p.parameters.units for p in cheap} <= {20, 40, 60}
    with pytest.raises(PlacementError, match="650 us"):
        finalists(study, narma, PUBLISHED, SearchBudget(latency_s=1e-4), 5)
    with pytest.raises(PlacementError, match="budget"):
        finalists(study, narma, PUBLISHED, SearchBudget(energy_j=1e-9), 5)
    with pytest.raises(SpecError, match="`latency_s`"):
        SearchBudget(latency_s=-1.0)


def test_a_budget_in_time_is_a_limit_on_activation_bits(study, narma):
    tight = choose(study, narma, CLAIMED, seed=1, budget=SearchBudget(latency_s=1.2e-4), count=2, tolerance=0.0)
    assert {f.precision for f in tight.finalists} <= {"W4A4", "W4A8"}
    assert all(f.latency.value <= 1.2e-4 for f in tight.finalists)
    loose = choose(study, narma, CLAIMED, seed=1, count=2, tolerance=100.0)
    assert {f.precision for f in loose.finalists} == {"W4A4"}  # the cheapest is within such a tolerance
    assert all(f.within_tolerance for f in loose.finalists)


def test_the_least_int4_error_is_chosen(study, narma):
    choice = choose(study, narma, PUBLISHED, seed=1, count=3, tolerance=0.2)
    assert choice.best.error_int4 == min(f.error_int4 for f in choice.finalists)
    assert choice.within_tolerance
    for f in choice.finalists:
        assert f.within_tolerance == (f.error_int4 <= 1.2 * f.error)


def test_nothing_within_the_tolerance_is_said(study, narma):
    choice = choose(study, narma, CLAIMED, seed=1, count=1, tolerance=-0.99)
    assert not choice.within_tolerance
    assert choice.best.error_int4 == min(f.error_int4 for f in choice.finalists)


def test_a_study_without_a_whole_candidate_has_no_best(narma, study):
    empty = StudyResult("narma10", [FinishedTrial(number=0, parameters=POINT, error=None)], study.seconds, 1)
    with pytest.raises(SpecError, match="no candidate"):
        finalists(empty, narma, PUBLISHED, SearchBudget(), 3)


def test_a_search_leaves_files_that_give_the_same_network(tmp_path):
    found = search_network(
        "narma10",
        trials=24,
        space=Space(units=(60, 80, 20), activation=("tanh",), leak=(0.8, 1.0), input_scaling=(0.02, 0.1)),
        finalists=2,
        out=tmp_path / "deployed",
    )
    report = found.report
    names = {path.name for path in found.files}
    assert names == {"weights.safetensors", "reservoir.mfp", "report.json", "pareto.png", "pareto.svg"}
    assert all(path.stat().st_size for path in found.files)
    assert (tmp_path / "deployed" / "pareto.png").read_bytes().startswith(b"\x89PNG")
    task = search_task("narma10")
    weights = load_weights(tmp_path / "deployed" / "weights.safetensors", check_stability=False)
    esn = HybridEsn.from_weights(weights, calibration=task.training.inputs)
    esn = esn.with_hardware_linear(EmulatedDevice(), precision=report.precision)
    assert loss(esn, task.test) == pytest.approx(report.best.error_int4, rel=1e-4)
    program = wire.load(tmp_path / "deployed" / "reservoir.mfp")
    assert program.fingerprint() == esn.programs.programs[0].fingerprint()
    assert ("task", "narma10") in program.provenance
    assert msgspec.json.decode((tmp_path / "deployed" / "report.json").read_bytes())["best"]["latency"] == {
        "source": "modelled",
        "value": report.best.latency.value,
        "unit": "s",
        "profile": "akd1000-published",
    }
    # Held-out data, beside a baseline: even a short search over small networks beats a line on lags.
    assert report.best.error < report.baselines.linear_on_lags
    assert report.candidates == 24


def test_baselines_are_fitted_on_training_and_scored_on_test(narma):
    found = baselines(narma)
    assert 0.3 < found.linear_on_lags < 0.45  # NARMA10's linear part, as the literature has it
    assert 0.1 < found.default_reservoir < found.linear_on_lags
    x = lagged(narma.test.inputs, 2)
    assert x.shape == (8, 350, 3)
    assert np.array_equal(x[:, 5, 2], narma.test.inputs[:, 3, 0])
    assert not x[:, 0, 1:].any()


def test_a_centred_readout_takes_off_what_rounding_adds(narma):
    _, chip = on_chip(a_point(0.3, 1.0, 1.0), fitted(POINT, narma), narma, "W4A8", PUBLISHED, 0.1)
    features = narma.training.counted(chip.states(narma.training.inputs)).astype(float)
    options = {"readout": "W4A16", "calibration": narma.training.inputs}
    plain = DeviceNetwork(chip.weights, EmulatedDevice(), **options)
    centred = DeviceNetwork(chip.weights, EmulatedDevice(), centre=features.mean(axis=0), **options)
    wanted = plain.master()(features)
    assert abs(np.mean(centred.read(features) - wanted)) < 1e-2 * abs(np.mean(plain.read(features) - wanted))
    u = narma.training.inputs[0, 0]
    once = centred.forward(u).output
    assert not np.allclose(plain.forward(u).output, once)
    assert centred.verify()


def test_learning_on_the_device_follows_a_drift(narma):
    _, chip = on_chip(a_point(0.3, 1.0, 1.0), fitted(POINT, narma), narma, "W4A8", CLAIMED, 0.1)

    def drifted(task, series):
        return Task(
            inputs=task.inputs[:series],
            targets=(2 * task.targets[:series] + 1).astype(np.float32),
            washout=task.washout,
        )

    stream, held_out = drifted(narma.validation, 2), drifted(narma.test, 4)
    done, tuned = fine_tune(chip, POINT, narma.training, stream, held_out, CLAIMED, forgetting=0.99)
    assert done.learning.steps == 2 * 350
    assert done.learning.pushes > 0
    assert done.error_after < 0.8 * done.error_before
    assert done.learning.device.profile == "akd1000-claimed"
    said = held_out.counted(chip.states(held_out.inputs)) @ tuned.w_out.T + tuned.out_bias
    assert nrmse(held_out.counted(held_out.targets), said) == pytest.approx(done.error_after, abs=0.1)
