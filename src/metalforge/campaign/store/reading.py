"""A journal's records, verified line by line: at once, or as another process appends them.

A record that was being written when the process died or the power went is the last one, whole or not at all. So a bad
last line is a *torn tail*, reported and left alone; a bad line with anything after it is damage, and an error. Nothing
is skipped.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from metalforge.core.files import PathLike, opened

from .lines import BrokenLine, JournalError, LineFormat, holds_whole_line, may_begin_line

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """The bytes after the last whole record: which record they were to be, where, and what is wrong with them."""

    n: int
    offset: int
    data: bytes
    why: str

    def __str__(self) -> str:
        where = f"{len(self.data)} bytes from byte {self.offset} on"
        return f"record {self.n} (line {self.n + 1}) is half written ({where}): {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents(Generic[Record]):
    """The whole records of a journal, where each begins, the bytes they take, and a torn tail if there is one."""

    records: list[Record]
    offsets: list[int]
    torn: TornTail | None
    bytes_good: int


def read_journal(
    path: PathLike, record_type: Any, take: Callable[[Record], object] | None = None
) -> JournalContents[Record]:
    """Give every whole record of a journal, in order; a torn last one is described in `torn`, never an error.

    With `take` every record is handed over when it is read, and none is kept.

    Raises `JournalError` where the file is damaged before its end, or was written in a newer format.
    """
    records: list[Record] = []
    offsets: list[int] = []
    end, torn = 0, None
    with opened(path, JournalError) as (stream, _):
        for found in _scan(stream, LineFormat[Record](record_type), 0, 0):
            if isinstance(found, TornTail):
                torn = found
            else:
                (take or records.append)(found.record)
                offsets.append(end)
                end = found.end
    return JournalContents(records=records, offsets=offsets, torn=torn, bytes_good=end)


class JournalFollower(Generic[Record]):
    """Gives the records that another process has appended since the last look. Holds no file open."""

    def __init__(self, path: PathLike, record_type: Any) -> None:
        self.path = path
        self._format = LineFormat[Record](record_type)
        self._n, self._end = 0, 0

    @property
    def place(self) -> int:
        """Bytes that were read."""
        return self._end

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
            if size < self._end:
                raise JournalError(f"must have at least the {self._end} bytes already read. Got {size}: it was cut")
            stream.seek(self._end)
            enough = self._end + most
            for found in _scan(stream, self._format, self._n, self._end):
                if isinstance(found, TornTail):
                    break
                (take or records.append)(found.record)
                self._n, self._end = self._n + 1, found.end
                if self._n == until or self._end >= enough:
                    break
        return records


class _Found(NamedTuple, Generic[Record]):
    """A record, and the byte after its line."""

    record: Record
    end: int


def _scan(stream: BinaryIO, format_: LineFormat[Record], n: int, offset: int) -> Iterator[_Found[Record] | TornTail]:
    """Yield the records from line `n`, which begins at `offset`, and at last the torn tail if there is one."""
    for line in stream:
        try:
            record = format_.record(line, n)
        except BrokenLine as broken:
            # A line without an end was the last when it was read: what is behind it now was written meanwhile.
            rest = stream.read() if line.endswith(b"\n") else b""
            yield _torn_tail(n, offset, line, rest, str(broken))
            return
        offset += len(line)
        yield _Found(record, offset)
        n += 1


def _torn_tail(n: int, offset: int, line: bytes, rest: bytes, why: str) -> TornTail:
    """Give the tail that a bad line begins, or raise if it is damage: something other than zeros comes after it."""
    # After a power cut a file may have its new length and zeros where the data had not arrived. A changed line break
    # joins two lines into a bad one: the second is whole, so the first was once.
    if rest.strip(b"\0") or holds_whole_line(line[1:]):
        raise JournalError(
            f"line {n + 1} (byte {offset}) is damaged ({why}), and it is not the last; "
            f"the {n} records before it are whole\n"
            "hint: nothing was changed; put back a copy of the journal. To go on from the records before the damage, "
            f"keep this file under another name, then cut it: truncate -s {offset}"
        )
    if n == 0 and not may_begin_line(line.rstrip(b"\0")):
        raise JournalError("must be a journal. Got a file that does not begin like one\nhint: nothing was changed")
    return TornTail(n=n, offset=offset, data=line + rest, why=why)
