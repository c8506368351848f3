"""Appending to a journal: numbers, syncs, refusals of the system, threads."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import msgspec
import pytest

from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import JournalError, begun
from reference.journaling import contents_of, measured, noted, numbered


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def create(path, n=0, **options):
    journal = Journal.open(path, mode="create", **options)
    for i in range(n):
        journal.append(numbered(i))
    return journal


def records(path):
    contents = contents_of(path)
    assert contents.torn is None
    return contents.records


def links(lines):
    return [line["crc"] for line in lines]


def test_records_come_back_in_order_and_each_line_is_json(path):
    with create(path) as journal:
        assert [journal.append(numbered(i)) for i in range(9)] == list(range(9))
        assert records(path) == [numbered(i) for i in range(9)]  # before any sync or close
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["v"], line["after"]) for line in lines] == [(1, link) for link in ("0" * 8, *links(lines))][:9]
    assert lines[4]["records"] == [msgspec.to_builtins(numbered(4))]


def test_resume_goes_on_with_the_next_number(path):
    create(path, 3).close()
    found = []
    with Journal.open(path, mode="resume", take=found.append) as journal:
        assert found == [numbered(i) for i in range(3)]
        assert (journal.message, journal.count) == (None, 3)
        assert journal.append(numbered(3)) == 3
    assert records(path) == [numbered(i) for i in range(4)]


def test_create_refuses_what_exists_and_resume_what_does_not(path):
    with pytest.raises(JournalError, match=r"journal.jsonl.*\(No such file"):
        Journal.open(path, mode="resume")
    create(path, 1).close()
    with pytest.raises(JournalError, match=r"exist yet\nhint: resume"):
        create(path)
    assert records(path) == [numbered(0)]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (measured(0, float("nan")), "nan"),
        (measured(0, float("-inf")), "-inf"),
        (measured(0, 1.0, (1.0, float("nan"))), "not finite"),
        (measured(0, 1.0, [1.0]), "a list"),
        (measured(0, 1.0, (object(),)), "cannot be journaled"),
        (noted("\ud800"), "cannot be journaled"),
    ],
)
def test_a_record_that_would_not_read_back_is_refused_and_nothing_is_written(path, record, why):
    with create(path, 2) as journal:
        before = path.read_bytes()
        with pytest.raises(JournalError, match=why):
            journal.append(record)
        assert path.read_bytes() == before
        assert journal.append(numbered(2)) == 2


def test_eight_threads_get_contiguous_numbers(path):
    with create(path) as journal, ThreadPoolExecutor(8) as pool:

        def append_many(thread):
            return [(journal.append(measured(thread, i / 8)), thread, i) for i in range(60)]

        given = sorted(chain.from_iterable(pool.map(append_many, range(8))))
    assert [n for n, _, _ in given] == list(range(480))
    assert records(path) == [measured(thread, i / 8) for _, thread, i in given]


def test_it_syncs_at_most_once_a_second_and_when_asked(path):
    clock, synced = Clock(), []
    with create(path, clock=clock, sync=lambda file: synced.append(clock.now)) as journal:
        for tenth in range(31):
            clock.now = 100 + tenth / 10
            journal.append(numbered(tenth))
        assert synced == [101.0, 102.0, 103.0]
        clock.now = 103.5
        journal.tick()
        assert len(synced) == 3  # nothing new since
        journal.append(numbered(31))
        clock.now = 103.9
        journal.tick()
        assert len(synced) == 3  # not yet
        clock.now = 104.0
        journal.tick()
        assert synced[3:] == [104.0]
        journal.append(numbered(32))
        journal.sync()
        journal.sync()
        assert synced[4:] == [104.0]  # at once, and once
        journal.append(numbered(33))
    assert len(synced) == 6  # closing


def test_those_who_ask_for_a_sync_soon_share_it(path):
    clock, synced = Clock(), []
    with create(path, clock=clock, sync=lambda file: synced.append(clock.now)) as journal:
        for at in (100.05, 100.25, 100.27, 100.3):
            clock.now = at
            journal.append(numbered(journal.count))
            journal.sync_within(0.2)
        assert synced == [100.25]  # one was asked for just after the start, and two after it wait
        clock.now = 100.5
        journal.tick()
        assert synced == [100.25, 100.5]
        clock.now = 101.4
        journal.append(numbered(journal.count))
        assert len(synced) == 2  # nobody asked: after a second
        clock.now = 101.5
        journal.tick()
        assert len(synced) == 3


def test_after_a_failed_sync_nothing_more_is_written(path):
    def sync(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = create(path, 2, sync=sync)
    with pytest.raises(JournalError, match="last sync"):
        journal.sync()
    with pytest.raises(JournalError, match=r"written(.|\n)*hint.*disk"):
        journal.append(numbered(2))
    journal.close()
    assert records(path) == [numbered(0), numbered(1)]
    with Journal.open(path, mode="resume") as journal:
        assert journal.append(numbered(2)) == 2


def test_short_writes_are_continued(path):
    with create(path, 3, write=lambda file, data: os.write(file, data[:5])):
        assert records(path) == [numbered(i) for i in range(3)]


class Failing:
    """Writes `room` bytes, then raises."""

    def __init__(self, error):
        self.error, self.room = error, None

    def __call__(self, file, data):
        if self.room is None:
            return os.write(file, data)
        if self.room == 0:
            raise self.error
        written = os.write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 20, 60])
@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "copy the directory"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ESTALE, "see the reason"),
    ],
)
def test_a_refused_write_leaves_the_file_as_it_was(path, code, hint, room):
    write = Failing(OSError(code, os.strerror(code)))
    with create(path, 5, write=write) as journal:
        before = path.read_bytes()
        write.room = room
        with pytest.raises(JournalError, match=rf"record 5 .*5 records(.|\n)*hint: .*{hint}"):
            journal.append(numbered(5))
        assert path.read_bytes() == before
        write.room = None
        assert journal.append(numbered(5)) == 5
    assert records(path) == [numbered(i) for i in range(6)]


def test_only_a_journal_with_a_record_is_to_be_resumed(path):
    write = Failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with create(path, 0, write=write) as journal:
        for resumable in (False, True):
            write.room = 0
            with pytest.raises(JournalError) as caught:
                journal.append(numbered(journal.count))
            write.room = None
            assert ("resume" in str(caught.value)) == resumable
            assert begun(path) == resumable
            journal.append(numbered(journal.count))
    path.unlink()
    assert not begun(path)


def test_an_interrupt_in_the_middle_of_a_line_leaves_the_file_as_it_was(path):
    write = Failing(KeyboardInterrupt())
    with create(path, 2, write=write) as journal:
        write.room = 17
        with pytest.raises(KeyboardInterrupt):
            journal.append(numbered(2))
        write.room = None
        assert journal.append(numbered(2)) == 2
    assert records(path) == [numbered(i) for i in range(3)]


def test_a_half_written_line_that_cannot_be_removed_is_removed_later(path, monkeypatch):
    def refuse(file, size):
        raise OSError(errno.EIO, "no")

    write = Failing(OSError(errno.ENOSPC, "full"))
    with create(path, 2, write=write) as journal:
        write.room = 17
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(JournalError, match=r"record 2 .*written"):
                journal.append(numbered(2))
            write.room = None
            with pytest.raises(JournalError, match="half-written"):
                journal.append(numbered(2))
        contents = contents_of(path)
        assert (len(contents.records), len(contents.torn.data)) == (2, 17)
        assert journal.append(numbered(2)) == 2
    assert records(path) == [numbered(i) for i in range(3)]


def test_a_deleted_or_shared_journal_is_noticed(path):
    with create(path, 2) as journal, Journal.open(path, mode="resume") as other:
        other.append(numbered(2))
        with pytest.raises(JournalError, match="somebody else"):
            journal.append(numbered(2))
        assert records(path) == [numbered(i) for i in range(3)]
        path.unlink()
        with pytest.raises(JournalError, match="was deleted") as caught:
            other.append(numbered(3))
    assert caught.value.__cause__.errno == errno.ESTALE


def test_a_closed_journal_says_so(path):
    journal = create(path, 1)
    journal.close()
    journal.close()
    journal.tick()
    with pytest.raises(JournalError, match="is closed"):
        journal.append(numbered(1))
    with pytest.raises(JournalError, match="is closed"):
        journal.sync()


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(JournalError, match=r"nowhere/journal.jsonl.*\(No such file"):
        create(tmp_path / "nowhere" / "journal.jsonl")
