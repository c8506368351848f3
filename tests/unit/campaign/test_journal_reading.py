"""Reading a journal: torn ends are reported, damage is an error, and another process can be followed."""

import io
import os
import zlib
from contextlib import contextmanager

import pytest

from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import JournalError, JournalFollower, read_journal
from reference.journaling import contents_of, measured, noted, numbered, put

COUNT = 6


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, mode="create") as journal:
        for i in range(COUNT):
            journal.append(numbered(i))
    return path


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def checked(text):
    """A line with the right checksum, whatever it says."""
    return b'{"crc":"%08x",%b\n' % (zlib.crc32(text), text)


def test_version_1_is_read_for_ever(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text(
        '{"crc":"10e52193","v":1,"after":"00000000","records":[{"kind":"rows","at":0.0,"chain":"c1",'
        '"phase":"measure","first":0,"columns":{"value":[0.1]},"seconds":1.5}]}\n'
        '{"crc":"4cb15f4d","v":1,"after":"10e52193","records":[{"kind":"decided","at":0.0,'
        '"what":"noted","chain":"","step":0,"by":"test","reason":"é\\n","value":null,"width":null,'
        '"baseline":null,"trusted":null,"system":null,"head":"","done":""}]}\n'
    )
    records = [measured(1, 1.5, (0.1,)), noted("é\n")]
    assert read_journal(path) == records
    with Journal.open(tmp_path / "new.jsonl", mode="create") as journal:
        for record in records:
            journal.append(record)
    assert (tmp_path / "new.jsonl").read_bytes() == path.read_bytes()


def test_offsets_are_where_lines_begin(path):
    contents = contents_of(path)
    data = path.read_bytes()
    starts = [data.index(line) for line in lines(path)]
    assert (contents.offsets, contents.end.offset) == (starts, len(data))


def test_every_cut_of_the_last_three_records_resumes_to_the_whole_ones(path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds, of which nothing is asked here
    data = path.read_bytes()
    ends = [0]
    for line in lines(path):
        ends.append(ends[-1] + len(line))
    for size in range(ends[3], len(data) + 1):
        put(path, data[:size])
        whole = sum(end <= size for end in ends) - 1
        contents = contents_of(path)
        assert contents.records == [numbered(i) for i in range(whole)]
        assert contents.end.offset == ends[whole]
        if size == ends[whole]:
            assert contents.torn is None
        else:
            assert (contents.torn.begin.lines, contents.torn.begin.offset) == (whole, ends[whole])
            assert contents.torn.data == data[ends[whole] : size]
        with Journal.open(path, mode="resume") as journal:
            assert (journal.message is None) == (contents.torn is None)
            assert journal.append(numbered(whole)) == whole
        expected = data[: ends[whole + 1]] if whole < COUNT else data
        assert path.read_bytes()[: len(data)] == expected


def test_the_bytes_that_resume_cuts_are_kept_and_the_message_says_where(path):
    data = path.read_bytes()
    for number, size in enumerate((len(data) - 1, len(data) - 30)):
        path.write_bytes(data[:size])
        torn = contents_of(path).torn
        with Journal.open(path, mode="resume") as journal:
            assert (
                f"line 6 is half written ({len(torn.data)} bytes from byte {torn.begin.offset} on)" in journal.message
            )
            assert f"kept in journal.torn-{number}" in journal.message
        assert path.with_name(f"journal.torn-{number}").read_bytes() == data[torn.begin.offset : size]
        assert path.read_bytes() == data[: torn.begin.offset]


@pytest.mark.parametrize("kept", [0, 1, 9, 40])
@pytest.mark.parametrize("zeros", [1, 4096])
def test_zeros_after_a_power_cut_are_a_torn_tail(path, kept, zeros):
    whole, last = b"".join(lines(path)[:-1]), lines(path)[-1]
    path.write_bytes(whole + last[:kept] + bytes(zeros))
    contents = contents_of(path)
    assert contents.records == [numbered(i) for i in range(COUNT - 1)]
    assert contents.torn.data == last[:kept] + bytes(zeros)


def test_zeros_inside_the_last_line_and_after_it_are_a_torn_tail(path):
    whole, last = b"".join(lines(path)[:-1]), lines(path)[-1]
    path.write_bytes(whole + last[:9] + bytes(10) + last[19:] + bytes(100))
    contents = contents_of(path)
    assert (len(contents.records), contents.torn.why) == (COUNT - 1, "its checksum does not agree")


def test_an_empty_journal_and_a_torn_first_record_have_no_records(path):
    first = lines(path)[0]
    for size in range(len(first)):
        put(path, first[:size])
        contents = contents_of(path)
        assert contents.records == []
        assert (contents.torn is None) == (size == 0)


@pytest.mark.parametrize("text", [b"hello\n", b"hello", b'{"v":1}\n', b"\xff\xfe"])
def test_another_kind_of_file_is_refused_and_not_cut(path, text):
    path.write_bytes(text)
    with pytest.raises(JournalError, match="a journal"):
        Journal.open(path, mode="resume")
    assert path.read_bytes() == text


@pytest.mark.parametrize("line", range(COUNT - 1))
def test_damage_before_the_end_names_the_line_and_changes_nothing(path, line):
    before = lines(path)
    damaged = [*before]
    damaged[line] = damaged[line].replace(b'"records"', b'"recordx"')
    path.write_bytes(b"".join(damaged))
    offset = sum(map(len, before[:line]))
    match = rf"journal.jsonl: line {line + 1} \(byte {offset}\) is damaged .*the {line} records before it are whole"
    with pytest.raises(JournalError, match=match):
        Journal.open(path, mode="resume")
    assert path.read_bytes() == b"".join(damaged)
    with pytest.raises(JournalError, match=f"truncate -s {offset}"):
        read_journal(path)


@pytest.mark.parametrize("line", range(COUNT - 1))
def test_a_changed_line_break_is_damage_also_before_the_last_line(path, line):
    found = lines(path)
    found[line] = found[line][:-1] + b" "
    path.write_bytes(b"".join(found))
    with pytest.raises(JournalError, match=rf"line {line + 1} .*damaged"):
        read_journal(path)


def test_a_newer_format_is_refused_with_both_versions(path):
    path.write_bytes(path.read_bytes() + checked(b'"v":2,"sequence":6,"zip":"..."}'))
    with pytest.raises(JournalError, match=r"line 7: .*version 2; .*version 1"):
        read_journal(path)


@pytest.mark.parametrize("change", ["removed", "twice", "swapped"])
def test_whole_lines_out_of_order_are_an_error(path, change):
    found = lines(path)
    if change == "removed":
        del found[4]
    elif change == "twice":
        found.append(found[5])
    else:
        found[4], found[5] = found[5], found[4]
    path.write_bytes(b"".join(found))
    with pytest.raises(JournalError, match=f"line {5 + (change == 'twice') * 2} does not follow"):
        read_journal(path)


@pytest.mark.parametrize("cut", range(1, COUNT))
def test_a_splice_of_two_journals_is_an_error_wherever_it_is(path, tmp_path, cut):
    """Also of one line only, the last: a whole line is no torn tail."""
    other = tmp_path / "other.jsonl"
    with Journal.open(other, mode="create") as journal:
        journal.append(measured(9, 9.0))
        for i in range(1, COUNT):
            journal.append(numbered(i))
    ours, theirs = lines(path), lines(other)
    path.write_bytes(b"".join([*ours[:cut], *theirs[cut:]]))
    with pytest.raises(JournalError, match=f"line {cut + 1} does not follow"):
        Journal.open(path, mode="resume")
    follower = JournalFollower(path)
    with pytest.raises(JournalError, match=f"line {cut + 1} does not follow"):
        follower.poll()


def test_records_of_one_append_are_there_together_or_not_at_all(path):
    alone, together = len(path.read_bytes()), tuple(numbered(COUNT + i) for i in range(3))
    with Journal.open(path, mode="resume") as journal:
        assert (journal.append(*together), journal.count) == (COUNT, COUNT + 3)
    data = path.read_bytes()
    for size in range(alone, len(data) + 1):
        put(path, data[:size])
        contents = contents_of(path)
        assert len(contents.records) == (COUNT + 3 if size == len(data) else COUNT)
    assert contents.records[COUNT:] == list(together)
    assert contents.offsets[COUNT:] == [alone] * 3


def test_a_follower_stops_and_goes_on_inside_of_an_append(path):
    with Journal.open(path, mode="resume") as journal:
        journal.append(*(numbered(COUNT + i) for i in range(3)))
        journal.append(numbered(COUNT + 3))
    follower, seen = JournalFollower(path), []
    for until in range(COUNT + 5):
        seen += follower.poll(until=until)
        assert seen == [numbered(i) for i in range(min(until, COUNT + 4))]
    assert follower.poll() == []


def test_a_whole_line_of_an_unknown_record_is_an_error_and_not_a_torn_tail(path):
    path.write_bytes(path.read_bytes() + checked(b'"v":1,"after":"00000000","records":[{"kind":"dreamt"}]}'))
    with pytest.raises(JournalError, match=r"line 7: .*'dreamt'"):
        read_journal(path)


def test_a_follower_gives_each_record_once_however_the_file_grows(path, tmp_path):
    data, copy = path.read_bytes(), tmp_path / "copy.jsonl"
    follower = JournalFollower(copy)
    assert follower.poll() == []  # no file yet
    copy.touch()
    seen = []
    for size in range(len(data) + 1):
        put(copy, data[:size])
        new = follower.poll()
        assert len(new) <= 1
        seen += new
    assert seen == [numbered(i) for i in range(COUNT)]
    assert follower.poll() == []


class GrowsMeanwhile(io.BytesIO):
    """A journal that has half a line at its end; the other half and more come as soon as that was read."""

    def __init__(self, half, more):
        super().__init__(half)
        self._more = more

    def read(self, *size):
        return self._more


def test_a_line_that_is_written_while_it_is_read_is_no_damage(path, monkeypatch):
    whole = path.read_bytes()
    middle = len(whole) - 20

    @contextmanager
    def opened_early(*_):
        yield GrowsMeanwhile(whole[:middle], whole[middle:] + whole), middle

    follower = JournalFollower(path)
    with monkeypatch.context() as patched:
        patched.setattr("metalforge.campaign.store.reading.opened", opened_early)
        early = follower.poll()
    assert early + follower.poll() == read_journal(path)
    assert early


def test_a_follower_waits_out_a_cut_and_goes_on(path):
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    follower = JournalFollower(path)
    assert len(follower.poll()) == COUNT - 1
    with Journal.open(path, mode="resume") as journal:
        assert follower.poll() == []
        journal.append(measured(9, 9.0))
        assert follower.poll() == [measured(9, 9.0)]


def test_a_follower_notices_damage_and_a_file_that_lost_what_was_read(path):
    data = path.read_bytes()
    follower = JournalFollower(path)
    assert len(follower.poll()) == COUNT
    path.write_bytes(data + b"x\ny\n")
    with pytest.raises(JournalError, match="line 7"):
        follower.poll()
    path.write_bytes(data[:-1])
    with pytest.raises(JournalError, match="it was cut"):
        follower.poll()
