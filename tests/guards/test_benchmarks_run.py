"""Benchmark suites of seconds run from end to end, each work once: what they import and call is there."""

import sys
from pathlib import Path

import pytest

from benchmarks import rows as benchmark

ROOT = Path(__file__).parents[2]
QUICK = ("conductor", "hybrid", "native", "npu")


@pytest.mark.parametrize("name", QUICK)
def test_a_suite_runs(monkeypatch, name):
    monkeypatch.setattr(benchmark, "seconds_of", lambda work, minimum_s: (work(), 1e-6)[1])
    # `metalforge bench` puts the repository on the path of modules, but not the tests.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place).resolve() != ROOT / "tests"])
    for name_of_module in [one for one in sys.modules if one.partition(".")[0] == "reference"]:
        monkeypatch.delitem(sys.modules, name_of_module)
    rows = list(benchmark.find_suites(ROOT)[name].rows())
    assert len(rows) >= 4
    assert all(row.value.value > 0 for row in rows)
