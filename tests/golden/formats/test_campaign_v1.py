"""A journal of format 1, as it was written: it must be readable for ever, with the same content."""

from pathlib import Path

from metalforge.campaign.report.result import result_of
from metalforge.campaign.state import fold
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.records import Record

FILE = Path(__file__).with_name("campaign-v1.jsonl")
DIGEST = "356ca0f58724517482f3aed4ab37178e211606738d35be72cd8eaf435058ba1e"


def test_the_journal_is_read_as_it_was_written():
    contents = read_journal(FILE, Record)
    state = fold(contents.records)
    assert contents.torn is None
    assert state.digest() == DIGEST
    assert (state.trajectories, len(state.visits), state.finished.stopped_by) == (220, 5, "trajectories")


def test_its_result_can_be_derived_again():
    result = result_of(fold(read_journal(FILE, Record).records))
    assert result.digest == DIGEST
    assert {entry.source for entry in result.energy} == {"unknown", "modelled", "emulation"}
