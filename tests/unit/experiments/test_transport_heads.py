"""Heads for D* and eta*: what they learn of windows, what they begin with, and what they lose without it."""

import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from experiments.markdown import made_page
from experiments.plasma_heads.baselines import StateCurve, state_baselines, two_numbers
from experiments.plasma_heads.corpus import PlasmaCorpus
from experiments.plasma_heads.evaluation import (
    Gauss,
    evaluate_transport,
    parts_of,
    progress_of,
    weighed_with,
)
from experiments.plasma_heads.study import transport_tables
from experiments.plasma_heads.training import (
    RIDGES,
    ROUTES,
    begin_at,
    heads_of,
    inputs_of,
    labels_of,
    ridge_by_point,
    said_on,
    train_transport,
)
from metalforge.conductor.plasma import HEADS, SCHEMA, SETTLED, HeadStop, said_of, shipped_transport
from metalforge.core.errors import SpecError
from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec
from reference.command_line import call, study
from reference.made_up_plasmas import made_corpus


@pytest.fixture(scope="module")
def corpus():
    return made_corpus()


@pytest.fixture(scope="module")
def trained(corpus):
    return train_transport(corpus.part("train"))


@pytest.fixture(scope="module")
def found(corpus, trained):
    return evaluate_transport(corpus, trained, routes=("f32-software",))


def test_heads_find_what_stokes_einstein_leaves_out(found):
    study = found.study
    eta = next(s for s in study.scores if (s.task, s.head, s.route) == ("T1", "transport_eta", "f32-software"))
    assert eta.skill.value > 0.2
    assert eta.points == 6
    rivals = {b.baseline: b.rms for b in study.baselines if (b.task, b.head) == ("T1", "transport_eta")}
    assert set(rivals) == {"b3 window", "b3 window, fitted", "b4 Stokes-Einstein", "b5 weighed", "b6 currents"}
    assert eta.baseline == pytest.approx(min(rivals.values()))
    known = {b.baseline for b in study.baselines if b.task == "T2"}
    assert {"b1 formula", "b2 state curve"} <= known


def test_controls_lose_the_skill(found):
    skill = {(s.task, s.head): s.skill.value for s in found.study.scores if s.route == "f32-software"}
    for head in HEADS:
        assert skill["T1 shuffled", head] < 0
        assert skill["T1 foreign, own label", head] < 0
    # What is read is the window: against the label of the run that it is of a foreign one is as good as any.
    assert skill["T1 foreign, its label", "transport_eta"] > 0


def test_a_readout_begins_at_stokes_einstein(corpus):
    """With an endless penalty nothing but the constant is learned, and that is b4 of the features."""
    runs = corpus.part("train")
    x = np.array([inputs_of(run)[SETTLED:].mean(axis=0) for run in runs])
    start = begin_at(1, x.shape[1])
    names = [feature.name for feature in SCHEMA.features]
    raw = {n: x[:, names.index(n)] * SCHEMA.features[names.index(n)].scale for n in ("msd_0.4", "msd_40")}
    np.testing.assert_allclose(x @ start, raw["msd_0.4"] - raw["msd_40"])
    readout, fit = ridge_by_point(x, labels_of(runs)[:, 1], [run.entry.place for run in runs], start)
    assert fit.ridge in RIDGES
    off = readout(x)[:, 0] - labels_of(runs)[:, 1]
    assert fit.noise > np.sqrt(np.mean(off**2))  # what was left out is not known better than what was fitted
    assert readout.w_out.shape == (1, len(SCHEMA))


def test_both_heads_are_one_pass_on_the_device(corpus, trained):
    inputs = [inputs_of(run) for run in corpus.part("test")[:3]]
    software = said_of(trained[0], inputs)
    np.testing.assert_allclose(said_on("npu-w8a8", trained[0], corpus.part("train"), inputs), software, atol=0.05)
    np.testing.assert_allclose(said_on("npu-w4a8-refit", trained[0], corpus.part("train"), inputs), software, atol=0.2)
    with pytest.raises(SpecError, match="route"):
        said_on("nowhere", trained[0], corpus.part("train"), inputs)


def test_the_state_curve_goes_through_smooth_labels(corpus):
    train, test = corpus.part("train"), corpus.part("test")
    rule = state_baselines(train, 0, known=True)["b2 state curve"]
    assert np.abs([rule(run) - labels_of([run])[0, 0] for run in test]).max() < 0.08
    curve = StateCurve.through(train, 0)
    assert curve(50.0, 2.0) > curve(200.0, 2.0)
    assert math.isfinite(two_numbers(train, 1)(test[0]))


