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

import re
import struct
from typing import Any, BinaryIO, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from metalforge.core import PathLike

from . import _links as files
from ._links import ConfigurationFileError, Dims, LoadedLinks, Precision

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


_FORMAT, _DATA, _LFN, _CHECKSUM = "ildg-format", "ildg-binary-data", "ildg-data-lfn", "scidac-checksum"
_BITS: dict[Precision, str] = {"f32": "32", "f64": "64"}
_MAX_TEXT_BYTES = 65536  # real XML records have a few hundred bytes
_HEXADECIMAL = re.compile(r"(0[xX])?[0-9a-fA-F]{1,8}")

_FORMAT_XML = """<?xml version="1.0" encoding="UTF-8"?>
<ildgFormat xmlns="http://www.lqcd.org/ildg" \
xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.lqcd.org/ildg http://www.lqcd.org/ildg/filefmt.xsd">
  <version>1.0</version>
  <field>su3gauge</field>
  <precision>{bits}</precision>
  <lx>{nx}</lx><ly>{ny}</ly><lz>{nz}</lz><lt>{nt}</lt>
</ildgFormat>
"""
_CHECKSUM_XML = """<?xml version="1.0" encoding="UTF-8"?>
<scidacChecksum><version>1.0</version><suma>{suma:x}</suma><sumb>{sumb:x}</sumb></scidacChecksum>
"""


def read_ildg(path: PathLike, *, verify: bool = True) -> LoadedLinks:
    """The links of an ILDG file.

    `metadata` holds `precision`, `lfn` where the file has one, and `checksum`: `verified`, or `absent` because ILDG
    does not ask for a checksum record. `verify` also checks that the links are in SU(3); ILDG has no plaquette.
    """
    with files.opened(path) as (stream, size):
        records = _unique(find_records(stream, size))
        dims, precision = _read_format(stream, records)
        metadata = {"precision": precision, "checksum": "absent"}
        if _LFN in records:
            metadata["lfn"] = _read_text(stream, records[_LFN])
        data = _read_data(stream, records, dims, precision)
        if _CHECKSUM in records:
            _check_sums(stream, records[_CHECKSUM], data, dims)
            metadata["checksum"] = "verified"
        values = data.view(">f4" if precision == "f32" else ">f8")
        files.check_finite(values, str(records[_DATA]))
        links = values.astype(np.float64).view(np.complex128).reshape(files.shape_of(dims))
        if verify:
            files.check_special_unitary(links, precision, str(records[_DATA]))
        return LoadedLinks(links=links, dims=dims, format="ildg", metadata=metadata)


def write_ildg(path: PathLike, links: NDArray[Any], *, verify: bool = True) -> None:
    """Write `links` in their precision, with a SciDAC checksum; `verify=False` lets links outside SU(3) pass."""
    precision = files.precision_of(links)
    narrow = files.ready_to_write(links, precision, verify)
    data = narrow.astype(">c8" if precision == "f32" else ">c16").reshape(-1).view(np.uint8)
    nx, ny, nz, nt = files.dims_of(links)
    suma, sumb = files.rotated_xor(files.site_crcs(data.data, nx * ny * nz * nt))
    head = _FORMAT_XML.format(bits=_BITS[precision], nx=nx, ny=ny, nz=nz, nt=nt)
    with files.replacing(path) as stream:
        write_record(stream, _FORMAT, head.encode(), begin=True, end=False)
        write_record(stream, _DATA, data.data, begin=False, end=False)
        write_record(stream, _CHECKSUM, _CHECKSUM_XML.format(suma=suma, sumb=sumb).encode(), begin=False, end=True)


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


def _read_xml(stream: BinaryIO, record: LimeRecord) -> dict[str, str]:
    """The leaves of a flat XML record by tag, without namespace: QIO writes one, Grid does not."""
    text = _read_text(stream, record)
    # Decoded first, so that no other encoding can hide a declaration; without one there is no entity to expand.
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise ConfigurationFileError(f"{record}: document type and entity declarations are refused")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigurationFileError(f"{record}: not well-formed XML ({error})") from error
    leaves: dict[str, str] = {}
    for leaf in root:
        tag, value = str(leaf.tag).rpartition("}")[2], (leaf.text or "").strip()
        if leaves.setdefault(tag, value) != value:
            raise ConfigurationFileError(f"{record}: <{tag[:40]}> is given twice with different values")
    return leaves


def _leaf(record: LimeRecord, leaves: dict[str, str], tag: str) -> str:
    if tag not in leaves:
        raise ConfigurationFileError(f"{record}: <{tag}> is missing")
    return leaves[tag]


def _read_format(stream: BinaryIO, records: dict[str, LimeRecord]) -> tuple[Dims, Precision]:
    record = records[_FORMAT]
    leaves = _read_xml(stream, record)
    field, bits = _leaf(record, leaves, "field"), _leaf(record, leaves, "precision")
    if field != "su3gauge":
        raise ConfigurationFileError(f"{record}: <field> is `{field[:40]}`, su3gauge is supported")
    precisions = {said: precision for precision, said in _BITS.items()}
    if bits not in precisions:
        raise ConfigurationFileError(f"{record}: <precision> is `{bits[:40]}`, 32 and 64 are supported")
    nx, ny, nz, nt = (
        files.parse_extent(_leaf(record, leaves, tag), f"{record} <{tag}>") for tag in ("lx", "ly", "lz", "lt")
    )
    return (nx, ny, nz, nt), precisions[bits]


def _read_data(stream: BinaryIO, records: dict[str, LimeRecord], dims: Dims, precision: Precision) -> NDArray[np.uint8]:
    record = records[_DATA]
    nx, ny, nz, nt = dims
    wanted = nx * ny * nz * nt * files.REALS_PER_SITE * (4 if precision == "f32" else 8)
    if record.length != wanted:
        raise ConfigurationFileError(
            f"{record}: has {record.length} bytes, {nx}x{ny}x{nz}x{nt} at {_BITS[precision]} bits take {wanted}"
        )
    return read_payload(stream, record)


def _check_sums(stream: BinaryIO, record: LimeRecord, data: NDArray[np.uint8], dims: Dims) -> None:
    leaves = _read_xml(stream, record)
    nx, ny, nz, nt = dims
    found = files.rotated_xor(files.site_crcs(data.data, nx * ny * nz * nt))
    for tag, value in zip(("suma", "sumb"), found, strict=True):
        text = _leaf(record, leaves, tag)
        if not _HEXADECIMAL.fullmatch(text):
            raise ConfigurationFileError(f"{record}: <{tag}> wants up to eight hexadecimal digits, got `{text[:40]}`")
        if int(text, 16) != value:
            raise ConfigurationFileError(f"{record}: <{tag}> says {int(text, 16):x}, the data give {value:x}")
