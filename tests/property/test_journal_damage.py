"""Whatever the records and wherever a journal is cut or changed: whole records come back, changes are noticed."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import JournalError, JournalFollower
from reference.journaling import contents_of, measured, noted, put

finite = st.floats(allow_nan=False, allow_infinity=False)
records = st.lists(
    st.builds(measured, chain=st.integers(-(2**63), 2**63 - 1), value=finite, history=st.lists(finite).map(tuple))
    | st.builds(noted, text=st.text(st.characters(exclude_categories=["Cs"]))),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def path():
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "journal.jsonl"


def written(path, records):
    """The bytes of a new journal, and where each of its lines ends."""
    path.unlink(missing_ok=True)
    with Journal.open(path, mode="create", sync=lambda file: None) as journal:
        ends = [0]
        for record in records:
            journal.append(record)
            ends.append(path.stat().st_size)
    return path.read_bytes(), ends


def read(path):
    """The contents of a journal, or what is wrong with it."""
    try:
        return contents_of(path), None
    except JournalError as error:
        return None, str(error)


@settings(max_examples=40)
@given(records=records)
def test_every_record_comes_back_equal(path, records):
    data, ends = written(path, records)
    contents = contents_of(path)
    assert (contents.records, contents.torn, contents.end.offset) == (records, None, len(data))
    assert data.count(b"\n") == len(records)
    assert contents.offsets == ends[:-1]


@settings(max_examples=25)
@given(records=records, zeros=st.sampled_from([0, 0, 1, 4096]))
def test_a_cut_at_any_byte_leaves_exactly_the_whole_records(path, records, zeros):
    data, ends = written(path, records)
    for size in range(len(data)):
        put(path, data[:size] + bytes(zeros))
        whole = sum(end <= size for end in ends) - 1
        contents = contents_of(path)
        assert contents.records == records[:whole]
        assert contents.end.offset == ends[whole]
        assert (contents.torn is None) == (size == ends[whole] and zeros == 0)
        assert JournalFollower(path).poll() == records[:whole]


@settings(max_examples=40)
@given(records=records, data=st.data())
def test_a_resumed_journal_goes_on_as_if_nothing_had_happened(path, records, data):
    intact, ends = written(path, records)
    size = data.draw(st.integers(0, len(intact)))
    put(path, intact[:size])
    with Journal.open(path, mode="resume", sync=lambda file: None) as journal:
        whole = journal.count
        assert whole == sum(end <= size for end in ends) - 1
        for record in records[whole:]:
            journal.append(record)
    assert path.read_bytes() == intact


@settings(max_examples=25)
@given(records=records, mask=st.integers(1, 255))
def test_a_change_of_any_byte_is_noticed(path, records, mask):
    intact, ends = written(path, records)
    for place in range(len(intact)):
        changed = bytearray(intact)
        changed[place] ^= mask
        put(path, changed)
        line = sum(end <= place for end in ends) - 1
        contents, problem = read(path)
        if contents is None:
            assert f"line {line + 1} " in problem or "must be a journal" in problem
        else:
            # Only in the last line, where it cannot be told from a write that was not finished.
            assert line == len(records) - 1
            assert contents.torn.begin.lines == line
            assert contents.records == records[:line]
