"""Two journals with evidence, as they were written: one that establishes its number, and one that does not."""

from pathlib import Path

import pytest

from metalforge.campaign.report.result import result_of, summary_of
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import Record

ESTABLISHED = Path(__file__).with_name("campaign-v1-established.jsonl")
NOT = Path(__file__).with_name("campaign-v1-not-established.jsonl")
OLD = Path(__file__).with_name("campaign-v1.jsonl")


def read(path):
    state = fold(read_journal(path, Record).records)
    return state, summary_of(state, result_of(state))


@pytest.mark.parametrize(
    ("path", "digest", "updates"),
    [
        (ESTABLISHED, "650620d4ba060099baf7f3ff7f02099ac6286f07fdcc45dc59fbeea86a01b4d4", 4150),
        (NOT, "45c16e5bb52c913a2c8fcf706fd71066ddfd166cd4a15df96189b9dd991f2c75", 680),
    ],
)
def test_rows_decisions_and_looks_are_as_they_were_written(path, digest, updates):
    state, _ = read(path)
    assert (state.digest(), state.trajectories) == (digest, updates)
    assert all(look.evidence for look in state.estimates)


def test_a_verdict_that_was_established_stays_so_with_its_number():
    state, found = read(ESTABLISHED)
    assert [look.established for look in state.estimates].index(True) == len(state.estimates) - 1
    assert found.established
    assert not found.recomputed
    assert found.beta_c.reason is None
    assert (found.beta_c.value, found.beta_c.error) == (
        pytest.approx(5.0900301, abs=1e-6),
        pytest.approx(0.0072828, rel=1e-3),
    )
    assert all(item.holds for item in found.evidence)


def test_one_that_was_not_says_what_it_lacks():
    _, found = read(NOT)
    assert not found.established
    assert [item.name for item in found.evidence if not item.holds] == [
        "points visited",
        "chains at the peak",
        "effective samples",
        "independent blocks",
    ]
    assert found.beta_c.reason


def test_a_journal_from_before_there_was_evidence_is_marked_as_judged_now():
    state, found = read(OLD)
    assert found.recomputed
    assert not any(look.evidence for look in state.estimates)
