"""Another steerer from a record on: what is exact, what is modelled, and that the own steerer gives what it gave."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.counterfactual import counterfactual
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.lines import LineFormat
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Assigned, BlockDone, Record
from metalforge.core.errors import SpecError, UnknownNameError
from reference.dashboard_pages import GOLDEN, LINES
from reference.small_campaigns import ROUNDS


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rounds") / "run"
    with Campaign.open(ROUNDS, directory) as campaign:
        campaign.run()
    return directory / JOURNAL


def records_of(journal):
    return read_journal(journal, Record).records


def visits_after(journal, at):
    return [record for record in records_of(journal)[at:] if isinstance(record, Assigned)]


@pytest.mark.parametrize("at", [1, 12, 40])
def test_the_own_steerer_decides_as_it_did_until_outcomes_are_modelled(rounds, at):
    """Deterministic: what was known at a decision is what the journal has before it."""
    until = len(records_of(rounds))
    own = counterfactual(rounds, at, until, ROUNDS.steering.steerer)
    assert [visit.was for visit in own.visits] == [visit.beta for visit in visits_after(rounds, at)]
    exact = [visit for visit in own.visits if visit.exact]
    assert exact
    assert [visit.beta for visit in exact] == [visit.was for visit in exact]
    assert own.own_again == sum(visit.beta == visit.was for visit in own.visits) >= len(exact)


def test_decisions_are_exact_until_the_first_modelled_outcome_is_told(rounds):
    found = counterfactual(rounds, 12, len(records_of(rounds)), "gaps")
    assert (found.at, found.steerer, found.own) == (12, "gaps", ROUNDS.steering.steerer)
    exact = [visit.exact for visit in found.visits]
    assert exact == sorted(exact, reverse=True)
    after = records_of(rounds)[12:]
    first_end = next(n for n, record in enumerate(after) if isinstance(record, BlockDone) and record.done)
    assert exact.count(True) >= sum(isinstance(record, Assigned) for record in after[:first_end]) > 0
    assert {visit.by for visit in found.visits if visit.beta is not None} == {"gaps"}
    assert found.visits[0].beta != found.visits[0].was
    assert all((visit.chi is None) == (visit.error is None) for visit in found.visits)
    assert any(visit.chi for visit in found.visits)


def test_errors_go_with_the_effective_samples_that_visits_carry_to_the_peak():
    own = counterfactual(GOLDEN, 1, len(LINES), "gaussian-process").volumes[0]
    other = counterfactual(GOLDEN, 1, len(LINES), "uniform").volumes[0]
    assert own.beta_c == other.beta_c
    assert own.was == other.was > 10
    assert other.other < own.other  # an even grid puts less where the peak is
    for found in (own, other):
        assert found.other_error == pytest.approx(found.error * np.sqrt(found.was / found.other))


def test_the_end_has_nothing_after_it_and_what_is_wrong_is_said(rounds, tmp_path):
    until = len(records_of(rounds))
    assert counterfactual(rounds, until, until, "uniform").visits == ()
    with pytest.raises(SpecError, match="from 1 to"):
        counterfactual(rounds, until + 1, until, "uniform")
    with pytest.raises(UnknownNameError, match="steerer"):
        counterfactual(rounds, 1, until, "nobody")
    form = LineFormat(Record)
    ladder = [
        msgspec.structs.replace(r, betas=(r.beta, r.beta + 0.1)) if isinstance(r, Assigned) else r
        for r in records_of(rounds)[:40]
    ]
    (tmp_path / JOURNAL).write_bytes(b"".join(form.line(n, form.body(record)) for n, record in enumerate(ladder)))
    with pytest.raises(SpecError, match="exchange couplings"):
        counterfactual(tmp_path / JOURNAL, 1, len(ladder), "uniform")
