"""The runner of experiments lists them, runs them and writes their pages."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from experiments import EXPERIMENTS, find_experiment
from experiments.protocol import Figure, Result
from metalforge.core.errors import UnknownNameError

ROOT = Path(__file__).parents[3]


def called(*words):
    return subprocess.run(
        [sys.executable, "-m", "experiments", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_runner_lists_runs_and_writes_pages(tmp_path):
    listed = json.loads(called("list", "--json").stdout)
    assert {one["name"] for one in listed} == set(EXPERIMENTS)
    unknown = called("run", "nothing")
    assert (unknown.returncode, "known: coverage" in unknown.stderr) == (2, True)
    place, data = str(tmp_path / "page.md"), str(tmp_path / "none.jsonl")
    page = called("page", "coverage", place, "--quick", "--shard", "table", "--from", data)
    assert page.returncode == 0, page.stderr
    assert EXPERIMENTS["coverage"].question in (tmp_path / "page.md").read_text()


def test_unknown_experiments_are_named():
    assert set(EXPERIMENTS) >= {"coverage", "faults", "steering"}
    assert all(isinstance(e.question, str) and e.question.endswith("?") for e in EXPERIMENTS.values())
    with pytest.raises(UnknownNameError, match="005"):
        find_experiment("005")


def test_cells_are_numbers_in_json_and_text_in_a_table():
    plain, ends = Figure(0.125, ".2f"), Figure(0.5, ".1f", 0.25, 0.75)
    result = Result([{"name": "a", "n": 3, "plain": plain, "ends": ends}])
    assert result.lines == [("name", "n", "plain", "ends"), ("a", "3", "0.12", "0.5 (0.2 .. 0.8)")]
    cells = msgspec.json.decode(msgspec.json.encode(result.table))[0]
    assert cells["plain"] == {"value": 0.125, "form": ".2f"}
    assert (cells["n"], cells["ends"]["low"], cells["ends"]["high"]) == (3, 0.25, 0.75)
    assert len(Result([]).lines) == 1
