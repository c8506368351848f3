import io
import re
import struct

import numpy as np
import pytest

from metalforge.lattice.io import ConfigurationFileError, read_links
from metalforge.lattice.io.ildg import find_records, read_payload, write_ildg, write_record
from reference.lattice_io import random_links, scidac_sums

DIMS = (2, 4, 2, 3)
LINKS = random_links(DIMS)
FORMAT = (
    b"<ildgFormat><version>1.0</version><field>su3gauge</field><precision>64</precision>"
    b"<lx>2</lx><ly>4</ly><lz>2</lz><lt>3</lt></ildgFormat>"
)
DATA = LINKS.astype(">c16").tobytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conf.lime"


def container(*records):
    """A LIME file of (type, payload) in one message."""
    out = io.BytesIO()
    for i, (kind, payload) in enumerate(records):
        write_record(out, kind, payload, begin=i == 0, end=i == len(records) - 1)
    return out.getvalue()


def sums(data=DATA):
    suma, sumb = scidac_sums(data, 48)
    return f"<scidacChecksum><version>1.0</version><suma>{suma:x}</suma><sumb>{sumb:x}</sumb></scidacChecksum>".encode()


def records_of(data):
    return find_records(io.BytesIO(data), len(data))


def test_64_bits_come_back_bit_by_bit(path):
    write_ildg(path, LINKS)
    found = read_links(path, "ildg")
    assert found.links.tobytes() == LINKS.tobytes()
    assert (found.dims, found.format) == (DIMS, "ildg")
    assert found.metadata == {"precision": "f64", "checksum": "verified"}


def test_32_bits_come_back(path):
    write_ildg(path, LINKS.astype(np.complex64))
    found = read_links(path, "ildg")
    assert np.array_equal(found.links, LINKS.astype(np.complex64))
    assert found.metadata["precision"] == "f32"


def test_the_file_is_laid_out_as_the_format_says(path):
    write_ildg(path, LINKS)
    data = path.read_bytes()
    magic, version, flags, length, kind = struct.unpack_from(">IHHQ128s", data)
    assert (magic, version, flags, kind.rstrip(b"\0")) == (0x456789AB, 1, 0x8000, b"ildg-format")
    assert len(data) % 8 == 0
    found = records_of(data)
    assert [r.type for r in found] == ["ildg-format", "ildg-binary-data", "scidac-checksum"]
    assert [(r.begin, r.end) for r in found] == [(True, False), (False, False), (False, True)]
    body = read_payload(io.BytesIO(data), found[1]).tobytes()
    assert body == DATA
    suma, sumb = scidac_sums(body, 48)
    assert f"<suma>{suma:x}</suma><sumb>{sumb:x}</sumb>".encode() in data
    assert length == found[0].length


def test_a_file_like_grids_without_namespace_and_with_foreign_records_is_read(path):
    records = [
        ("grid-format", b"<FieldMetaData/>\0\0"),
        ("ildg-format", FORMAT + b"\0"),
        ("ildg-data-LFN", b"lfn\0"),
        ("ildg-binary-data", DATA),
        ("scidac-checksum", sums().upper().replace(b"SUMA", b"suma").replace(b"SUMB", b"sumb")),
    ]
    path.write_bytes(container(*records))
    found = read_links(path, "ildg")
    assert found.links.tobytes() == LINKS.tobytes()
    assert found.metadata["lfn"] == "lfn"


def test_a_missing_checksum_is_said(path):
    path.write_bytes(container(("ildg-format", FORMAT), ("ildg-binary-data", DATA)))
    assert read_links(path, "ildg").metadata == {"precision": "f64", "checksum": "absent"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"su3gauge", b"su2gauge", r"record 1 \(ildg-format\): field: `su2gauge`"),
        (b"<precision>64", b"<precision>16", r"precision: `16` is not supported; known: 32, 64"),
        (
            b"<precision>64",
            b"<precision>32",
            r"record 2 \(ildg-binary-data\): has 27648 bytes, .* at 32 bits take 13824",
        ),
        (b"<lx>2</lx>", b"<lx>3</lx>", r"record 2 \(ildg-binary-data\): has 27648 bytes, 3x4x2x3 .* take 41472"),
        (b"<lx>2</lx>", b"<lx>999999999</lx>", "has 27648 bytes, 999999999x4x2x3"),
        (b"<lx>2</lx>", b"<lx>" + b"9" * 5000 + b"</lx>", "lx: wanted a positive whole number"),
        (b"<lx>2</lx>", b"", r"record 1 \(ildg-format\): lx: missing"),
        (b"<lx>2</lx>", b"<lx>2</lx><lx>4</lx>", "lx: given twice"),
        (b"<lx>2</lx>", b"<lx>2</ly>", "not well-formed XML"),
        (b"<lx>2</lx>", b"<lx>2</lx>\xff", "not UTF-8 text"),
        (b"<ildgFormat>", b'<!DOCTYPE a [<!ENTITY b "c">]><ildgFormat>', "entity declarations are refused"),
        (b"<ildgFormat>", b"<!doctype a><ildgFormat>", "entity declarations are refused"),
        (b"<lx>2</lx>", b"<lx>2</lx>" + b" " * 70000, "bytes of text, 65536 are allowed"),
    ],
)
def test_a_wrong_format_record_is_named(path, old, new, message):
    assert old in FORMAT
    path.write_bytes(container(("ildg-format", FORMAT.replace(old, new)), ("ildg-binary-data", DATA)))
    with pytest.raises(ConfigurationFileError, match=message) as caught:
        read_links(path, "ildg")
    assert str(path) in str(caught.value)


