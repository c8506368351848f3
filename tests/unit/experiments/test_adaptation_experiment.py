"""The adaptation experiment: learning beats doing nothing, costs follow the profile, and its rows hold together."""

import pytest

from experiments.adaptation import PROFILES, WAYS, run
from experiments.protocol import EXPERIMENTS, Settings, rows_of


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def result(told):
    return run(Settings(quick=True, seed=2), lambda done, total, what: told.append((done, total)))


def test_it_is_registered_and_says_how_far_it_is(result, told):
    assert EXPERIMENTS["adaptation"].run is run
    assert EXPERIMENTS["adaptation"].question.endswith("?")
    assert [done for done, _ in told] == list(range(len(told)))
    assert {total for _, total in told} == {len(told)}


def test_every_way_is_in_every_profile(result):
    for profile in PROFILES:
        for metric in ("nrmse", "steps_to_adapt", "modelled_seconds_to_adapt"):
            assert {row.approach for row in rows_of(result.rows, task=profile, metric=metric)} == set(WAYS)
    for row in result.rows:
        assert row.low <= row.value <= row.high
        assert row.gap == pytest.approx(row.value - row.reference)
    assert len(result.table) == 1 + len(PROFILES) * len(WAYS)


def test_learning_beats_both_baselines(result):
    def error(profile, way):
        (row,) = rows_of(result.rows, task=profile, metric="nrmse", approach=way)
        return row.value

    for profile in PROFILES:
        idle = min(error(profile, "none"), error(profile, "bias only"))
        for way in ("gradient", "least squares", "refit", "evolution"):
            assert error(profile, way) < idle
        assert error(profile, "refit") < 0.5 * idle
    assert all(passed for _, _, passed in result.checks)


def test_seconds_are_modelled_and_evolution_pays_for_its_updates(result):
    def seconds(profile, way):
        (row,) = rows_of(result.rows, task=profile, metric="modelled_seconds_to_adapt", approach=way)
        return row.value

    published, claimed = PROFILES
    for way in WAYS:
        assert seconds(published, way) > 3 * seconds(claimed, way)
    assert seconds(published, "evolution") > 20 * seconds(published, "refit")
    assert seconds(published, "none") == pytest.approx(seconds(published, "bias only"))  # the bias is the host's
    assert any("14 ms" in line for line in result.words)
    assert any("86 us" in line for line in result.words)


def test_drift_is_reported_with_its_false_alarms(result):
    rows = {row.approach: row for row in rows_of(result.rows, task="drift")}
    assert rows["false alarms"].value <= 0.25
    assert rows["missed"].value <= rows["false alarms"].value  # blind after an alarm, and only then
    assert 0 < rows["delay"].value < 100
