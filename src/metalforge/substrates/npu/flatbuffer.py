"""FlatBuffers as the program format uses them: the schema as data, a writer, and a reader that trusts nothing.

Knows the tables of `wire_schema.fbs` but not what they mean; `wire` does. The library's builder writes; its accessors
trust what they read, so the reader is our own: every offset is checked for bounds and alignment, no byte is used twice,
and lengths are compared with what is there before anything is made of them.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import flatbuffers  # type: ignore[import-untyped]  # no type information is published; used in `_write` only
import numpy as np
from flatbuffers import number_types

from .program import ProgramError

IDENTIFIER = b"MFP1"
"""What stands at byte 4 of every file."""
VERSION = 1
MAX_BYTES = 1 << 28
"""The largest file written or read. A full layer of 57334 inputs and 4096 units takes half of it."""

Record = dict[str, Any]
"""The fields of one table by name: what the schema says, not yet what it means."""


class Text(NamedTuple):
    """A string of UTF-8 that a table points to."""

    most: int  # bytes of UTF-8
    printable: bool


class Many(NamedTuple):
    """A vector of tables, at most `most` of them."""

    table: "FlatTable"
    most: int


Scalar: TypeAlias = str
"""A number inside its table, as `struct` calls its type."""
Below: TypeAlias = "Text | np.dtype[Any] | FlatTable | Many"
"""What a table holds an offset to; a type of numbers stands for a vector of them."""
Kind: TypeAlias = "Scalar | Below"
FlatTable: TypeAlias = dict[str, Kind]
"""A record: its fields in the order of the schema."""

# The schema, as the reader and the writer walk it; a test compares it with the .fbs file.
BYTE, COUNT, OCTETS = "B", "I", np.dtype("u1")
# Names end up in messages and on terminals: short, and without control characters. 400 bytes hold the 100 characters
# that a layer's name may have.
NAME, FREE = Text(400, True), Text(1 << 20, False)
LAYER: FlatTable = {
    "name": NAME,
    "inputs": COUNT,
    "units": COUNT,
    "weight_bits": BYTE,
    "input_bits": BYTE,
    "activation": BYTE,
    "activation_bits": BYTE,
    "weights": OCTETS,
    "thresholds": np.dtype("<i4"),
    "act_steps": np.dtype("<f4"),
}
ENCODING: FlatTable = {"activation_bits": BYTE, "digits": BYTE, "signed": BYTE}
HEAD: FlatTable = {"name": NAME, "start": COUNT, "width": COUNT}
ENTRY: FlatTable = {"key": NAME, "value": FREE}
PROGRAM: FlatTable = {
    "version": "H",
    "checksum": OCTETS,
    "name": NAME,
    "layers": Many(LAYER, 1024),
    "encoding": ENCODING,
    "heads": Many(HEAD, 65536),
    "scales": np.dtype("<f8"),
    "schema": FREE,
    "provenance": Many(ENTRY, 4096),
    "ranges": np.dtype("<f8"),
}


def _utf8(kind: Text, text: Any, where: str) -> bytes:
    """Return a text as bytes; raises when the wire does not take it."""
    if not isinstance(text, str):
        raise ProgramError(f"`{where}` must be text. Got {type(text).__name__}")
    if kind.printable and not text.isprintable():
        raise ProgramError(f"`{where}` must be printable characters. Got {text[:100]!r}")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ProgramError(f"`{where}` must be text that UTF-8 can hold: {error.reason}") from error
    if len(data) > kind.most:
        raise ProgramError(f"`{where}` must be at most {kind.most} bytes of UTF-8. Got {len(data)}")
    return data


def check_size(size: int) -> None:
    """Raise when a program of so many bytes is too large."""
    if size > MAX_BYTES:
        raise ProgramError(f"a program must be at most {MAX_BYTES} bytes. Got {size}")


def _check_count(kind: Many, count: int, where: str) -> None:
    """Raise when a vector of tables has too many entries."""
    if count > kind.most:
        raise ProgramError(f"`{where}` must have at most {kind.most} entries. Got {count}")


def _join(where: str, name: str) -> str:
    """Return the path of a field: `layers[0].name`."""
    return f"{where}.{name}" if where else name


def encode(record: Record) -> bytes:
    """Return a record of the root table as a FlatBuffer."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, PROGRAM, record), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _write(builder: Any, kind: Below, value: Any) -> int:
    """Return the place of what was written; scalars are written inside their table."""
    if isinstance(kind, Text):
        return int(builder.CreateString(value))
    if isinstance(kind, np.dtype):
        return int(builder.CreateNumpyVector(value))
    if isinstance(kind, Many):
        places = [_write(builder, kind.table, record) for record in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):  # the builder works from the end of the buffer to its start
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())
    flags = {"B": number_types.Uint8Flags, "H": number_types.Uint16Flags, "I": number_types.Uint32Flags}
    below = {n: _write(builder, k, value[n]) for n, k in kind.items() if not isinstance(k, str)}
    builder.StartObject(len(kind))
    for slot, (name, field) in enumerate(kind.items()):
        if isinstance(field, str):
            builder.PrependSlot(flags[field], slot, value[name], None)  # None: write zeros too
        else:
            builder.PrependUOffsetTRelativeSlot(slot, below[name], 0)
    return int(builder.EndObject())


def _canonical(kind: Kind, value: Any, where: str) -> Iterator[bytes]:
    """Yield what the checksum is taken of; raises for a text or a list that the wire does not take."""
    if isinstance(kind, str):
        yield struct.pack("<" + kind, value)
    elif isinstance(kind, Text):
        text = _utf8(kind, value, where)
        yield struct.pack("<I", len(text))
        yield text
    elif isinstance(kind, np.dtype):
        check_size(value.nbytes)  # and so the count fits
        yield struct.pack("<I", value.size)
        yield value.data
    elif isinstance(kind, Many):
        _check_count(kind, len(value), where)
        yield struct.pack("<I", len(value))
        for i, record in enumerate(value):
            yield from _canonical(kind.table, record, f"{where}[{i}]")
    else:
        for name, field in kind.items():
            yield from _canonical(field, value[name], _join(where, name))