def test_a_declaration_cannot_hide_in_another_encoding(path):
    hidden = ("<!DOCTYPE a>" + FORMAT.decode()).encode("utf-16")
    path.write_bytes(container(("ildg-format", hidden), ("ildg-binary-data", DATA)))
    with pytest.raises(ConfigurationFileError, match="UTF-8"):
        read_links(path, "ildg")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (rb"<suma>\w+", b"<suma>1", r"record 3 \(scidac-checksum\): suma: the header says 1, the data give"),
        (rb"<sumb>\w+", b"<sumb>1", r"record 3 \(scidac-checksum\): sumb: the header says 1, the data give"),
        (rb"<sumb>\w+", b"<sumb>1_1", "sumb: wanted up to eight hexadecimal digits, got `1_1`"),
        (rb"<sumb>\w+</sumb>", b"", r"record 3 \(scidac-checksum\): sumb: missing"),
    ],
)
def test_a_wrong_checksum_record_is_named(path, old, new, message):
    changed = re.sub(old, new, sums())
    path.write_bytes(container(("ildg-format", FORMAT), ("ildg-binary-data", DATA), ("scidac-checksum", changed)))
    with pytest.raises(ConfigurationFileError, match=message):
        read_links(path, "ildg")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["ildg-format", "scidac-binary-data"], "no record `ildg-binary-data`; found ildg-format, scidac-binary-data"),
        (["scidac-file-xml", "ildg-binary-data"], "no record `ildg-format`"),
        (
            ["ildg-format", "ildg-binary-data", "ildg-binary-data"],
            r"record 3 \(ildg-binary-data\): record 2 has the same",
        ),
    ],
)
def test_missing_and_doubled_records_are_named(path, kinds, message):
    path.write_bytes(container(*((kind, DATA if "binary" in kind else FORMAT) for kind in kinds)))
    with pytest.raises(ConfigurationFileError, match=message):
        read_links(path, "ildg")


def test_little_endian_data_are_found_by_checksum_and_by_content(path):
    swapped = LINKS.astype("<c16").tobytes()
    path.write_bytes(container(("ildg-format", FORMAT), ("ildg-binary-data", swapped), ("scidac-checksum", sums())))
    with pytest.raises(ConfigurationFileError, match="suma"):
        read_links(path, "ildg")
    path.write_bytes(container(("ildg-format", FORMAT), ("ildg-binary-data", swapped)))
    with pytest.raises(ConfigurationFileError, match=r"not in SU\(3\)|NaN"):
        read_links(path, "ildg")


def test_links_outside_su3_and_nan(path):
    with pytest.raises(ConfigurationFileError, match="not in SU"):
        write_ildg(path, 2 * LINKS)
    write_ildg(path, 2 * LINKS, verify=False)
    with pytest.raises(ConfigurationFileError, match=r"record 2 \(ildg-binary-data\).*SU"):
        read_links(path, "ildg")
    assert np.array_equal(read_links(path, "ildg", verify=False).links, 2 * LINKS)
    bad = np.full_like(LINKS, np.inf).astype(">c16").tobytes()
    path.write_bytes(container(("ildg-format", FORMAT), ("ildg-binary-data", bad)))
    with pytest.raises(ConfigurationFileError, match="NaN"):
        read_links(path, "ildg", verify=False)


def header(kind=b"a", magic=0x456789AB, version=1, flags=0xC000, length=0):
    return struct.pack(">IHHQ128s", magic, version, flags, length, kind)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "record 1: the file is empty"),
        (b"\x45\x67\x89\xab", "record 1: 4 bytes are left, a header has 144"),
        (header(magic=1), "record 1: begins with 00000001, a LIME record with 456789ab"),
        (header(version=2), r"record 1 \(a\): LIME version 2"),
        (header(flags=0x4000), r"record 1 \(a\): follows the end of a message but does not begin one"),
        (header(flags=0x8000) + header(b"b"), r"record 2 \(b\): begins a message inside another"),
        (header(flags=0x8000), r"record 1 \(a\): the file ends inside a message"),
        (header(length=2**64 - 1), r"record 1 \(a\): says it has 18446744073709551615 bytes .* 0 are left"),
        (header(length=2**63), "says it has 9223372036854775808 bytes"),
        (header(length=5) + b"12345", r"says it has 5 bytes \(padded to 8\), 5 are left"),
        (header() + header(b"b") + b"123", "record 3: 3 bytes are left"),
        (header(b"\xff" * 128), "does not begin|"),
    ],
)
def test_hostile_containers_are_refused_by_record(data, message):
    if message.endswith("|"):
        assert len(records_of(data)[0].type) == 128
        return
    with pytest.raises(ConfigurationFileError, match=message):
        records_of(data)


def test_a_flood_of_empty_records_is_stopped():
    with pytest.raises(ConfigurationFileError, match=r"record 4097.*4096"):
        records_of(header() * 5000)


def test_several_messages_and_padding_are_followed():
    out = io.BytesIO()
    write_record(out, "one", b"123", begin=True, end=True)
    write_record(out, "two", memoryview(np.arange(3.0)), begin=True, end=True)
    write_record(out, "three", b"", begin=True, end=True)
    found = records_of(out.getvalue())
    assert [(r.number, r.type, r.length) for r in found] == [(1, "one", 3), (2, "two", 24), (3, "three", 0)]
    assert read_payload(out, found[0]).tobytes() == b"123"
