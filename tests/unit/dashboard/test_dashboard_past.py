"""Time travel: any record of a long journal, from states that are kept on the way."""

import json
from itertools import pairwise

import pytest

from metalforge.dashboard import following
from metalforge.dashboard.following import Followed, Past
from metalforge.dashboard.payloads import encoded, state_sent
from reference.made_journals import make_journal


@pytest.fixture(scope="module")
def long_one(tmp_path_factory):
    directory = tmp_path_factory.mktemp("long")
    return directory, make_journal(directory, 1.5, chains=12)


@pytest.fixture
def past(long_one, monkeypatch):
    monkeypatch.setattr(following, "SPACING", 20_000)
    monkeypatch.setattr(following, "MOST_KEPT", 8)
    return Past(long_one[0])


def told(followed):
    state = followed.state
    screened = {name: list(chain.screened) for name, chain in state.chains.items()}
    busy = {name: line.spans for name, line in state.timelines.items()}
    return encoded(state_sent(followed)), state.digest(), screened, busy, state.samples


def test_a_state_of_the_past_is_the_fold_of_the_records_before_it_wherever_one_comes_from(long_one, past):
    directory, records = long_one
    past.at(records)
    for at in (records // 2, records // 2 + 7, records - 1, 1, 40, records // 3, records):
        alone = Followed(directory)
        alone.advance(at, most=1 << 40)
        found = past.at(at)
        assert found.records == at
        assert told(found) == told(alone)
        assert found.decided == alone.decided


def test_as_many_states_are_kept_as_may_be_and_none_is_far_from_the_next(long_one, past):
    past.at(long_one[1])
    places = [0, *(one.place for one in past._kept), past._front.place]
    assert 4 <= len(past._kept) <= 8
    assert max(b - a for a, b in pairwise(places)) < 3 * past._spacing


def test_a_long_journal_is_read_in_slices_and_says_how_far_it_is(long_one):
    directory, records = long_one
    followed = Followed(directory)
    followed.advance(most=200_000)
    assert 0 < followed.records < records
    assert followed.behind
    assert "being read: 1" in followed.problem
    assert json.loads(encoded(state_sent(followed)))["at"] == followed.records
    while followed.behind:
        followed.advance(most=200_000)
    assert (followed.records, followed.problem) == (records, "")
