"""Benchmark suites of seconds run from end to end, each work once: what they import and call is there."""

from pathlib import Path

import pytest

from metalforge.core import benchmark

ROOT = Path(__file__).parents[2]
QUICK = ("conductor", "hybrid", "native", "npu")


@pytest.mark.parametrize("name", QUICK)
def test_a_suite_runs(monkeypatch, name):
    monkeypatch.setattr(benchmark, "seconds_of", lambda work, minimum_s: (work(), 1e-6)[1])
    rows = list(benchmark.find_suites(ROOT)[name].rows())
    assert len(rows) >= 4
    assert all(row.value.value > 0 for row in rows)