def test_what_an_evaluation_shows(found):
    page = made_page("Heads", transport_tables(found), "a command")
    assert "two-numbers" in page
    assert "Made by `a command`" in page
    for rule in ("jackknife", "formula", "head"):
        assert any(stop.rule == rule for stop in found.stops)
    assert found.trusted("transport_eta") == next(
        s.trusted for s in found.study.scores if (s.task, s.head) == ("T1", "transport_eta")
    )


def test_a_corpus_without_test_runs_or_with_shared_points_is_refused(corpus):
    train, test = corpus.part("train"), corpus.part("test")
    with pytest.raises(SpecError, match="others to test"):
        parts_of(PlasmaCorpus(grid="x", records=train))
    moved = replace(test[0], entry=msgspec.structs.replace(train[0].entry, part="test"))
    with pytest.raises(SpecError, match="share state points"):
        parts_of(PlasmaCorpus(grid="x", records=(*train, *test, moved)))


def test_weighing_in_the_head_narrows_the_error(corpus):
    value, error = progress_of(corpus.part("test")[0])
    both, narrower = weighed_with(Gauss(float(value[-1]) + 0.1, 0.05), value, error)
    assert (narrower < error).all()
    assert (narrower < 0.05).all()
    assert ((both - value) > 0).any()


def test_weights_of_another_layout_are_refused(corpus):
    from metalforge.conductor.shipped import shipped_weights

    with pytest.raises(SpecError):
        heads_of(shipped_weights(), corpus.part("train"))


def small_run(particles=226, **more):
    spec = PlasmaSpec(gamma=400.0, kappa=3.0, particles=particles)
    return PlasmaRun(spec, PlasmaJob(warmup=0, time=60, **more), threads=1)


def test_heads_do_not_act_on_runs_they_were_not_tested_on():
    stop = HeadStop([small_run(173, until_error=0.1)], 0.1)
    assert stop.why_not is not None
    assert stop.readings is None
    assert stop.weighed([]) is None
    scores = shipped_transport()
    if not all(scores.trusted(head) for head in HEADS):
        assert "no skill" in stop.why_not
    assert "173" in (scores.study.tested_on.lacks(3.0, 0.3, 173) or "")


def test_a_watched_run_is_the_same_run(found, trained):
    """Heads read a window as it goes, and change no number of the run."""
    study = msgspec.to_builtins(found)
    study["study"]["tested_on"] = {"kappa": [2.0, 3.0], "ratio": [0.1, 0.9], "particles": [226], "window": 50.0}
    for score in study["study"]["scores"]:
        score["trusted"] = score["task"] == "T1"
    plain, watched = small_run(), small_run(until_error=0.5)
    stop = HeadStop([watched], 0.5, trained[0], msgspec.convert(study, type(found)))
    assert stop.why_not is None
    for run in (plain, watched):
        run.run(enough=lambda runs: False)
    for name, column in plain.series.items():
        np.testing.assert_array_equal(watched.series[name], column)
    for one, two in zip(plain.correlations.segments(), watched.correlations.segments(), strict=True):
        np.testing.assert_array_equal(one, two)
    assert stop.readings is not None
    assert np.isfinite(stop.readings).all()
    diffusion, viscosity = stop.weighed([watched])
    assert diffusion.error > 0
    assert 0 < viscosity.error < viscosity.mean
    assert not stop([watched])  # six blocks are no whole segment


def test_the_verbs_train_and_judge_a_corpus_of_plasmas(corpus, tmp_path):
    corpus.save(tmp_path / "corpus.h5")
    layout = ("--corpus", "corpus.h5", "--layout", "plasma-2")
    made = json.loads(study("heads", "train", *layout, "--out", "h.safetensors", "--json", cwd=tmp_path).stdout)
    assert [head["name"] for head in made["heads"]] == list(HEADS)
    assert made["provenance"]["corpus_sha256"] == corpus.sha256
    options = ("--weights", "h.safetensors", "--table", "table.md", "--json")
    judged = json.loads(study("heads", "evaluate", *layout, *options, cwd=tmp_path).stdout)
    routes = {score["route"] for score in judged["study"]["scores"] if score["task"] == "T1"}
    assert routes == {*ROUTES, "two-numbers"}
    assert "## When to stop" in (tmp_path / "table.md").read_text()


def test_heads_want_a_run_that_ends_by_its_error(tmp_path):
    run = ("plasma", "run", "--gamma", "400", "--kappa", "3", "--particles", "172", "--heads")
    assert "--until-error 0.05" in call(*run, cwd=tmp_path, code=2).stderr
