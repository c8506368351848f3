"""The live page's server: it follows journals that grow, shows what was, and goes on past damage."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import numpy as np
import pytest

from metalforge import campaign as campaigns
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import JournalFollower, read_journal
from metalforge.core.errors import SpecError
from metalforge.dashboard.following import Followed
from metalforge.dashboard.helpers import answer
from metalforge.dashboard.opening import open_page
from metalforge.dashboard.payloads import chain_sent, encoded, state_sent, thinned, transition_sent
from reference.dashboard_pages import GOLDEN, LINES, QUOTED, RECORDS, campaign, records_in, served

DAMAGES = [
    (lambda data: data[:20_000] + b"X" + data[20_001:], "damaged", True),
    (lambda data: b"not a journal\n" * 3, "journal", False),
    (lambda data: b"", "empty", False),
    (lambda data: b"".join(LINES[1:9]), "does not follow", False),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    return campaign(tmp_path_factory.mktemp("growing"), LINES[:40])


@pytest.fixture(scope="module")
def page(tmp_path_factory, finished, growing):
    """One page on all campaigns of this file: a finished one, one that grows, and those that are damaged."""
    hurt = [campaign(tmp_path_factory.mktemp("hurt"), [change(b"".join(LINES))]) for change, _, _ in DAMAGES]
    with served(finished, growing, *hurt) as found:
        found.enter()
        yield found


def test_a_journal_is_followed_while_it_grows(page, growing):
    begun = records_in(LINES[:40])
    with page.events("/events?campaign=1") as following:
        assert following("campaigns")[1]["records"] in (0, begun)
        state = following("state")
        assert state["at"] == begun
        with (growing / "journal.jsonl").open("ab") as stream:
            stream.write(b"".join(LINES[40:]) + b'{"crc":"half')
        while state["at"] < RECORDS:
            state = following("state")
    assert state["view"]["status"] == "finished"
    assert state["systems"][0]["found"] == f"\u03b2c = {QUOTED}"
    assert state["problem"] == ""


@pytest.mark.parametrize("at", [12, 100, RECORDS])
def test_the_state_at_a_record_is_the_fold_of_those_before_it(finished, at):
    sent = json.loads(answer(str(finished), at, state_sent))
    state = fold(read_journal(GOLDEN)[:at])
    assert (sent["at"], sent["view"]["trajectories"], sent["clock"]) == (at, state.trajectories, state.last_at)
    assert [c["id"] for c in sent["view"]["chains"]] == list(state.chains)


def test_going_back_and_forth_in_time_gives_the_same(finished):
    first = [answer(str(finished), at, state_sent) for at in (50, 200)]
    assert [answer(str(finished), at, state_sent) for at in (50, 200)] == first
    assert b'"c0000"' in answer(str(finished), 50, chain_sent, "c0000")


def test_page_and_report_have_one_source_for_the_transition(finished):
    sent = json.loads(answer(str(finished), RECORDS, transition_sent))
    found = campaigns.load(finished)
    figure = found.spec.theory.report.figure(found)
    assert sent["figure"] == json.loads(encoded(figure))
    assert sent["summary"]["result"] == json.loads(msgspec.json.encode(found.summary["result"]))
    assert sent["figure"]["systems"][0]["result"] == found.value


def test_decisions_carry_the_record_that_they_stand_in(page):
    _, lines = page.json("/decisions")
    assert len(lines) == page.json("/state")[1]["decided"]
    records = read_journal(GOLDEN)
    assert all(records[line["at"] - 1].reason.startswith(line["reason"].split(";")[0]) for line in lines)


@pytest.mark.parametrize(("number", "word", "left"), [(n, word, left) for n, (_, word, left) in enumerate(DAMAGES, 2)])
def test_a_damaged_journal_is_a_line_on_the_page_and_the_others_go_on(page, number, word, left):
    with page.events() as following:
        lines = following("campaigns")
        while not lines[number]["problem"] or not lines[0]["records"]:
            lines = following("campaigns")
    assert word in lines[number]["problem"]
    assert lines[0]["found"] == f"\u03b2c = {QUOTED}"
    status, answer = page.json(f"/state?campaign={number}")
    assert (status == 200) is left
    assert word in (answer["problem"] if left else answer["error"])
    assert page.json("/state")[1]["problem"] == ""


def test_a_journal_that_is_cut_or_taken_away_is_said(tmp_path):
    there = campaign(tmp_path / "run")
    followed = Followed(there)
    followed.advance()
    campaign(there, LINES[:50])
    followed.advance()
    assert "cut" in followed.problem
    assert followed.state.finished is not None
    (there / "journal.jsonl").unlink()
    followed.advance()
    assert "no journal" in followed.problem
    campaign(there)
    followed.advance()
    assert followed.problem == ""


def test_a_follower_stops_where_it_is_told_and_hands_over_what_it_reads(finished):
    follower, taken = JournalFollower(finished / "journal.jsonl"), []
    assert follower.poll(taken.append, 20) == []
    assert (len(taken), follower.poll(taken.append, 20), len(taken)) == (20, [], 20)
    assert [*taken, *follower.poll()] == read_journal(GOLDEN)


def test_thinning_keeps_every_jump():
    values = np.zeros(100_000)
    values[54_321] = 7.0
    first, low, high = thinned(values)
    assert len(first) <= 800
    assert (max(high), min(low)) == (7.0, 0.0)
    assert thinned(values[:5])[0] == [0, 1, 2, 3, 4]
    assert thinned(values[:0]) == ([], [], [])


def test_a_directory_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(SpecError, match="no such directory"):
        open_page([tmp_path / "none"])


def test_the_command_prints_how_it_is_opened_and_ends_with_ctrl_c(finished):
    command = [sys.executable, "-m", "metalforge", "dashboard", str(finished), "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}) as process:
        lines = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert "http://127.0.0.1:" in lines[0]
    assert "?token=" in lines[0]
    assert "ssh -L" in lines[1]
    assert (process.returncode, rest) == (0, "")