def checksum(record: Record) -> bytes:
    """Return the SHA-256 of everything in a record of the root table but the checksum itself."""
    digest, size = hashlib.sha256(), 0
    for part in _canonical(PROGRAM, record | {"checksum": np.zeros(32, "u1")}, ""):
        digest.update(part)
        size += memoryview(part).nbytes
        check_size(size)  # before a writer spends memory on it
    return digest.digest()


class Reader:
    """Reads records out of bytes that nobody has checked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._taken = np.zeros(len(data), np.bool_)  # bytes that belong to a field
        self._vtables: dict[int, tuple[int, ...]] = {}

    def program(self) -> Record:
        """Return the root table."""
        data = self._data
        if len(data) < 8 or len(data) % 8:
            raise ProgramError(f"a program is a multiple of 8 bytes. Got {len(data)}: cut short, or not a program")
        if data[4:8] != IDENTIFIER:
            hint = "; a newer metalforge may read it" if data[4:7] == IDENTIFIER[:3] else ": not a program"
            raise ProgramError(f"the file identifier must be {IDENTIFIER!r}. Got {data[4:8]!r}{hint}")
        self._take(0, 8, 1, "file header")
        record = self._table(PROGRAM, self._number("I", 0), "")
        free = ~self._taken
        if np.frombuffer(data, np.uint8)[free].any() or free[-8:].all():
            raise ProgramError("there are bytes that belong to no field: the program is damaged or something is hidden")
        return record

    def _take(self, at: int, size: int, align: int, where: str) -> None:
        """Give bytes to a field; raises when they are not in the file, not aligned, or another field's."""
        if at < 0 or at + size > len(self._data):
            raise ProgramError(
                f"`{where}` lies at bytes {at} .. {at + size} of {len(self._data)}: the program is damaged or cut short"
            )
        if at % align:
            raise ProgramError(f"`{where}` must lie at a multiple of {align} bytes. Got {at}: the program is damaged")
        span = self._taken[at : at + size]
        if span.any():
            raise ProgramError(f"`{where}` shares bytes with another field: the program is damaged")
        span[:] = True

    def _number(self, code: str, at: int) -> int:
        return int(struct.unpack_from("<" + code, self._data, at)[0])

    def _vtable(self, table: FlatTable, at: int, where: str) -> tuple[int, ...]:
        """Return a table's vtable: its own size, the table's size, and the place of each field in it or 0."""
        self._take(at, 4, 4, where)
        place = at - self._number("i", at)
        # Tables of one kind share a vtable, so one that was read already is not new bytes.
        if place not in self._vtables:
            self._take(place, 4, 2, f"{where} (vtable)")
            size = self._number("H", place)
            if size < 4 or size % 2:
                raise ProgramError(f"`{where}` has a vtable of {size} bytes: the program is damaged")
            self._take(place + 4, size - 4, 2, f"{where} (vtable)")
            self._vtables[place] = struct.unpack_from(f"<{size // 2}H", self._data, place)
        vtable = self._vtables[place]
        if len(vtable) > 2 + len(table):
            raise ProgramError(
                f"`{where}` has fields that version {VERSION} does not know; a newer metalforge may read it"
            )
        return vtable

    def _table(self, table: FlatTable, at: int, where: str) -> Record:
        vtable = self._vtable(table, at, where or "program")
        record: Record = {}
        end = 4
        for slot, (name, kind) in enumerate(table.items(), start=2):
            path, offset = _join(where, name), vtable[slot] if slot < len(vtable) else 0
            width = struct.calcsize("<" + kind) if isinstance(kind, str) else 4
            if offset:
                end = max(end, offset + width)
                self._take(at + offset, width, width, path)
                place = at + offset
                record[name] = self._number(kind, place) if isinstance(kind, str) else self._below(kind, place, path)
            elif isinstance(kind, str):
                record[name] = 0
            else:
                raise ProgramError(f"`{path}` is missing: the program is damaged")
            if path == "version" and record[name] != VERSION:  # the first field: what follows may be laid out otherwise
                raise ProgramError(f"`version` must be {VERSION}. Got {record[name]}; a newer metalforge may read it")
        if not end <= vtable[1] < end + 8:  # padding is never longer
            raise ProgramError(f"`{where or 'program'}` must have {end} bytes and padding. Got {vtable[1]}: damaged")
        return record

    def _below(self, kind: Below, at: int, where: str) -> Any:
        """Return what the offset at `at` points to."""
        at += self._number("I", at)
        if isinstance(kind, dict):
            return self._table(kind, at, where)
        self._take(at, 4, 4, where)
        count, start = self._number("I", at), at + 4
        if isinstance(kind, np.dtype):
            self._take(start, count * kind.itemsize, kind.itemsize, where)
            return np.frombuffer(self._data, kind, count, start)
        if isinstance(kind, Many):
            _check_count(kind, count, where)
            self._take(start, 4 * count, 4, where)
            return [self._below(kind.table, start + 4 * i, f"{where}[{i}]") for i in range(count)]
        self._take(start, count + 1, 1, where)
        try:
            text = self._data[start : start + count].decode()
        except UnicodeDecodeError as error:
            raise ProgramError(f"`{where}` must be UTF-8: {error.reason} at byte {error.start}") from error
        if self._data[start + count]:
            raise ProgramError(f"`{where}` must end in a zero byte: the program is damaged")
        return text
