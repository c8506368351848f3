"""Journals of real processes that are killed, or reach a limit of the system."""

import random
import subprocess
import sys
from pathlib import Path

import msgspec

from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import read_journal
from reference.journaling import contents_of, numbered

TESTS = Path(__file__).parents[2]


def start(verb, directory):
    command = [sys.executable, "-m", "reference.journaling", verb, str(directory)]
    return subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True)


def test_no_acknowledged_record_is_lost_by_kill_9(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal.open(path, mode="create").close()
    moments = random.Random(20)
    before = 0
    for _ in range(5):
        with start("for-ever", tmp_path) as child:
            # The lock of the one before, killed and not closed, is no obstacle; nor is a torn line.
            assert child.stdout.readline().split() == ["from", str(before)]
            said = [int(child.stdout.readline()) for _ in range(moments.randrange(1, 400))]
            child.kill()
            rest = child.stdout.read().split("\n")[:-1]  # said before it died; the last may be half a number
        said += [int(n) for n in rest]
        assert said == list(range(before, before + len(said)))
        found = read_journal(path)
        assert len(found) in (said[-1] + 1, said[-1] + 2)  # one may be written and not yet said
        assert found == [numbered(i) for i in range(len(found))]
        before = len(found)


def test_a_real_limit_leaves_a_whole_journal_that_goes_on(tmp_path):
    with start("up-to-a-limit", tmp_path) as child:
        refused, message = msgspec.json.decode(child.stdout.read())
    assert "File too large" in message
    assert "ulimit -f" in message
    contents = contents_of(tmp_path / "journal.jsonl")
    assert contents.torn is None
    assert contents.records == [numbered(i) for i in range(refused + 1)]
    assert contents.offsets[refused] <= 1000 < contents.end.offset
