import re

import numpy as np
import pytest

from metalforge.lattice.io import ConfigurationFileError, read_links
from metalforge.lattice.io._links import link_trace
from metalforge.lattice.io.nersc import write_nersc
from metalforge.lattice.observables import plaquette_of
from reference.lattice_io import nersc_bytes, random_links

DIMS = (2, 4, 2, 3)
LINKS = random_links(DIMS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conf"


def read_nersc(path, **options):
    return read_links(path, "nersc", **options)


def write(path):
    write_nersc(path, LINKS)
    return path.read_bytes()


def edit(path, old, new):
    data = path.read_bytes()
    assert re.search(old, data)
    path.write_bytes(re.sub(old, new, data, count=1))


@pytest.mark.parametrize("floating_point", ["IEEE64BIG", "IEEE64LITTLE"])
def test_three_rows_of_64_bits_come_back_bit_by_bit(path, floating_point):
    path.write_bytes(nersc_bytes(LINKS, floating_point=floating_point))
    found = read_nersc(path)
    assert found.links.tobytes() == LINKS.tobytes()
    assert (found.dims, found.format, found.links.dtype) == (DIMS, "nersc", np.complex128)
    assert found.metadata["FLOATING_POINT"] == floating_point


@pytest.mark.parametrize("floating_point", ["IEEE32", "IEEE32BIG", "IEEE32LITTLE"])
def test_three_rows_of_32_bits_come_back_as_rounded(path, floating_point):
    path.write_bytes(nersc_bytes(LINKS, floating_point=floating_point))
    assert np.array_equal(read_nersc(path).links, LINKS.astype(np.complex64))


@pytest.mark.parametrize(("floating_point", "atol"), [("IEEE64BIG", 1e-14), ("IEEE32LITTLE", 1e-6)])
def test_two_rows_are_completed(path, floating_point, atol):
    path.write_bytes(nersc_bytes(LINKS, rows=2, floating_point=floating_point))
    found = read_nersc(path)
    assert found.metadata["DATATYPE"] == "4D_SU3_GAUGE"
    assert np.allclose(found.links, LINKS, atol=atol, rtol=0)


def test_single_precision_links_choose_single_precision(path):
    single = LINKS.astype(np.complex64)
    write_nersc(path, single)
    found = read_nersc(path)
    assert found.metadata["FLOATING_POINT"] == "IEEE32BIG"
    assert np.array_equal(found.links, single)


def test_the_file_is_laid_out_as_the_format_says(path):
    data = write(path)
    head, body = data.split(b"END_HEADER\n", 1)
    assert head.startswith(b"BEGIN_HEADER\nHDR_VERSION = 1.0\nDATATYPE = 4D_SU3_GAUGE_3x3\n")
    for line in (
        *(f"DIMENSION_{i} = {n}" for i, n in enumerate(DIMS, start=1)),
        f"PLAQUETTE = {plaquette_of(LINKS):.12g}",
        f"LINK_TRACE = {link_trace(LINKS):.12g}",
        "SEQUENCE_NUMBER = 0",
    ):
        assert f"\n{line}\n".encode() in head
    # x runs fastest: the second site of the file is x = 1; each has four links of nine complex numbers.
    second = np.frombuffer(body[576 : 576 + 144], ">c16").reshape(3, 3)
    assert np.array_equal(second, LINKS[0, 0, 0, 1, 0])
    words = np.frombuffer(body, ">u4").astype(object)
    assert f"\nCHECKSUM = {int(words.sum()) % 2**32:x}\n".encode() in head


def test_the_checksum_does_not_depend_on_the_byte_order(path):
    sums = set()
    for name in ("IEEE64BIG", "IEEE64LITTLE"):
        path.write_bytes(nersc_bytes(LINKS, floating_point=name))
        sums.add(read_nersc(path).metadata["CHECKSUM"])
    assert len(sums) == 1


def test_headers_of_other_programs_are_understood(path):
    """Padding, capitals in the checksum, a carriage return, unknown keys and a comment line."""
    write(path)
    edit(path, rb"CHECKSUM = (\w+)\n", lambda m: b"CHECKSUM =   " + m[1].upper() + b"\r\nBETA = 6.0\nno equals sign\n")
    edit(path, rb"CREATOR = [^\n]*", b"CREATOR = Andr\xe9")
    found = read_nersc(path)
    assert found.metadata["BETA"] == "6.0"
    assert found.links.tobytes() == LINKS.tobytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (rb"BEGIN_HEADER", b"BEGIN_FOOTER", "BEGIN_HEADER"),
        (rb"END_HEADER\n", b"END_HEADEE\n", "no END_HEADER line"),
        (rb"DATATYPE = [^\n]*\n", b"", "DATATYPE: missing"),
        (rb"4D_SU3_GAUGE_3x3", b"4D_SU2_GAUGE_2x2", "DATATYPE: `4D_SU2_GAUGE_2x2` is not supported; known: 4D_SU3"),
        (rb"IEEE64BIG", b"IEEE16BIG", "FLOATING_POINT: `IEEE16BIG` is not supported"),
        (rb"DIMENSION_2 = 4\n", b"", "DIMENSION_2: missing"),
        (
            rb"DIMENSION_2 = 4",
            b"DIMENSION_2 = 5",
            r"data: DIMENSION_1..4 = 2 5 2 3.* ask for 34560 bytes, 27648 follow",
        ),
        (rb"DIMENSION_2 = 4", b"DIMENSION_2 = four", "DIMENSION_2: wanted a positive whole number, got `four`"),
        (rb"DIMENSION_2 = 4", b"DIMENSION_2 = 4\nDIMENSION_2 = 2", "DIMENSION_2: given twice, as `4` and `2`"),
        (rb"DIMENSION_2 = 4", b"DIMENSION_2 = 1234567890", "DIMENSION_2: wanted a positive whole number"),
        (rb"CHECKSUM = \w+\n", b"CHECKSUM = 123\n", "CHECKSUM: the header says 123, the data give"),
        (rb"CHECKSUM = \w+\n", b"CHECKSUM = 1_2\n", "CHECKSUM: wanted up to eight hexadecimal digits"),
        (rb"CHECKSUM = \w+\n", b"", "CHECKSUM: missing"),
        (rb"PLAQUETTE = [^\n]*", b"PLAQUETTE = 0.59", "PLAQUETTE: the header says 0.59, the links give"),
        (rb"PLAQUETTE = [^\n]*", b"PLAQUETTE = nan", "PLAQUETTE: wanted a number, got `nan`"),
        (rb"LINK_TRACE = [^\n]*", b"LINK_TRACE = 0.1", "LINK_TRACE: the header says 0.1"),
        (rb"LINK_TRACE = [^\n]*", b"LINK_TRACE = ?", "LINK_TRACE: wanted a number"),
    ],
)
def test_a_wrong_header_names_its_field(path, old, new, message):
    write(path)
    edit(path, old, new)
    with pytest.raises(ConfigurationFileError, match=message) as caught:
        read_nersc(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("said", "is_"), [("IEEE64LITTLE", "IEEE64BIG"), ("IEEE32", "IEEE32LITTLE")])
