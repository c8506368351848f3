"""A journal's records, verified line by line: at once, or as another process appends them.

A line that was being written when the process died or the power went is the last one, whole or not at all. So a bad
last line is a *torn tail*, reported and left alone. A bad line with anything after it is damage, and an error; so is a
whole line that does not follow the one before it. Nothing is skipped.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from metalforge.core import PathLike, opened

from .lines import START, BrokenLine, JournalError, LineFormat, holds_whole_line, link_of, may_begin_line

Record = TypeVar("Record")


class LineBorder(NamedTuple):
    """A place between two lines: the lines, records and bytes before it, and what the next line must name."""

    lines: int = 0
    records: int = 0
    offset: int = 0
    link: str = START

    def beyond(self, line: bytes, records: int) -> "LineBorder":
        """Return the place after one more line, which has so many records."""
        return LineBorder(self.lines + 1, self.records + records, self.offset + len(line), link_of(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """The bytes after the last whole line: where they begin, and what is wrong with them."""

    begin: LineBorder
    data: bytes
    why: str

    def __str__(self) -> str:
        where = f"{len(self.data)} bytes from byte {self.begin.offset} on"
        return f"line {self.begin.lines + 1} is half written ({where}): {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents(Generic[Record]):
    """The whole records of a journal, where the line of each begins, where all end, and a torn tail if there is one."""

    records: list[Record]
    offsets: list[int]
    torn: TornTail | None
    end: LineBorder


def read_journal(
    path: PathLike, record_type: Any, take: Callable[[Record], object] | None = None
) -> JournalContents[Record]:
    """Give every whole record of a journal, in order; a torn last one is described in `torn`, never an error.

    With `take` every record is handed over when it is read, and none is kept.

    Raises `JournalError` where the file is damaged before its end, or was written in a newer format.
    """
    records: list[Record] = []
    offsets: list[int] = []
    end, torn = LineBorder(), None
    with opened(path, JournalError) as (stream, _):
        for found in _scan(stream, LineFormat[Record](record_type), end):
            if isinstance(found, TornTail):
                torn = found
                continue
            for record in found.records:
                (take or records.append)(record)
                offsets.append(end.offset)
            end = found.end
    return JournalContents(records=records, offsets=offsets, torn=torn, end=end)


def begun(path: PathLike) -> bool:
    """Return whether there is a journal with a whole first line."""
    try:
        with opened(path, JournalError) as (stream, _):
            return bool(LineFormat[Any](Any).records(stream.readline(), START, 0))
    except (BrokenLine, JournalError):
        return False


class JournalFollower(Generic[Record]):
    """Gives the records that another process has appended since the last look. Holds no file open."""

    def __init__(self, path: PathLike, record_type: Any) -> None:
        self.path = path
        self._format = LineFormat[Record](record_type)
        self._n, self._end = 0, LineBorder()
        """Records that were given; where the line begins that has the next one."""

    @property
    def place(self) -> int:
        """Bytes that were read."""
        return self._end.offset

    def poll(
        self, take: Callable[[Record], object] | None = None, until: int | None = None, most: float = inf
    ) -> list[Record]:
        """Give the whole records that are new; a half-written last line waits for the next call.

        With `take` every record is handed over when it is read, and none is kept; `until` stops after so many of the
        whole journal, `most` after so many bytes of this call. No file yet is no record yet. Raises `JournalError` for
        damage, or a file that lost what was already read; what stands before the damage was handed over.
        """
        records: list[Record] = []
        if not os.path.lexists(self.path) or (until is not None and self._n >= until):
            return records
        with opened(self.path, JournalError) as (stream, size):
            if size < self.place:
                raise JournalError(f"must have at least the {self.place} bytes already read. Got {size}: it was cut")
            stream.seek(self.place)
            enough = self.place + most
            for found in _scan(stream, self._format, self._end):
                if isinstance(found, TornTail):
                    break
                last = found.end.records if until is None else min(found.end.records, until)
                for record in found.records[self._n - self._end.records : last - self._end.records]:
                    (take or records.append)(record)
                    self._n += 1
                if last == found.end.records:
                    self._end = found.end
                if self._n == until or self.place >= enough:
                    break
        return records


class _Found(NamedTuple, Generic[Record]):
    """The records of a line, and where it ends."""

    records: tuple[Record, ...]
    end: LineBorder


def _scan(stream: BinaryIO, format_: LineFormat[Record], begin: LineBorder) -> Iterator[_Found[Record] | TornTail]:
    """Yield the records of every line from `begin` on, and at last the torn tail if there is one."""
    for line in stream:
        try:
            records = format_.records(line, begin.link, begin.lines)
        except BrokenLine as broken:
            # A line without an end was the last when it was read: what is behind it now was written meanwhile.
            rest = stream.read() if line.endswith(b"\n") else b""
            yield _torn_tail(begin, line, rest, str(broken))
            return
        begin = begin.beyond(line, len(records))
        yield _Found(records, begin)


def _torn_tail(begin: LineBorder, line: bytes, rest: bytes, why: str) -> TornTail:
    """Give the tail that a bad line begins, or raise if it is damage: something other than zeros comes after it."""
    # After a power cut a file may have its new length and zeros where the data had not arrived. A changed line break
    # joins two lines into a bad one: the second is whole, so the first was once.
    if rest.strip(b"\0") or holds_whole_line(line[1:]):
        raise JournalError(
            f"line {begin.lines + 1} (byte {begin.offset}) is damaged ({why}), and it is not the last; "
            f"the {begin.records} records before it are whole\n"
            "hint: nothing was changed; put back a copy of the journal. To go on from the records before the damage, "
            f"keep this file under another name, then cut it: truncate -s {begin.offset}"
        )
    if not begin.lines and not may_begin_line(line.rstrip(b"\0")):
        raise JournalError("must be a journal. Got a file that does not begin like one\nhint: nothing was changed")
    return TornTail(begin=begin, data=line + rest, why=why)
