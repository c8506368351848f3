import pytest

from metalforge.core import BenchRow, Measured, SpecError, best_of, find_suites

RATE = Measured(value=4.0, unit="GB/s", how="test")


def test_a_row_needs_a_peer_or_a_ceiling():
    with pytest.raises(ValueError, match="ceiling"):
        BenchRow(name="alone", value=RATE)
    row = BenchRow(name="ours", value=RATE, peer=0.5 * RATE, ceiling=4 * RATE)
    assert (row.ratio, row.fraction) == (2.0, 0.25)


def test_best_of_counts_calls_after_the_first():
    calls = []
    assert 0 < best_of(lambda: calls.append(1), repeats=2, minimum_s=1e-4) < 1e-2
    assert len(calls) > 2


def test_suites_are_found_above_and_run(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    suite = tmp_path / "benchmarks" / "tiny"
    suite.mkdir(parents=True)
    (tmp_path / "benchmarks" / "empty").mkdir()
    (suite / "bench_one.py").write_text(
        "from metalforge.core import BenchRow, Measured\n"
        "def rows():\n"
        "    q = Measured(value=1.0, unit='1/s', how='test')\n"
        "    yield BenchRow(name='one', value=q, peer=q)\n"
    )
    suites = find_suites(suite)
    assert list(suites) == ["tiny"]
    assert [row.name for row in suites["tiny"].rows()] == ["one"]


def test_outside_a_source_tree_it_says_where_benchmarks_live(tmp_path):
    with pytest.raises(SpecError, match="source tree"):
        find_suites(tmp_path)