def test_the_wrong_byte_order_is_recognised(path, said, is_):
    path.write_bytes(nersc_bytes(LINKS, floating_point=is_))
    edit(path, is_.encode(), said.encode())
    with pytest.raises(ConfigurationFileError, match=r"CHECKSUM: (.|\n)*hint: .*byte order"):
        read_nersc(path)


def test_the_wrong_width_is_a_wrong_size(path):
    write(path)
    edit(path, rb"IEEE64BIG", b"IEEE32BIG")
    with pytest.raises(ConfigurationFileError, match=r"13824 .*27648 "):
        read_nersc(path)


def test_a_header_without_end_is_read_only_so_far(path):
    path.write_bytes(b"BEGIN_HEADER\n" + b"KEY = value\n" * 20_000)
    with pytest.raises(ConfigurationFileError, match=r"END_HEADER.*65536"):
        read_nersc(path)


def test_links_outside_su3_need_verify_false(path):
    scaled = 2 * LINKS
    with pytest.raises(ConfigurationFileError, match=r"links: .*SU\(3\)"):
        write_nersc(path, scaled)
    assert not path.exists()
    write_nersc(path, scaled, verify=False)
    with pytest.raises(ConfigurationFileError, match=r"data: .*SU\(3\)"):
        read_nersc(path)
    assert np.array_equal(read_nersc(path, verify=False).links, scaled)


@pytest.mark.parametrize("said", [b"", b"LINK_TRACE = nan"])
def test_a_header_that_says_nothing_of_the_links_is_read_without_verify(path, said):
    write(path)
    edit(path, rb"LINK_TRACE = [^\n]*", said)
    with pytest.raises(ConfigurationFileError, match="LINK_TRACE"):
        read_nersc(path)
    assert np.array_equal(read_nersc(path, verify=False).links, LINKS)


def test_nan_is_refused_even_without_verify(path):
    bad = LINKS.copy()
    bad[0, 0, 0, 0, 0, 0, 0] = np.nan
    with pytest.raises(ConfigurationFileError, match=r"links: .*NaN"):
        write_nersc(path, bad, verify=False)
    write(path)
    data = path.read_bytes()
    start = data.index(b"END_HEADER\n") + len(b"END_HEADER\n")
    body = bytearray(data[start:])
    body[:8] = bytes.fromhex("7ff4000000000001")  # a signalling NaN
    total = int(np.frombuffer(bytes(body), ">u4").astype(object).sum()) % 2**32
    path.write_bytes(re.sub(rb"CHECKSUM = \w+", b"CHECKSUM = %x" % total, data[:start]) + bytes(body))
    for verify in (True, False):
        with pytest.raises(ConfigurationFileError, match=r"data: .*NaN"):
            read_nersc(path, verify=verify)
