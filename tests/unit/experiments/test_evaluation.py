"""Scores of heads against baselines, end to end on made-up chains."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from experiments.heads.baselines import baselines_for
from experiments.heads.evaluation import evaluate, peak_study
from experiments.heads.predictions import ROUTES, predictions
from experiments.heads.study import HeadsEvaluation, LabelledCorpus, judge
from experiments.heads.training import label_rows, reservoir, train_heads
from experiments.heads.transition_fit import fit_curve, peaks_of, without
from metalforge.conductor.curves import transition_of
from metalforge.conductor.scores import skill_interval
from metalforge.conductor.shipped import CONDUCTOR_11, GPU_PREP_11, read_provenance
from metalforge.core.errors import SpecError
from reference.command_line import study
from reference.made_up_chains import chain, corpus, scan

LATTICES = ((4, 4, 4, 2), (8, 8, 8, 4), (12, 12, 12, 6))
NEARBY = (-0.4, -0.04, -0.02, 0.0, 0.02, 0.04, 0.4)


def made_up():
    """Three N_t, couplings about each transition, trajectories, and chains with a fault."""
    chains = []
    for k, dims in enumerate(LATTICES):
        middle = transition_of(dims[3], dims[0]).mean
        chains += scan([round(middle + b, 3) for b in NEARBY], dims=dims, first=100 * k)
        tests = [round(middle + b, 3) for b in (-0.3, -0.03, 0.01, 0.03)]
        chains += scan(tests, "test", dims=dims, first=100 * k + 50, seed=2027)
    moves = {"algorithm": "hmc", "warmup": 30, "updates": 80}
    chains += scan((4.8, 5.0, 5.2), first=400, **moves) + scan((4.9, 5.1), "test", first=450, seed=2027, **moves)
    for part, seed, first, betas in (("train", 2026, 500, (4.85, 5.3)), ("test", 2027, 550, (4.95, 5.25))):
        for i, beta in enumerate(betas):
            chains.append(
                chain(beta, stream=first + i, part=part, seed=seed, fault="wrong_beta", fault_from=200, fault_length=64)
            )
            chains[-1].series[:2, 200:264] += 0.2
    return corpus(*chains)


@pytest.fixture(scope="module")
def made():
    return made_up()


@pytest.fixture(scope="module")
def chains(made):
    return LabelledCorpus.of(made)


@pytest.fixture(scope="module")
def trained(chains):
    return train_heads(chains.lessons, weights=reservoir(1, units=48))[0]


def test_every_head_is_scored_on_every_route_against_its_strongest_baseline(trained, chains):
    scores = evaluate(trained, chains.lessons, chains.test)
    assert {s.route for s in scores} == set(ROUTES)
    heads = {s.name for s in scores}
    assert {"thermalization", "anomaly", "rejection", "deconfinement", "schedule", "quality"} <= heads
    assert len(scores) == len(heads) * len(ROUTES)
    for s in scores:
        assert s.low <= s.value <= s.high
        assert s.skill_low <= s.skill <= s.skill_high or s.baseline == s.value
        assert s.skill_low > 0 or not s.trusted
        assert s.clusters >= 2
        assert s.of == ("trajectories" if s.name == "rejection" else "sweeps")
    # One baseline for all routes: they differ in the network only.
    assert all(len({s.baseline for s in scores if s.name == name}) == 1 for name in heads)


def test_the_device_says_nearly_what_software_says(trained, chains):
    routes = ("f32-software", "npu-w8a8", "npu-w4a8-refit")
    said = {route: predictions(route, trained, chains.lessons, chains.test) for route in routes}
    for name in ("deconfinement", "thermalization"):
        exact = np.concatenate(said["f32-software"][name])
        for route, bound in (("npu-w8a8", 0.1), ("npu-w4a8-refit", 0.3)):
            found = np.concatenate(said[route][name])
            assert 0 < np.sqrt(np.mean((found - exact) ** 2)) < bound * max(exact.std(), 0.2), (name, route)


def test_a_head_that_repeats_the_truth_is_trusted_and_one_that_denies_it_is_not(trained, chains, monkeypatch):
    from experiments.heads import evaluation

    asked = ("anomaly", "rejection")

    def oracle(route, trained, train, test):
        flip = route == "npu-w8a8"
        return {
            name: [np.nan_to_num(1 - label_rows(e, name) if flip else label_rows(e, name)) for e in test]
            for name in asked
        }

    monkeypatch.setattr(evaluation, "predictions", oracle)
    heads = tuple(msgspec.structs.replace(head, trained=head.name in asked) for head in trained.heads.heads)
    only = replace(trained, heads=msgspec.structs.replace(trained.heads, heads=heads))
    for s in evaluate(only, chains.lessons, chains.test, routes=("f32-software", "npu-w8a8")):
        right = s.route == "f32-software"
        assert s.trusted == right
        assert (s.skill == 1) == right
        assert s.value == (0 if right else 1)


def test_training_and_test_chains_must_not_share_couplings(trained, chains):
    with pytest.raises(SpecError, match="share"):
        evaluate(trained, chains.train, chains.train)


def test_weights_without_heads_are_refused(made):
    with pytest.raises(SpecError, match="heads train"):
        judge(made, CONDUCTOR_11, reservoir(1, units=16), 1)


def test_intervals_draw_clusters():
    """Two clusters that disagree leave an interval as wide as they are apart, however many rows each has."""
    found = skill_interval([10.0, 90.0], [100.0, 100.0], [1000.0, 1000.0])
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == pytest.approx((0.1, 0.9))
    many = skill_interval([10.0, 90.0] * 50, [100.0] * 100, [1.0] * 100)
    assert many.high - many.low < 0.2
    with pytest.raises(SpecError, match="two"):
        skill_interval([1.0], [2.0], [1.0])


def test_baselines_know_training_chains_only(chains):
    train, test = chains.train, chains.test
    found = baselines_for("rejection", train, classes=True)
    usual = {"constant", "scaled coupling", "coupling on its lattice", "single feature"}
    assert set(found) == usual | {"last value", "published formula"}
    labels = np.concatenate([label_rows(e, "rejection") for e in train])
    moved = next(e for e in test if e.entry.algorithm == "hmc")
    assert found["constant"](moved)[0] == pytest.approx(np.nanmean(labels))
    running = found["last value"](moved)
    rejected = 1 - moved.chain.column("accepted")
    # The share at t is of the tests before t.
    assert running[0] == 0.5
    assert running[30] == pytest.approx((np.nansum(rejected[:30]) + 1) / (np.isfinite(rejected[:30]).sum() + 2))
    warm = {"MSER", "Geweke", "fixed length", "published formula"}
    assert set(baselines_for("thermalization", train, classes=True)) == usual | warm
    assert "plaquette band" in baselines_for("anomaly", train, classes=True)
    swept = next(e for e in test if e.entry.algorithm == "heatbath")
    order = baselines_for("deconfinement", train, classes=False)
    assert order["last value"](swept)[-1] == pytest.approx(swept.labels["deconfinement"][-1], abs=0.3)
    for head in ("next_run", "quenched_length", "phase_classify", "anomaly_detect"):
        said = baselines_for(head, train, classes=head.startswith(("phase", "anomaly")))["published formula"](swept)
        assert said.shape == swept.rows.shape
        assert np.isfinite(said).all()


def test_the_peak_is_asked_about_on_an_extent_that_was_left_out(chains):
    scores, apart = peak_study(chains.train, chains.test, chains.peaks, CONDUCTOR_11, routes=("f32-software",))
    (score,) = scores
    assert score.name == "beta_priority"
    assert [p.n_t for p in apart] == [2, 4, 6]
    assert all(p.head > 0 and p.curve > 0 and p.two_loop > 0 for p in apart)
    assert score.baseline_name in ("transition curve", "two-loop scaling")
    few = [peak for peak in chains.peaks if peak.dims[3] == 2]
    assert peak_study(chains.train, chains.test, few, CONDUCTOR_11) == ([], ())


def test_the_curve_goes_through_the_peaks_and_is_off_where_it_has_not_seen_one(made):
    peaks = peaks_of(made.part("train"))
    assert [p.dims for p in peaks] == list(LATTICES)
    curve = fit_curve(peaks, "made up")
    for peak in peaks:
        assert curve(peak.dims[3], peak.dims[0]).mean == pytest.approx(peak.beta, abs=4 * peak.error + 0.01)
    blind = without(peaks, 4, curve)
    assert blind(4, 8).error == curve.unit
    assert {one.n_t for one in blind.known} == {2, 6}
    with pytest.raises(SpecError, match="two"):
        fit_curve(peaks[:1], "one")


def test_the_command_line_fits_a_curve_and_heads(made, tmp_path):
    few = corpus(*(c for c in made.records if c.entry.dims[3] != 6))
    few.save(tmp_path / "corpus.h5")
    curve = json.loads(
        study("heads", "transition", "--corpus", "corpus.h5", "--out", "t.toml", "--json", cwd=tmp_path).stdout
    )
    assert [k["n_t"] for k in curve["curve"]["known"]] == [2, 4]
    line = ("train", "--corpus", "corpus.h5", "--out", "heads.safetensors", "--layout", "gpu-prep-11", "--json")
    fitted = json.loads(study("heads", *line, cwd=tmp_path).stdout)
    assert {h["name"] for h in fitted["heads"]} >= {"quenched_therm", "reject_predict", "quenched_length"}
    origin = read_provenance(tmp_path / "heads.safetensors")
    assert origin.corpus_sha256 == few.sha256
    assert fitted["provenance"]["command"] == origin.command
    missing = study("heads", "train", "--corpus", "absent", "--out", "x.safetensors", cwd=tmp_path, code=2)
    assert "absent" in missing.stderr


def fresh_chains(chains, seed=2029):
    return [replace(c, entry=msgspec.structs.replace(c.entry, seed=seed)) for c in chains]


def test_test_chains_may_come_from_elsewhere(made, tmp_path):
    other = corpus(*fresh_chains(made.records))
    found = made.tested_on(other)
    assert found.part("train") == made.part("train")
    assert {c.entry.seed for c in found.part("test")} == {2029}
    assert len(found.part("test")) == len(made.part("test"))
    (tmp_path / "corpus").mkdir()
    corpus(*made.part("train")).save(tmp_path / "corpus" / "c.h5")
    line = ("heads", "evaluate", "--corpus", "corpus", "--test", "corpus")
    none = study(*line, cwd=tmp_path, code=2)
    assert "test chains" in none.stderr
    assert "--part test" in none.stderr


def test_the_command_line_prints_the_records(made, tmp_path):
    few = corpus(*(c for c in made.records if c.entry.dims[3] != 6))
    corpus(*few.part("train")).save(tmp_path / "corpus.h5")
    corpus(*fresh_chains(few.part("test"))).save(tmp_path / "fresh.h5")
    study("heads", "train", "--corpus", "corpus.h5", "--out", "h.safetensors", "--layout", "gpu-prep-11", cwd=tmp_path)
    options = ("--corpus", "corpus.h5", "--test", "fresh.h5", "--weights", "h.safetensors", "--layout", "gpu-prep-11")
    said = study("heads", "evaluate", *options, "--table", "table.md", "--json", cwd=tmp_path)
    record = msgspec.json.decode(said.stdout, type=HeadsEvaluation)
    assert {s.name for s in record.heads} <= set(GPU_PREP_11.names)
    assert {kind.algorithm for kind in record.tested_on} == {"heatbath", "hmc"}
    assert all(kind.heads for kind in record.tested_on)
    page = (tmp_path / "table.md").read_text()
    assert (
        "`python -m experiments heads evaluate --corpus corpus.h5 --test fresh.h5 --weights h.safetensors --seed 1"
        in page
    )
    assert record.test_seeds == (2029,)
    assert "Test chains have seed 2029;" in page
    assert "## Heads\n" in page
