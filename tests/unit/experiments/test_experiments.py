"""The experiments run, say what they must, and their rows hold together."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from experiments import EXPERIMENTS, ResultRow, Settings, find_experiment
from experiments.parity import reservoirs
from experiments.phase_windows import cached_chains, phase_windows
from experiments.problems import PROBLEMS, QUICK_CORPUS
from experiments.protocol import quiet, rows_of
from metalforge.core.errors import UnknownNameError
from metalforge.reservoir.weights import spectral_radius

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METALFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def hybrid_tanh(cache):
    return find_experiment("004").run(Settings(quick=True), quiet)


def test_every_approach_is_on_every_task(hybrid_tanh):
    approaches = {"software", "last-layer", "two-rail", "A", "B", "C", "native"}
    for task in PROBLEMS:
        scored = [r for r in rows_of(hybrid_tanh.rows, task=task) if r.metric in ("accuracy", "nrmse")]
        assert approaches <= {r.approach for r in scored}
        assert {r.refit for r in scored if r.approach == "last-layer"} == {True, False}
        assert any(r.approach.startswith("baseline") for r in scored)


def test_rows_hold_together(hybrid_tanh):
    for row in hybrid_tanh.rows:
        assert row.low <= row.high
        assert row.low - 0.01 * abs(row.low) <= row.value <= row.high  # percentiles may miss the value by a hair
        if row.metric == "accuracy":
            assert row.low >= 0
            assert row.high <= 1
            assert row.gap == pytest.approx(row.reference - row.value)
        if row.metric == "nrmse":
            assert row.gap == pytest.approx(row.value - row.reference)
    for task in PROBLEMS:
        (reference,) = rows_of(hybrid_tanh.rows, task=task, approach="software", precision="f64", refit=False)
        assert reference.gap == 0


def test_json_rows_have_the_promised_keys(hybrid_tanh):
    row = msgspec.json.decode(msgspec.json.encode(hybrid_tanh.rows))[0]
    keys = ["task", "approach", "precision", "refit", "metric", "value", "low", "high", "reference", "gap"]
    assert list(row) == keys


def test_the_overhead_of_tanh_is_given_against_both_steps_and_says_what_is_measured(hybrid_tanh):
    told = {row.metric: row.value for row in rows_of(hybrid_tanh.rows, task="overhead")}
    assert told["claimed_step_us_modelled"] == pytest.approx(54)
    modelled = told["device_step_us_modelled"]
    assert modelled > 600
    for how in ("activation", "activation_by_calls"):
        tanh = told[f"{how}_us_measured"]
        assert 0 < tanh < 1000
        assert told[f"measured_{how}_percent_of_claimed_step"] == pytest.approx(100 * tanh / 54)
        assert told[f"measured_{how}_percent_of_modelled_device_step"] == pytest.approx(100 * tanh / modelled)
    shown = {line[3]: line[4] for line in hybrid_tanh.table if line[0] == "overhead"}
    assert set(shown) == set(told)
    assert all(("measured" in cell) == ("measured" in metric) for metric, cell in shown.items())
    assert all(("modelled" in cell) or ("measured" in cell) for cell in shown.values())


def test_wide_integers_follow_software_and_rectifiers_do_not(hybrid_tanh):
    for task in PROBLEMS:

        def divergence(approach, precision="W4A4", task=task):
            (row,) = rows_of(
                hybrid_tanh.rows, task=task, approach=approach, precision=precision, metric="state_divergence"
            )
            return row.value

        assert divergence("last-layer", "W12A12") < divergence("last-layer", "W8A8") < divergence("last-layer") < 0.5
        assert min(divergence(a) for a in ("A", "B", "C", "native")) > 0.5


def test_the_success_table_is_answered(hybrid_tanh):
    answers = {asked: passed for asked, _, passed in hybrid_tanh.checks}
    assert answers["negative input, last-layer: output < -0.1 for -1"]
    assert not answers["negative input, B: output < -0.1 for -1"]
    assert answers["a repeat gives the same bits"]
    assert not answers["phase accuracy, approach A refit: within 1 points of software"]
    assert answers["patterns: last-layer W8A8 unchanged within 0.5 points of f64 tanh"]


def test_parity_tells_the_factors_apart(cache):
    result = find_experiment("parity").run(Settings(quick=True), quiet)
    value = {(row.approach, row.precision): row.value for row in result.rows}
    assert len(value) == 12
    assert value["random, tanh", "f32"] - value["random, tanh", "int4"] < 0.05
    assert value["random, tanh", "f32"] > value["random, bounded_relu", "f32"] + 0.1
    assert any("spectral radius" in line for line in result.words)


def test_the_origins_matrix_is_as_it_was():
    networks = reservoirs(PROBLEMS["patterns"](1, True), 1)
    assert spectral_radius(networks["origin"].w_res) == pytest.approx(3.2, abs=0.3)
    assert spectral_radius(networks["designed"].w_res) == pytest.approx(0.9)
    assert networks["origin"].w_res.min() == 0


def test_labels_come_from_the_polyakov_loop_and_test_chains_are_others(cache):
    train, test = phase_windows(QUICK_CORPUS)
    assert train.inputs.shape[1:] == (QUICK_CORPUS.window, 3)
    assert len(set(QUICK_CORPUS.train) & set(QUICK_CORPUS.test)) == 0
    assert 0.1 < train.labels.mean() < 0.9
    by_chain = [test.labels[test.chain == c].mean() for c in range(len(QUICK_CORPUS.test))]
    assert by_chain[0] < by_chain[-1]  # couplings increase, and with them the deconfined share
    assert np.allclose(train.inputs.mean(axis=(0, 1)), 0, atol=1e-9)


def test_chains_are_made_once_and_again_when_their_file_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("METALFORGE_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr("experiments.phase_windows._run_chains", lambda spec: made.append(1) or np.arange(5.0))
    first = cached_chains(QUICK_CORPUS)
    assert np.array_equal(cached_chains(QUICK_CORPUS), first)
    assert len(made) == 1
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:40])
    assert np.array_equal(cached_chains(QUICK_CORPUS), first)
    assert len(made) == 2


def called(*words):
    return subprocess.run(
        [sys.executable, "-m", "experiments", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_runner_lists_runs_and_writes_pages(tmp_path):
    listed = json.loads(called("list", "--json").stdout)
    assert {one["name"] for one in listed} == set(EXPERIMENTS)
    unknown = called("run", "nothing")
    assert (unknown.returncode, "known: 004" in unknown.stderr) == (2, True)
    place, data = str(tmp_path / "page.md"), str(tmp_path / "none.jsonl")
    page = called("page", "coverage", place, "--quick", "--shard", "table", "--from", data)
    assert page.returncode == 0, page.stderr
    assert EXPERIMENTS["coverage"].question in (tmp_path / "page.md").read_text()


def test_unknown_experiments_are_named():
    assert set(EXPERIMENTS) >= {"004", "parity", "steering"}
    assert all(isinstance(e.question, str) and e.question.endswith("?") for e in EXPERIMENTS.values())
    with pytest.raises(UnknownNameError, match="005"):
        find_experiment("005")


def test_rows_are_strict():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"task": "a", "colour": 1}', type=ResultRow)
