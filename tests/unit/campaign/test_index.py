"""An index agrees with its journal whatever happened to the file."""

import os

import pytest

from metalforge.campaign.store import IndexRow, Journal, JournalError, open_index, read_journal, rebuild
from reference.journaling import Measured, Noted, Record, numbered

COUNT = 20


def describe(record):
    if isinstance(record, Noted):
        return IndexRow(kind="noted", at=float(len(record.text)))
    return IndexRow(kind="measured", chain=record.chain, beta=round(record.value, 1), at=100.0 * record.value)


@pytest.fixture
def paths(tmp_path):
    journal, index = tmp_path / "journal.jsonl", tmp_path / "index.sqlite"
    with Journal.open(journal, Record, mode="create") as writer:
        for i in range(COUNT):
            writer.append(numbered(i))
    return journal, index


def everything(paths):
    with open_index(*paths, Record, describe) as index:
        return index.rows()


def expected(journal):
    contents = read_journal(journal, Record)
    return [(n, *describe(r), o) for n, (r, o) in enumerate(zip(contents.records, contents.offsets, strict=True))]


def test_questions_agree_with_the_records(paths):
    rows = expected(paths[0])
    with open_index(*paths, Record, describe) as index:
        assert index.rows() == rows
        assert index.counts() == {"measured": 15, "noted": 5}
        assert index.rows(kind="measured", chain=1) == [r for r in rows if r[1:3] == ("measured", 1)]
        assert index.rows(since=50.0, until=150.0) == [r for r in rows if 50 <= r[4] < 150]
        assert index.rows(beta=0.7) == [r for r in rows if r[3] == 0.7]
        assert index.betas("measured") == {
            b: sum(r[3] == b for r in rows) for b in sorted({r[3] for r in rows if r[3] is not None})
        }
        assert [index.record(row) for row in index.rows()] == [numbered(i) for i in range(COUNT)]


def test_a_good_index_is_used_as_it_is(paths):
    before = everything(paths)
    stamp = paths[1].stat().st_mtime_ns

    def fail(record):
        raise AssertionError("rebuilt")

    with open_index(*paths, Record, fail) as index:
        assert index.rows() == before
    assert paths[1].stat().st_mtime_ns == stamp


@pytest.mark.parametrize("damage", ["missing", "garbage", "empty", "cut", "other tables", "zeros inside"])
def test_a_missing_or_damaged_index_is_made_again(paths, damage):
    rebuild(*paths, Record, describe).close()
    whole = paths[1].read_bytes()
    if damage == "missing":
        paths[1].unlink()
    elif damage == "other tables":
        paths[1].write_bytes(whole.replace(b"by_kind", b"by_mood"))
    else:
        middle = len(whole) // 2
        zeroed = whole[: middle - 4096] + bytes(8192) + whole[middle + 4096 :]
        texts = {"garbage": b"no database" * 1000, "empty": b"", "cut": whole[:middle], "zeros inside": zeroed}
        paths[1].write_bytes(texts[damage])
    assert everything(paths) == expected(paths[0])
    assert sorted(os.listdir(paths[0].parent)) == ["index.sqlite", "journal.jsonl"]


def test_an_index_that_is_behind_or_of_another_journal_is_made_again(paths):
    everything(paths)
    with Journal.open(paths[0], Record, mode="resume") as journal:
        journal.append(numbered(COUNT))
    assert len(everything(paths)) == COUNT + 1
    paths[0].unlink()
    with Journal.open(paths[0], Record, mode="create") as journal:
        journal.append(Measured(chain=5, value=5.0))
    assert everything(paths) == [(0, "measured", 5, 5.0, 500.0, 0)]


def test_a_torn_tail_is_not_in_the_index(paths):
    data = paths[0].read_bytes()
    paths[0].write_bytes(data[:-3])
    assert everything(paths) == expected(paths[0])
    assert len(everything(paths)) == COUNT - 1


@pytest.mark.parametrize("place", ["nowhere/index.sqlite", "taken"])
def test_an_index_that_cannot_be_written_is_made_in_memory(paths, place):
    index = paths[0].parent / place
    if place == "taken":
        index.mkdir()
    assert everything((paths[0], index)) == expected(paths[0])
    assert not index.is_file()
    assert not list(paths[0].parent.glob("*.tmp"))


def test_a_journal_that_changed_under_the_index_is_noticed(paths):
    with open_index(*paths, Record, describe) as index:
        row = index.rows()[3]
        data = bytearray(paths[0].read_bytes())
        data[row.offset + 30] ^= 1
        paths[0].write_bytes(data)
        with pytest.raises(JournalError, match=r"line 4 .* has changed"):
            index.record(row)


def test_without_a_journal_there_is_no_index(tmp_path):
    with pytest.raises(JournalError, match="cannot be read"):
        open_index(tmp_path / "none", tmp_path / "index", Record, describe)
