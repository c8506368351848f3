r"""The format of a journal: a record and its number go in, one checked line of JSON comes out, and back.

::

    {"crc":"1a2b3c4d","v":1,"n":17,"body":{...record...}}\n

`crc` is the CRC-32 of everything after it on the line (from ``"v"`` to the last brace), so it covers the version and
the number too. It finds every single changed byte and every burst of up to 32 bits, and comes first, at a fixed width,
so that a torn line is known without parsing. Later formats keep this beginning: an old reader can then tell a newer
journal from a damaged one.
"""

import zlib
from collections.abc import Iterable
from math import isfinite
from types import NoneType
from typing import Any, Generic, TypeVar

import msgspec

from metalforge.core.errors import MetalforgeError

Record = TypeVar("Record")

VERSION = 1
_OPENING = b'{"crc":"'
_CRC_END = len(_OPENING) + 8  # eight hexadecimal digits
_CHECKED = _CRC_END + len(b'",')
_THIS_VERSION = b'"v":%d,' % VERSION


class JournalError(MetalforgeError):
    """A journal that cannot be written, or that does not agree with itself; what it held before is still there."""


class BrokenLine(Exception):  # noqa: N818 - not an error yet: at the end of a journal it is a torn record
    """A line that is not what was written: where it stands decides whether that is a torn end or damage."""


class _Versioned(msgspec.Struct):
    """What every version of the format has."""

    v: int


class _Line(msgspec.Struct, Generic[Record], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole line of this version."""

    crc: str
    v: int
    n: int
    body: Record


class LineFormat(Generic[Record]):
    """Writes and reads the lines of one type of records, usually a tagged union of msgspec structs."""

    def __init__(self, record_type: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        line: Any = _Line  # mypy knows no type that arrives as an argument
        self._line: msgspec.json.Decoder[_Line[Record]] = msgspec.json.Decoder(line[record_type])

    def body(self, record: Record) -> bytes:
        """Give the record as JSON that reads back as an equal record; raise where it would not.

        What JSON cannot say is better refused here than found when a campaign is resumed.
        """
        try:
            body = self._encoder.encode(record)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise JournalError(f"the record cannot be journaled: {error}. Got {record!r}") from error
        problem = "a line break" if b"\n" in body else _unspeakable(record)  # a msgspec.Raw may hold one
        if problem:
            raise JournalError(f"the record would not read back as itself: it holds {problem}. Got {record!r}")
        return body

    def line(self, n: int, body: bytes) -> bytes:
        """Give the whole line of record `n`, with its end."""
        checked = b'%b"n":%d,"body":%b}' % (_THIS_VERSION, n, body)
        return b'%b%08x",%b\n' % (_OPENING, zlib.crc32(checked), checked)

    def record(self, line: bytes, n: int) -> Record:
        """Give the record of line `n`; raise `BrokenLine` for a torn line, `JournalError` for a whole but wrong one."""
        checked = _checked(line)
        if not checked.startswith(_THIS_VERSION):
            version = msgspec.json.decode(line, type=_Versioned).v
            raise JournalError(
                f"line {n + 1}: the format is version {version}; this metalforge reads version {VERSION}\n"
                "hint: use the metalforge that wrote it, or a newer one; nothing was changed"
            )
        try:
            whole = self._line.decode(line)
        except msgspec.ValidationError as error:
            raise JournalError(
                f"line {n + 1}: whole, but not a record that this metalforge knows ({error})\n"
                "hint: use the metalforge that wrote it; nothing was changed"
            ) from error
        if whole.n != n:
            raise JournalError(
                f"line {n + 1}: record {n} must stand here. Got record {whole.n}: lines were removed or written twice\n"
                "hint: nothing was changed; put back a copy of the journal"
            )
        return whole.body


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


def may_begin_line(data: bytes) -> bool:
    """Say whether a line could begin with these bytes; other text was never part of a journal."""
    return data.startswith(_OPENING) or _OPENING.startswith(data)


def holds_whole_line(data: bytes) -> bool:
    """Say whether a line whose checksum agrees begins anywhere in the bytes."""
    start = data.find(_OPENING)
    while start >= 0:
        try:
            _checked(data[start : data.find(b"\n", start) + 1])
        except BrokenLine:
            start = data.find(_OPENING, start + 1)
        else:
            return True
    return False


def _checked(line: bytes) -> bytes:
    """Give the checked part of a line, if its checksum agrees."""
    if not line.endswith(b"\n"):
        raise BrokenLine("it has no end")
    checked = line[_CHECKED:-1]
    if line[:_CHECKED] != b'%b%08x",' % (_OPENING, zlib.crc32(checked)):
        raise BrokenLine("its checksum does not agree")
    return checked
