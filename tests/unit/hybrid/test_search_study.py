"""Phase 1: tasks that share no data, candidates that mean what they say, studies that go on from a file."""

import sqlite3

import numpy as np
import optuna
import pytest

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from metalforge.hybrid import Task
from metalforge.hybrid.search import Parameters, Space, build, run_study, search_task
from metalforge.hybrid.search.candidates import Candidate, HeadSums, head_parts
from metalforge.hybrid.search.tasks import SearchTask
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.weights import spectral_radius
from reference.esn import trajectory

SMALL = Space(units=(20, 40, 10), connectivity=(0.2, 1.0))
POINT = Parameters(
    units=30,
    spectral_radius=0.85,
    leak=0.9,
    input_scaling=0.1,
    bias_scaling=0.2,
    connectivity=0.2,
    activation="tanh",
    ridge=1e-4,
)


@pytest.mark.parametrize(("name", "horizon", "heads"), [("mackey-glass", 84, 1), ("lorenz", 25, 3)])
def test_forecasts_are_the_series_itself_later(name, horizon, heads):
    task = search_task(name)
    assert (task.inputs, task.outputs, len(task.layout.names)) == (heads, heads, heads)
    for part in (task.training, task.validation, task.test):
        for i in range(heads):
            now, later = part.inputs[0, horizon:, i], part.targets[0, :-horizon, i]
            assert np.corrcoef(now, later)[0, 1] == pytest.approx(1.0, abs=1e-6)
    # No value of one part is seen in another: the last target of a part comes before the first input of the next.
    assert not np.isin(task.validation.inputs[..., 0], task.training.targets[..., 0]).any()


def test_the_same_seed_gives_the_same_task_and_another_another(narma):
    again, other = search_task("narma10"), search_task("narma10", seed=2)
    assert np.array_equal(narma.test.inputs, again.test.inputs)
    assert not np.array_equal(narma.test.inputs, other.test.inputs)
    assert abs(float(narma.training.inputs.mean())) < 1e-5
    assert float(narma.training.targets.std()) == pytest.approx(1.0, abs=1e-5)
    assert len({x.tobytes() for p in (narma.training, narma.validation, narma.test) for x in p.inputs}) == 20
    with pytest.raises(UnknownNameError, match="narma10"):
        search_task("narma")


def test_a_candidate_has_its_spectral_radius_and_lies_on_the_int4_grid():
    weights = build(POINT, 2, seed=3)
    assert spectral_radius(weights.w_res) == pytest.approx(0.85, rel=1e-5)
    row_scale = np.abs(weights.w_res).max(axis=1, keepdims=True) / 7
    grid = weights.w_res / row_scale
    assert np.allclose(grid, np.rint(grid), atol=1e-4)
    assert np.abs(weights.bias).max() <= 0.2
    assert np.array_equal(weights.w_res, build(POINT, 2, seed=3).w_res)
    assert not np.array_equal(weights.w_res, build(POINT, 2, seed=4).w_res)


def states_of(weights, series):
    return np.concatenate(trajectory(weights, series)[0][:, 100:])


def test_the_error_is_that_of_numpy_and_the_normal_equations(narma):
    candidate = Candidate(POINT, narma, 1)
    candidate.climb()
    error = candidate.climb()
    weights = build(POINT, 1, seed=1)
    x, y = states_of(weights, narma.training.inputs), narma.training.targets[:, 100:].reshape(-1, 1).astype(float)
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    w = np.linalg.solve(xc.T @ xc + POINT.ridge * np.eye(30), xc.T @ yc)
    predicted = (states_of(weights, narma.validation.inputs) - x.mean(axis=0)) @ w + y.mean(axis=0)
    truth = narma.validation.targets[:, 100:].reshape(-1, 1).astype(float)
    assert error == pytest.approx(nrmse(truth, predicted), rel=1e-3)
    assert len(candidate.errors) == 2
    assert candidate.errors[0] != candidate.errors[1]  # the first rung saw a quarter of the series


