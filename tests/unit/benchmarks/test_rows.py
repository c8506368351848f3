import pytest

from benchmarks.rows import BenchRow, best_of, find_suites, rows_in_turns
from metalforge.core import Measured, SpecError

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


def test_rows_in_turns_alternate_and_their_ratio_is_of_one_round():
    order = []

    def turn(name, seconds):
        left = iter(seconds)
        return lambda: order.append(name) or next(left)

    drift = (9, 1, 2, 4, 8)  # the first round is not counted; then the machine becomes slower for all alike
    ours, theirs = turn("ours", drift), turn("theirs", [3 * s for s in drift])
    here, missing = rows_in_turns(
        "work", ours, {"peer": theirs, "absent": None}, ("floor", turn("floor", [0.5] * 5)),
        amount=6, unit="1/s", rounds=4,
    )  # fmt: skip
    assert order == ["ours", "floor", "theirs"] * 5
    assert (here.ratio, here.interval) == (pytest.approx(3), (pytest.approx(3), pytest.approx(3)))
    assert (here.value.value, here.fraction) == (2.0, pytest.approx(1 / 6))
    assert (missing.peer_name, missing.peer, missing.ratio, missing.interval) == ("absent", None, None, None)


def test_the_interval_of_a_ratio_and_of_its_inverse_agree():
    turns = (1.0, 2.0, 4.0, 3.0)
    row, other = (
        BenchRow(name="x", value=RATE, peer=RATE, turns=t) for t in (turns, tuple(1 / ratio for ratio in turns))
    )
    low, high = row.interval
    assert 0 < low < row.ratio < high
    assert other.interval == (pytest.approx(1 / high), pytest.approx(1 / low))


def test_suites_are_found_above_and_run(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    suite = tmp_path / "benchmarks" / "tiny"
    suite.mkdir(parents=True)
    (tmp_path / "benchmarks" / "empty").mkdir()
    (suite / "bench_one.py").write_text(
        "from benchmarks.rows import BenchRow\nfrom metalforge.core import Measured\n"
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
