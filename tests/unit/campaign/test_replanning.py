"""Another steerer from a record on: what is exact, what is modelled, and that the own steerer gives what it gave."""

import json

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from metalforge.campaign.replanning import counterfactual
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Assigned, BlockDone
from metalforge.cli.main import assembled
from metalforge.core.errors import SpecError, UnknownNameError
from reference.dashboard_pages import GOLDEN, LINES
from reference.small_campaigns import PARTICLES, ROUNDS


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rounds") / "run"
    with Campaign.open(ROUNDS, directory) as campaign:
        campaign.run()
    return directory / JOURNAL


def records_of(journal):
    return read_journal(journal)


def visits_after(journal, at):
    return [record for record in records_of(journal)[at:] if isinstance(record, Assigned)]


@pytest.mark.parametrize("at", [1, 12, 40])
def test_the_own_steerer_decides_as_it_did_until_outcomes_are_modelled(rounds, at):
    """Deterministic: what was known at a decision is what the journal has before it."""
    until = len(records_of(rounds))
    own = counterfactual(rounds, at, until, ROUNDS.steering.steerer)
    assert [visit.was for visit in own.visits] == [visit.coordinate for visit in visits_after(rounds, at)]
    exact = [visit for visit in own.visits if visit.exact]
    assert exact
    assert [visit.coordinate for visit in exact] == [visit.was for visit in exact]
    assert own.own_again == sum(visit.coordinate == visit.was for visit in own.visits) >= len(exact)


def test_decisions_are_exact_until_the_first_modelled_outcome_is_told(rounds):
    found = counterfactual(rounds, 12, len(records_of(rounds)), "gaps")
    assert (found.at, found.steerer, found.own) == (12, "gaps", ROUNDS.steering.steerer)
    exact = [visit.exact for visit in found.visits]
    assert exact == sorted(exact, reverse=True)
    after = records_of(rounds)[12:]
    first_end = next(n for n, record in enumerate(after) if isinstance(record, BlockDone) and record.done)
    assert exact.count(True) >= sum(isinstance(record, Assigned) for record in after[:first_end]) > 0
    assert {visit.by for visit in found.visits if visit.coordinate is not None} == {"gaps"}
    assert found.visits[0].coordinate != found.visits[0].was
    assert all((visit.chi is None) == (visit.error is None) for visit in found.visits)
    assert any(visit.chi for visit in found.visits)


def test_errors_go_with_the_effective_samples_that_visits_carry_to_the_peak():
    own = counterfactual(GOLDEN, 1, len(LINES), "gaussian-process").systems[0]
    other = counterfactual(GOLDEN, 1, len(LINES), "uniform").systems[0]
    assert own.result == other.result
    assert own.was == other.was > 10
    assert other.other < own.other  # an even grid puts less where the peak is
    for found in (own, other):
        assert found.other_error == pytest.approx(found.error * np.sqrt(found.was / found.other))


def test_the_end_has_nothing_after_it_and_what_is_wrong_is_said(rounds):
    until = len(records_of(rounds))
    assert counterfactual(rounds, until, until, "uniform").visits == ()
    with pytest.raises(SpecError, match="from 1 to"):
        counterfactual(rounds, until + 1, until, "uniform")
    with pytest.raises(UnknownNameError, match="steerer"):
        counterfactual(rounds, 1, until, "nobody")


def test_particles_are_not_reweighted_and_that_is_said(tmp_path):
    with Campaign.open(msgspec.structs.replace(PARTICLES, budget=Budget(trajectories=20)), tmp_path / "run") as one:
        one.run()
    with pytest.raises(SpecError, match="cannot be reweighted"):
        counterfactual(tmp_path / "run" / JOURNAL, 1, None, "uniform")


def test_the_command_line_says_what_another_steerer_would_have_done(rounds):
    runner, directory = CliRunner(), str(rounds.parent)
    asked = ["replay", directory, "--steerer", "gaps", "--at", "12"]
    said = runner.invoke(assembled("replay"), asked)
    assert said.exit_code == 0, said.output
    assert "visits from record 12 on" in said.output
    assert "modelled" in said.output
    found = json.loads(runner.invoke(assembled("replay"), [*asked, "--json"]).stdout)
    assert (found["at"], found["steerer"]) == (12, "gaps")
    assert len(found["visits"]) == len(visits_after(rounds, 12))
    for wrong in (["--at", "3"], ["--steerer", "gaps", "--without", "heads"]):
        assert isinstance(runner.invoke(assembled("replay"), ["replay", directory, *wrong]).exception, SpecError)