def test_a_state_that_leaves_the_finite_numbers_is_an_infinite_error(narma):
    wild = Parameters(**{**_fields(POINT), "activation": "relu", "spectral_radius": 4.0})
    assert Candidate(wild, narma, 1).finish() == float("inf")


def _fields(point):
    return {name: getattr(point, name) for name in point.__struct_fields__}


def test_split_heads_read_their_own_units_and_solve_their_own_ridge():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(200, 10)), rng.normal(size=(200, 3))
    parts = head_parts("split", 10, 3)
    assert [i for part, _ in parts for i in range(part.start, part.stop)] == list(range(10))
    sums = HeadSums(parts)
    sums.add(x[:90], y[:90])
    sums.add(x[90:], y[90:])
    found = sums.readout(0.5)
    w_out, out_bias = found.w_out, found.out_bias
    for head, (units, _) in enumerate(parts):
        own = x[:, units] - x[:, units].mean(axis=0)
        wanted = np.linalg.solve(own.T @ own + 0.5 * np.eye(own.shape[1]), own.T @ (y[:, head] - y[:, head].mean()))
        assert np.allclose(w_out[head, units], wanted)
        others = np.delete(w_out[head], np.arange(units.start, units.stop))
        assert not others.any()
    assert np.allclose(out_bias, y.mean(axis=0) - w_out @ x.mean(axis=0))
    assert head_parts("shared", 10, 3) == [(slice(0, 10), slice(0, 3))]


def test_a_study_is_the_same_for_any_number_of_threads_and_prunes(narma, capfd):
    one = run_study(narma, trials=120, space=SMALL, threads=1, batch=24)
    two = run_study(narma, trials=120, space=SMALL, threads=2, batch=24)
    assert one.finished == two.finished
    pruned = [trial for trial in one.finished if trial.error is None]
    assert 0 < len(pruned) < 70
    assert one.best.error == min(t.error for t in one.finished if t.error is not None)
    assert Candidate(one.best.parameters, narma, 1).finish() == one.best.error
    assert capfd.readouterr() == ("", "")  # not a line of Optuna's


def test_a_study_goes_on_from_its_file(narma, tmp_path):
    file = tmp_path / "study.sqlite"
    first = run_study(narma, trials=20, space=SMALL, storage=file, batch=10)
    more = run_study(narma, trials=30, space=SMALL, storage=file, batch=10)
    assert (first.new, more.new, len(more.finished)) == (20, 10, 30)
    assert [t.parameters for t in more.finished[:20]] == [t.parameters for t in first.finished]
    assert [t.error for t in more.finished[:20]] == pytest.approx([t.error for t in first.finished])
    # What comes new is new: the sampler does not draw its first points again.
    assert not {t.parameters.leak for t in more.finished[20:]} & {t.parameters.leak for t in first.finished}
    assert more.seconds.value > first.seconds.value
    done = run_study(narma, trials=30, space=SMALL, storage=file)
    assert done.new == 0
    assert done.best == more.best


def test_an_interrupted_study_keeps_what_was_told(narma, tmp_path):
    file = tmp_path / "study.sqlite"

    def stop(result):
        if len(result.finished) >= 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(narma, trials=1000, space=SMALL, storage=file, batch=8, progress=stop)
    after = run_study(narma, trials=20, space=SMALL, storage=file, batch=8)
    assert (len(after.finished), after.new) == (20, 4)


