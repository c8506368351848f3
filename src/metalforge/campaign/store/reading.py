r"""The lines of a journal: records that belong together go in, one checked line of JSON comes out, and back.

::

    {"crc":"1a2b3c4d","v":1,"after":"0f1e2d3c","records":[{...record...},...]}\n

`crc` is the CRC-32 of everything after it on the line (from ``"v"`` to the last brace). It finds every single changed
byte and every burst of up to 32 bits, and comes first, at a fixed width, so that a torn line is known without parsing.
Later formats keep this beginning: an old reader can then tell a newer journal from a damaged one.

`after` is the `crc` of the line before, and ``00000000`` on the first line. Since `crc` covers it, every line depends
on all lines before it and on the campaign's name in the first one: a line that was removed, repeated, moved or taken
from another journal does not follow the one before it.

A line that was being written when the process died or the power went is the last one, whole or not at all. So a bad
last line is a *torn tail*, reported and left alone. A bad line with anything after it is damage, and an error; so is a
whole line that does not follow the one before it. Nothing is skipped.
"""

import os
import shlex
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from math import inf, isfinite
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from metalforge.campaign.theory import decoded
from metalforge.core import MetalforgeError, PathLike, UnknownNameError, opened

from .records import Record

VERSION = 1
START = "00000000"
"""What the first line follows."""
_OPENING = b'{"crc":"'
_CRC_END = len(_OPENING) + 8  # eight hexadecimal digits
_CHECKED = _CRC_END + len(b'",')
_THIS_VERSION = b'"v":%d,' % VERSION


class JournalError(MetalforgeError):
    """A journal that cannot be written, or that does not agree with itself; what it held before is still there."""


class _BrokenLine(Exception):  # noqa: N818 - not an error yet: at the end of a journal it is a torn record
    """A line that is not what was written: where it stands decides whether that is a torn end or damage."""


class LineBorder(NamedTuple):
    """A place between two lines: the lines, records and bytes before it, and what the next line must name."""

    lines: int = 0
    records: int = 0
    offset: int = 0
    link: str = START

    def beyond(self, line: bytes, records: int) -> "LineBorder":
        """Return the place after one more line, which has so many records."""
        return LineBorder(
            self.lines + 1, self.records + records, self.offset + len(line), line[len(_OPENING) : _CRC_END].decode()
        )


class TornTail(NamedTuple):
    """The bytes after the last whole line: where they begin, and what is wrong with them."""

    begin: LineBorder
    data: bytes
    why: str

    def __str__(self) -> str:
        where = f"{len(self.data)} bytes from byte {self.begin.offset} on"
        return f"line {self.begin.lines + 1} is half written ({where}): {self.why}"


class JournalFollower:
    """Gives the records of a journal, also those that another process has appended since the last look.

    It holds no file open. `end` is the end of the last line whose records were given, `torn` what comes after the last
    whole one.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = path
        self.end = LineBorder()
        self.torn: TornTail | None = None
        self._given = 0

    def poll(
        self, take: Callable[[Record], object] | None = None, until: int | None = None, most: float = inf
    ) -> list[Record]:
        """Give the whole records that are new; no file yet is no record yet. See `read`."""
        there = os.path.lexists(self.path) and (until is None or self._given < until)
        return self.read(take, until, most) if there else []

    def read(
        self, take: Callable[[Record], object] | None = None, until: int | None = None, most: float = inf
    ) -> list[Record]:
        """Give the whole records that are new; a half-written last line waits for the next call.

        With `take` every record is handed over when it is read, and none is kept; `until` stops after so many of the
        whole journal, `most` after so many bytes of this call. Raises `JournalError` for damage, a newer format, or a
        file that lost what was already read; what stands before the damage was handed over.
        """
        records: list[Record] = []
        with opened(self.path, JournalError) as (stream, size):
            if size < self.end.offset:
                raise JournalError(
                    f"must have at least the {self.end.offset} bytes already read. Got {size}: it was cut"
                )
            stream.seek(self.end.offset)
            enough, self.torn = self.end.offset + most, None
            for line in stream:
                try:
                    found = _records_in(line, self.end)
                except _BrokenLine as broken:
                    # A line without an end was the last when it was read: what is behind it now was written meanwhile.
                    rest = stream.read() if line.endswith(b"\n") else b""
                    self.torn = _torn_tail(self.end, line, rest, str(broken))
                    break
                end = self.end.beyond(line, len(found))
                last = end.records if until is None else min(end.records, until)
                for record in found[self._given - self.end.records : last - self.end.records]:
                    (take or records.append)(record)
                    self._given += 1
                if last == end.records:
                    self.end = end
                if self._given == until or self.end.offset >= enough:
                    break
        return records


def read_journal(path: PathLike, take: Callable[[Record], object] | None = None) -> list[Record]:
    """Give every whole record of a journal, in order, or hand each over to `take`; a torn end is left out."""
    return JournalFollower(path).read(take)


def begun(path: PathLike) -> bool:
    """Return whether there is a journal with a whole first line."""
    try:
        with opened(path, JournalError) as (stream, _):
            return _checked(stream.readline()).startswith(_THIS_VERSION)
    except (_BrokenLine, JournalError):
        return False


def body_of(*records: Record) -> bytes:
    """Give records as JSON that reads back as equal records; raise where it would not.

    What JSON cannot say is better refused here than found when a campaign is resumed.
    """
    try:
        body = msgspec.json.encode(records)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise JournalError(f"records cannot be journaled: {error}. Got {records!r}") from error
    if problem := _unspeakable(records):
        raise JournalError(f"records would not read back as themselves: they hold {problem}. Got {records!r}")
    return body


def line_of(after: str, body: bytes) -> bytes:
    """Give the whole line of a body, with its end; `after` is the link of the line before."""
    checked = b'%b"after":"%b","records":%b}' % (_THIS_VERSION, after.encode(), body)
    return b'%b%08x",%b\n' % (_OPENING, zlib.crc32(checked), checked)


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole line of this version."""

    crc: str
    v: int
    after: str
    records: tuple[Record, ...]


