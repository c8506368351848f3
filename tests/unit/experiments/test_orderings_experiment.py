"""Experiment 018 runs every strategy on the same campaign and reports what its journal says."""

import msgspec
import pytest

from experiments import orderings
from experiments.orderings import SEQUENTIAL, SINGLE, strategies
from experiments.protocol import Settings, quiet, rows_of
from metalforge.campaign.running import campaign as running
from reference.untaught_heads import untaught_heads

SETTINGS = Settings(quick=True)


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "load_heads", untaught_heads)
        patch.setattr(orderings, "QUICK", orderings.QUICK._replace(seconds=0.4))
        yield orderings.run(SETTINGS, quiet)


def test_all_strategies_run_the_same_campaign():
    specs = strategies(SETTINGS)
    assert list(specs) == [SEQUENTIAL, "A", "B", "C", "D", "E", SINGLE, "auto"]
    assert len({spec.seed for spec in specs.values()}) == 1
    assert len({spec.budget for spec in specs.values()}) == 1
    assert len({spec.theory.volumes[0] for spec in specs.values()}) == 1
    assert [name for name, spec in specs.items() if len(spec.theory.volumes) > 1] == ["B"]
    assert [name for name, spec in specs.items() if spec.running.producers == 1] == [SEQUENTIAL]
    full = strategies(Settings())["B"].theory
    assert full.volumes == ((8, 8, 8, 4), (4, 4, 4, 4))


def test_every_strategy_has_its_rows(result):
    for name in strategies(SETTINGS):
        metrics = {row.metric for row in rows_of(result.rows, approach=name)}
        assert {"updates_per_s", "updates_per_core_s", "effective_samples_per_s", "checks"} <= metrics
        assert "utilisation cpu:0" in metrics
    for row in result.rows:
        assert row.low <= row.value <= row.high
    (own,) = rows_of(result.rows, approach=SEQUENTIAL, metric="updates_per_core_s")
    assert own.gap == 0
    assert own.value > 0


def test_a_core_second_is_at_most_a_second_of_each_producer(result):
    for name, producers in ((SEQUENTIAL, 1), ("C", 2)):
        (wall,) = rows_of(result.rows, approach=name, metric="updates_per_s")
        (core,) = rows_of(result.rows, approach=name, metric="updates_per_core_s")
        assert wall.value <= 1.05 * producers * core.value


def test_checks_are_where_they_belong(result):
    made = {row.approach: row.value for row in rows_of(result.rows, metric="checks")}
    assert made["D"] > 0
    assert made[SINGLE] > 0
    assert made["C"] == made[SEQUENTIAL] == made["B"] == made["E"] == 0
    answers = {asked: passed for asked, _, passed in result.checks}
    assert answers["D checks every configuration"]
    assert answers["A checks flagged configurations only"]
    (double,) = rows_of(result.rows, approach="D", metric="largest_drift")
    (single,) = rows_of(result.rows, approach=SINGLE, metric="largest_drift")
    assert double.value < 1e-14 < 1e-10 < single.value < 1e-6
    assert (double.precision, single.precision) == ("f64", "f32")


def test_energies_say_their_source_and_emulation_is_no_cost(result):
    energies = {row.metric for row in result.rows if row.metric.startswith("energy_J")}
    assert energies <= {"energy_J npu-emulated modelled", "energy_J cpu:0 measured"}
    said = " ".join(result.words)
    assert "in no ordering's cost" in said
    assert ("energy of cpu:0, measured" in said) != ("energy of cpu:0: unknown, " in said)
    assert not rows_of(result.rows, approach="D", metric="emulation_s host"), "D has no screen"


def test_the_table_has_a_line_for_each_and_auto_says_its_choice(result):
    head, *lines = result.table
    assert len(lines) == len(strategies(SETTINGS))
    assert {len(line) for line in lines} == {len(head)}
    assert lines[-1][0] in ("auto (A)", "auto (C)", "auto (D)")
    assert any(line.startswith("auto took ") for line in result.words)
    assert msgspec.json.decode(msgspec.json.encode(result.rows))[0]["approach"] == SEQUENTIAL