def test_an_interrupt_while_the_file_is_written_loses_and_doubles_nothing(narma, tmp_path, monkeypatch):
    file, add, calls = tmp_path / "study.sqlite", optuna.study.Study.add_trial, []

    def interrupted(study, trial):
        calls.append(trial.params["leak"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(study, trial)

    monkeypatch.setattr(optuna.study.Study, "add_trial", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_study(narma, trials=24, space=SMALL, storage=file, batch=8)
    monkeypatch.undo()
    kept = run_study(narma, trials=8, space=SMALL, storage=file)
    assert kept.new == 0
    assert [t.parameters.leak for t in kept.finished] == [*calls[:3], *calls[4:]]
    assert len(kept.finished) == len({t.parameters for t in kept.finished}) == 8


def test_a_file_of_another_search_is_refused(narma, tmp_path):
    file = tmp_path / "study.sqlite"
    run_study(narma, trials=2, space=SMALL, storage=file)
    with pytest.raises(SpecError, match=r"another kind.*narma10/1 .*lorenz/1"):
        run_study(search_task("lorenz"), trials=4, space=SMALL, storage=file)
    with pytest.raises(SpecError, match="space:"):
        run_study(narma, trials=4, space=Space(units=(20, 30, 10)), storage=file)
    with pytest.raises(SpecError, match="seed: 1 there, 2 here"):
        run_study(narma, trials=4, space=SMALL, seed=2, storage=file)


def test_what_is_no_study_is_refused(narma, tmp_path):
    text = tmp_path / "text.sqlite"
    text.write_text("this is not a database, whatever its name says, and it is long enough to be read as a header")
    with pytest.raises(SpecError, match="SQLite"):
        run_study(narma, trials=1, space=SMALL, storage=text)
    with pytest.raises(SpecError, match="no folder"):
        run_study(narma, trials=1, space=SMALL, storage=tmp_path / "nowhere" / "study.sqlite")
    foreign = tmp_path / "foreign.sqlite"
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    storage = optuna.storages.RDBStorage(f"sqlite:///{foreign}")
    optuna.create_study(storage=storage, study_name="theirs")
    storage.remove_session()
    storage.engine.dispose()
    optuna.logging.set_verbosity(level)
    with pytest.raises(SpecError, match="Optuna studies"):
        run_study(narma, trials=1, space=SMALL, storage=foreign)
    with sqlite3.connect(foreign) as there:
        assert there.execute("select study_name from studies").fetchall() == [("theirs",)]
    there.close()


def test_wrong_bounds_are_told():
    with pytest.raises(SpecError, match=r"`leak`.*range"):
        Space(leak=(0.9, 0.1))
    with pytest.raises(SpecError, match="`ridge`"):
        Space(ridge=(0.0, 1.0))
    with pytest.raises(SpecError, match=r"`units`.*step"):
        Space(units=(40, 20, 10))
    with pytest.raises(SpecError, match=r"`activation`.*different"):
        Space(activation=())
    with pytest.raises(SpecError, match="unknown activations"):
        Space(activation=("sine",))
    with pytest.raises(SpecError, match="`trials`"):
        run_study(search_task("narma10"), trials=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": Task(inputs=np.zeros((2, 9, 3)), targets=np.array([0, 1]))}, "classes"),
        ({"validation": Task(inputs=np.zeros((2, 9, 2)), targets=np.zeros((2, 9, 3)))}, "validation"),
        ({"layout": HeadLayout(name="l", heads=(HeadSpec(name="x"),))}, "layout"),
        ({"features": FeatureSchema(name="f", features=(Feature(name="u"),))}, "features"),
    ],
)
def test_a_task_whose_parts_do_not_agree_is_told(changes, message):
    part = Task(inputs=np.zeros((2, 9, 3)), targets=np.zeros((2, 9, 3)))
    features = FeatureSchema(name="f", features=tuple(Feature(name=name) for name in "uvw"))
    layout = HeadLayout(name="l", heads=tuple(HeadSpec(name=name) for name in "xyz"))
    fields = {"training": part, "validation": part, "test": part, "features": features, "layout": layout}
    SearchTask(name="mine", seed=1, **fields)
    with pytest.raises(SpecError, match=message):
        SearchTask(name="mine", seed=1, **(fields | changes))
