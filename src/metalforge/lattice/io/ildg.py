"""ILDG files: a LIME container with the links as one big-endian record.

Records read and written: `ildg-format` (XML: field, precision, lx, ly, lz, lt), `ildg-binary-data` (sites with x
fastest, four links x, y, z, t, three rows each), `ildg-data-lfn` (the logical file name) and `scidac-checksum` (XML:
suma, sumb). Others are passed over. Formats as in https://github.com/usqcd-software/qio and
https://github.com/paboyle/Grid, Grid/parallelIO/IldgIO.h; the schema is http://www.lqcd.org/ildg/filefmt.xsd.

A LIME container is a row of typed records, grouped into messages. Each record has a header of 144 big-endian bytes
(magic number, version, flags, length, a type of up to 127 characters) and a payload padded to a multiple of eight
bytes. The layout and the rule for the flags are those of https://github.com/usqcd-software/c-lime,
include/lime_binary_header.h and lib/lime_reader.c.
"""

import math
import struct
from typing import Any, BinaryIO, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from metalforge.core import PathLike

from . import _links as files
from ._links import ConfigurationFileError, HeaderFields, StoredLinks

LIME_MAGIC = bytes.fromhex("456789ab")

_HEADER = struct.Struct(">4sHHQ128s")
_VERSION = 1
_BEGIN, _END = 0x8000, 0x4000
_MAX_RECORDS = 4096  # real files hold about ten; a file of empty records must not fill the memory

_FORMAT, _DATA, _LFN, _CHECKSUM = "ildg-format", "ildg-binary-data", "ildg-data-lfn", "scidac-checksum"
_BITS = {"32": ">f4", "64": ">f8"}
_MAX_TEXT_BYTES = 65536  # real XML records have a few hundred bytes

_FORMAT_XML = """<?xml version="1.0" encoding="UTF-8"?>
<ildgFormat xmlns="http://www.lqcd.org/ildg" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.lqcd.org/ildg http://www.lqcd.org/ildg/filefmt.xsd">
  <version>1.0</version>
  <field>su3gauge</field>
  <precision>{}</precision>
  <lx>{}</lx><ly>{}</ly><lz>{}</lz><lt>{}</lt>
</ildgFormat>
"""
_CHECKSUM_XML = """<?xml version="1.0" encoding="UTF-8"?>
<scidacChecksum><version>1.0</version><suma>{suma:x}</suma><sumb>{sumb:x}</sumb></scidacChecksum>
"""


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
            wrong = "follows the end of a message but does not begin one"
            raise ConfigurationFileError(f"{record}: {wrong if ended else 'begins a message inside another'} (flag MB)")
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
    return files.read_bytes(stream, record.length, str(record))


def write_record(stream: BinaryIO, type: str, payload: bytes | memoryview, *, begin: bool, end: bool) -> None:
    """Append one record."""
    size = memoryview(payload).nbytes
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
    head = files.read_bytes(stream, _HEADER.size, where).tobytes()
    magic, version, flags, length, raw = _HEADER.unpack(head)
    if magic != LIME_MAGIC:
        raise ConfigurationFileError(f"{where}: begins with {magic.hex()}, a LIME record with {LIME_MAGIC.hex()}")
    name = raw.split(b"\0")[0].decode("ascii", errors="replace")
    record = LimeRecord(number, name, bool(flags & _BEGIN), bool(flags & _END), position + _HEADER.size, length)
    if version != _VERSION:
        raise ConfigurationFileError(f"{record}: LIME version {version}, {_VERSION} is supported")
    if _padded(length) > size - record.offset:
        raise ConfigurationFileError(
            f"{record}: says it has {length} bytes (padded to {_padded(length)}), {size - record.offset} are left"
        )
    return record


