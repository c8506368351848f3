"""LIME containers: a file as a row of typed records, grouped into messages.

Each record has a header of 144 big-endian bytes (magic number, version, flags, length, a type of up to 127
characters) and a payload padded to a multiple of eight bytes. The layout and the rule for the flags are those of
https://github.com/usqcd-software/c-lime, include/lime_binary_header.h and lib/lime_reader.c.
"""

import struct
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._links import ConfigurationFileError, read_bytes

__all__ = ["LIME_MAGIC", "LimeRecord", "find_records", "read_payload", "write_record"]

LIME_MAGIC = bytes.fromhex("456789ab")

_HEADER = struct.Struct(">4sHHQ128s")
_VERSION = 1
_BEGIN, _END = 0x8000, 0x4000
_MAX_RECORDS = 4096  # real files hold about ten; a file of empty records must not fill the memory


class LimeRecord(NamedTuple):
    """A record: `number` counts from 1, `offset` is where the payload starts, the flags open and close a message."""

    number: int
    type: str
    begin: bool
    end: bool
    offset: int
    length: int

    def __str__(self) -> str:
        return f"record {self.number} ({self.type})"


def find_records(stream: BinaryIO, size: int) -> list[LimeRecord]:
    """All records of a LIME file of `size` bytes; no payload is read.

    Raises where a header is cut off or foreign, a length passes the end of the file, or a message is not closed: a
    file cut between two records shows only in the last of these.
    """
    records: list[LimeRecord] = []
    position, ended = 0, True
    while position < size:
        number = len(records) + 1
        if number > _MAX_RECORDS:
            raise ConfigurationFileError(f"record {number}: more than {_MAX_RECORDS} records; not a configuration")
        record = _read_header(stream, size, position, number)
        if record.begin != ended:
            state = (
                "follows the end of a message but does not begin one" if ended else "begins a message inside another"
            )
            raise ConfigurationFileError(f"{record}: {state} (flag MB)")
        records.append(record)
        position, ended = record.offset + _padded(record.length), record.end
    if not records:
        raise ConfigurationFileError("record 1: the file is empty")
    if not ended:
        raise ConfigurationFileError(f"{records[-1]}: the file ends inside a message (flag ME); it has been cut off")
    return records


def read_payload(stream: BinaryIO, record: LimeRecord) -> NDArray[np.uint8]:
    """The bytes of a record's payload, without padding."""
    stream.seek(record.offset)
    return read_bytes(stream, record.length, str(record))


def write_record(stream: BinaryIO, type: str, payload: bytes | memoryview, *, begin: bool, end: bool) -> None:
    """Append one record."""
    if not 0 < len(type) < 128 or not type.isascii():
        raise ConfigurationFileError(f"a record type has 1 to 127 ASCII characters, got `{type[:40]}`")
    size = len(payload) if isinstance(payload, bytes) else payload.nbytes
    flags = (_BEGIN if begin else 0) | (_END if end else 0)
    stream.write(_HEADER.pack(LIME_MAGIC, _VERSION, flags, size, type.encode()))
    stream.write(payload)
    stream.write(bytes(_padded(size) - size))


def _padded(length: int) -> int:
    return -(-length // 8) * 8


def _read_header(stream: BinaryIO, size: int, position: int, number: int) -> LimeRecord:
    where = f"record {number}"
    if size - position < _HEADER.size:
        raise ConfigurationFileError(f"{where}: {size - position} bytes are left, a header has {_HEADER.size}")
    stream.seek(position)
    head = read_bytes(stream, _HEADER.size, where).tobytes()
    magic, version, flags, length, raw = _HEADER.unpack(head)
    if magic != LIME_MAGIC:
        raise ConfigurationFileError(
            f"{where}: begins with {magic.hex()}, a LIME record begins with {LIME_MAGIC.hex()}"
        )
    name = raw.split(b"\0")[0].decode("ascii", errors="replace")
    record = LimeRecord(number, name, bool(flags & _BEGIN), bool(flags & _END), position + _HEADER.size, length)
    if version != _VERSION:
        raise ConfigurationFileError(f"{record}: LIME version {version}, {_VERSION} is supported")
    if _padded(length) > size - record.offset:
        raise ConfigurationFileError(
            f"{record}: says it has {length} bytes (padded to {_padded(length)}), {size - record.offset} are left"
        )
    return record
