r"""The format of a journal: records that belong together go in, one checked line of JSON comes out, and back.

::

    {"crc":"1a2b3c4d","v":1,"after":"0f1e2d3c","records":[{...record...},...]}\n

`crc` is the CRC-32 of everything after it on the line (from ``"v"`` to the last brace). It finds every single changed
byte and every burst of up to 32 bits, and comes first, at a fixed width, so that a torn line is known without parsing.
Later formats keep this beginning: an old reader can then tell a newer journal from a damaged one.

`after` is the `crc` of the line before, and ``00000000`` on the first line. Since `crc` covers it, every line depends
on all lines before it and on the campaign's name in the first one: a line that was removed, repeated, moved or taken
from another journal does not follow the one before it.
"""

import shlex
import zlib
from collections.abc import Iterable
from math import isfinite
from types import NoneType
from typing import Any, Generic, TypeVar

import msgspec

from metalforge.campaign.theory import decoded
from metalforge.core import MetalforgeError, UnknownNameError

Record = TypeVar("Record")

VERSION = 1
START = "00000000"
"""What the first line follows."""
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
    after: str
    records: tuple[Record, ...]


class LineFormat(Generic[Record]):
    """Writes and reads the lines of one type of records, usually a tagged union of msgspec structs."""

    def __init__(self, record_type: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        line: Any = _Line  # mypy knows no type that arrives as an argument
        self._line: msgspec.json.Decoder[_Line[Record]] = msgspec.json.Decoder(line[record_type], dec_hook=decoded)

    def body(self, *records: Record) -> bytes:
        """Give records as JSON that reads back as equal records; raise where it would not.

        What JSON cannot say is better refused here than found when a campaign is resumed.
        """
        try:
            body = self._encoder.encode(records)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise JournalError(f"records cannot be journaled: {error}. Got {records!r}") from error
        problem = "a line break" if b"\n" in body else _unspeakable(records)  # a msgspec.Raw may hold one
        if problem:
            raise JournalError(f"records would not read back as themselves: they hold {problem}. Got {records!r}")
        return body

    def line(self, after: str, body: bytes) -> bytes:
        """Give the whole line of a body, with its end; `after` is the link of the line before."""
        checked = b'%b"after":"%b","records":%b}' % (_THIS_VERSION, after.encode(), body)
        return b'%b%08x",%b\n' % (_OPENING, zlib.crc32(checked), checked)

    def records(self, line: bytes, after: str, n: int) -> tuple[Record, ...]:
        """Give the records of line `n`, counted from 0, which must follow the one whose link is `after`.

        Raises `BrokenLine` for a torn line, `JournalError` for a whole but wrong one.
        """
        checked = _checked(line)
        if not checked.startswith(_THIS_VERSION):
            version = msgspec.json.decode(line, type=_Versioned).v
            raise JournalError(
                f"line {n + 1}: the format is version {version}; this metalforge reads version {VERSION}\n"
                "hint: use the metalforge that wrote it, or a newer one; nothing was changed"
            )
        try:
            whole = self._line.decode(line)
        except UnknownNameError as error:
            raise JournalError(f"line {n + 1}: {error}{_plugins_named_in(line)}") from error
        except msgspec.ValidationError as error:
            raise JournalError(
                f"line {n + 1}: whole, but not a record that this metalforge knows ({error})\n"
                "hint: use the metalforge that wrote it; nothing was changed"
            ) from error
        if whole.after != after:
            raise JournalError(
                f"line {n + 1} does not follow the line before it: lines were removed, repeated or moved, or come from "
                "another journal\nhint: nothing was changed; put back a copy of the journal"
            )
        return whole.records


def link_of(line: bytes) -> str:
    """Return what the line after this one names: its checksum."""
    return line[len(_OPENING) : _CRC_END].decode()


class _Names(msgspec.Struct, frozen=True):
    """The plug-ins that a campaign ran with."""

    plugins: tuple[str, ...] = ()


class _Begun(msgspec.Struct, frozen=True):
    """The record that begins a journal, without what only a plug-in can read."""

    spec: _Names = _Names()


class _FirstLine(msgspec.Struct, frozen=True):
    """The line that begins a journal."""

    records: tuple[_Begun, ...]


def _plugins_named_in(line: bytes) -> str:
    """Return the hint which plug-ins a campaign ran with. Nothing loads them by itself: journals come from anywhere."""
    files = [file for begun in msgspec.json.decode(line, type=_FirstLine).records for file in begun.spec.plugins]
    options = " ".join(f"--plugin {shlex.quote(file)}" for file in files) or "--plugin FILE.py"
    return f"\nhint: if you trust the plug-in of this campaign, add {options}"


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