def read_ildg(path: PathLike) -> StoredLinks:
    """The links of an ILDG file.

    `metadata` holds `precision`, `lfn` where the file has one, and `checksum`: `verified`, or `absent` because ILDG
    does not ask for a checksum record. ILDG has no plaquette.
    """
    with files.opened(path) as (stream, size):
        records = _unique(find_records(stream, size))
        record, said = records[_DATA], _read_xml(stream, records[_FORMAT])
        said.chosen("field", {"su3gauge": True})
        dtype, dims = np.dtype(said.chosen("precision", _BITS)), said.dims(("lx", "ly", "lz", "lt"))
        if record.length != (wanted := math.prod(dims) * files.REALS_PER_SITE * dtype.itemsize):
            raise ConfigurationFileError(
                f"{record}: has {record.length} bytes, {'x'.join(map(str, dims))} at {said['precision']} bits take "
                f"{wanted}"
            )
        metadata = {"precision": f"f{said['precision']}", "checksum": "absent"}
        if _LFN in records:
            metadata["lfn"] = _read_text(stream, records[_LFN])
        data = read_payload(stream, record)
        if _CHECKSUM in records:
            sums = _read_xml(stream, records[_CHECKSUM])
            for name, found in files.scidac_sums(data, dims).items():
                sums.check_sum(name, found)
            metadata["checksum"] = "verified"
        values = data.view(dtype)
        return StoredLinks(files.as_links(values.astype(dtype.newbyteorder("=")), dims), metadata, str(record))


def write_ildg(path: PathLike, links: NDArray[Any], *, verify: bool = True) -> None:
    """Write `links` in their precision, with a SciDAC checksum; `verify=False` lets links outside SU(3) pass."""
    links = files.ready_to_write(links, verify)
    data, dims = links.astype(links.dtype.newbyteorder(">")).reshape(-1).view(np.uint8), files.dims_of(links)
    sums = _CHECKSUM_XML.format(**files.scidac_sums(data, dims))
    with files.replacing(path) as stream:
        head = _FORMAT_XML.format(4 * links.itemsize, *dims)
        write_record(stream, _FORMAT, head.encode(), begin=True, end=False)
        write_record(stream, _DATA, data.data, begin=False, end=False)
        write_record(stream, _CHECKSUM, sums.encode(), begin=False, end=True)


def _unique(records: list[LimeRecord]) -> dict[str, LimeRecord]:
    """The records this module reads, by type; two of the same kind would leave open which one counts."""
    found: dict[str, LimeRecord] = {}
    for record in records:
        kind = _LFN if record.type.lower() == _LFN else record.type  # both spellings are in use
        if kind in (_FORMAT, _DATA, _LFN, _CHECKSUM) and found.setdefault(kind, record) != record:
            raise ConfigurationFileError(f"{record}: record {found[kind].number} has the same type; one is expected")
    for kind in (_FORMAT, _DATA):
        if kind not in found:
            types = ", ".join(record.type for record in records)[:400]
            raise ConfigurationFileError(f"no record `{kind}`; found {types}")
    return found


def _read_text(stream: BinaryIO, record: LimeRecord) -> str:
    if record.length > _MAX_TEXT_BYTES:
        raise ConfigurationFileError(f"{record}: {record.length} bytes of text, {_MAX_TEXT_BYTES} are allowed")
    raw = read_payload(stream, record).tobytes().rstrip(b"\0")  # QIO counts the closing zero of a C string
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationFileError(f"{record}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def _read_xml(stream: BinaryIO, record: LimeRecord) -> HeaderFields:
    """The leaves of a flat XML record by tag, without namespace: QIO writes one, Grid does not."""
    text = _read_text(stream, record)
    # Decoded first, so that no other encoding can hide a declaration; without one there is no entity to expand.
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise ConfigurationFileError(f"{record}: document type and entity declarations are refused")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigurationFileError(f"{record}: not well-formed XML ({error})") from error
    leaves = HeaderFields()
    leaves.place = f"{record}: "
    for leaf in root:
        leaves.add(str(leaf.tag).rpartition("}")[2], (leaf.text or "").strip())
    return leaves