@cache
def _decoder() -> msgspec.json.Decoder[_Line]:
    return msgspec.json.Decoder(_Line, dec_hook=decoded)


def _records_in(line: bytes, begin: LineBorder) -> tuple[Record, ...]:
    """Give the records of the line that begins here. Raises `JournalError` for a whole but wrong line."""
    if not _checked(line).startswith(_THIS_VERSION):
        version = msgspec.json.decode(line, type=dict[str, Any]).get("v")
        raise JournalError(
            f"line {begin.lines + 1}: the format is version {version}; this metalforge reads version {VERSION}\n"
            "hint: use the metalforge that wrote it, or a newer one; nothing was changed"
        )
    try:
        whole = _decoder().decode(line)
    except UnknownNameError as error:
        raise JournalError(f"line {begin.lines + 1}: {error}{_plugins_named_in(line)}") from error
    except msgspec.ValidationError as error:
        raise JournalError(
            f"line {begin.lines + 1}: whole, but not a record that this metalforge knows ({error})\n"
            "hint: use the metalforge that wrote it; nothing was changed"
        ) from error
    if whole.after != begin.link:
        raise JournalError(
            f"line {begin.lines + 1} does not follow the line before it: lines were removed, repeated or moved, or "
            "come from another journal\nhint: nothing was changed; put back a copy of the journal"
        )
    return whole.records


def _checked(line: bytes) -> bytes:
    """Give the checked part of a line, if its checksum agrees."""
    if not line.endswith(b"\n"):
        raise _BrokenLine("it has no end")
    checked = line[_CHECKED:-1]
    if line[:_CHECKED] != b'%b%08x",' % (_OPENING, zlib.crc32(checked)):
        raise _BrokenLine("its checksum does not agree")
    return checked


def _torn_tail(begin: LineBorder, line: bytes, rest: bytes, why: str) -> TornTail:
    """Give the tail that a bad line begins, or raise if it is damage: something other than zeros comes after it."""
    # After a power cut a file may have its new length and zeros where the data had not arrived. A changed line break
    # joins two lines into a bad one: the second is whole, so the first was once.
    if rest.strip(b"\0") or _holds_whole_line(line[1:]):
        raise JournalError(
            f"line {begin.lines + 1} (byte {begin.offset}) is damaged ({why}), and it is not the last; "
            f"the {begin.records} records before it are whole\n"
            "hint: nothing was changed; put back a copy of the journal. To go on from the records before the damage, "
            f"keep this file under another name, then cut it: truncate -s {begin.offset}"
        )
    text = line.rstrip(b"\0")
    if not begin.lines and not (text.startswith(_OPENING) or _OPENING.startswith(text)):
        raise JournalError("must be a journal. Got a file that does not begin like one\nhint: nothing was changed")
    return TornTail(begin, line + rest, why)


def _holds_whole_line(data: bytes) -> bool:
    """Say whether a line whose checksum agrees begins anywhere in the bytes."""
    start = data.find(_OPENING)
    while start >= 0:
        try:
            _checked(data[start : data.find(b"\n", start) + 1])
        except _BrokenLine:
            start = data.find(_OPENING, start + 1)
        else:
            return True
    return False


def _plugins_named_in(line: bytes) -> str:
    """Return the hint which plug-ins a campaign ran with. Nothing loads them by itself: journals come from anywhere."""
    try:
        files = msgspec.json.decode(line)["records"][0]["spec"]["plugins"]
        options = " ".join(f"--plugin {shlex.quote(file)}" for file in files)
    except (LookupError, TypeError):  # whoever wrote the line may have written anything
        options = ""
    return f"\nhint: if you trust the plug-in of this campaign, add {options or '--plugin FILE.py'}"


_PLAIN = {str, int, bool, NoneType}
"""What JSON always has a word for."""


def _unspeakable(value: Any) -> str:
    """Return what in a record JSON has no word for: a number that is not finite, a list where tuples are read."""
    if isinstance(value, float):
        return "" if isfinite(value) else str(value)
    if isinstance(value, list):
        return "a list"
    if isinstance(value, tuple):
        parts: Iterable[Any] = value
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, msgspec.Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    else:
        return ""
    if (kinds := set(map(type, parts))) == {float}:  # columns of rows: nearly all that is written
        return "" if all(map(isfinite, parts)) else "a number that is not finite"
    if kinds <= _PLAIN:
        return ""
    return next((problem for part in parts if type(part) not in _PLAIN and (problem := _unspeakable(part))), "")
