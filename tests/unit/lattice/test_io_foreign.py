"""MILC and openQCD: formats of other programs that are only read."""

import struct

import numpy as np
import pytest

from metalforge.lattice.io import ConfigurationFileError, read_links
from metalforge.lattice.observables import plaquette_of
from reference.lattice_io import milc_bytes, openqcd_bytes, random_links

DIMS = (4, 2, 6, 2)
LINKS = random_links(DIMS)
MILC = {order: milc_bytes(LINKS, order) for order in "<>"}
OPENQCD = openqcd_bytes(LINKS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conf"


@pytest.mark.parametrize(("order", "name"), [("<", "little"), (">", "big")])
def test_milc_files_of_either_byte_order_are_read(path, order, name):
    path.write_bytes(MILC[order])
    found = read_links(path, "milc")
    assert np.array_equal(found.links, LINKS.astype(np.complex64))
    assert (found.dims, found.format) == (DIMS, "milc")
    assert found.metadata["time_stamp"] == "Mon Jan  1 00:00:00 2024"
    assert found.metadata["byte_order"] == name


def test_milc_sums_do_not_depend_on_the_byte_order():
    assert struct.unpack_from("<II", MILC["<"], 88) == struct.unpack_from(">II", MILC[">"], 88)


def milc_with(offset, fmt, *values):
    data = bytearray(MILC["<"])
    struct.pack_into(fmt, data, offset, *values)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "header: the file has 0 bytes, a MILC header 96"),
        (MILC["<"][:95], "header: the file has 95 bytes"),
        (MILC["<"][:-1], r"data: dims 4 2 6 2 ask for 27648 bytes, 27647 follow"),
        (MILC["<"] + b"\0", "27649 follow"),
        (milc_with(0, "<I", 20104), "magic: the first four bytes are 884e0000, wanted 20103"),
        (milc_with(4, "<i", 3), "dims 3 2 6 2 ask for"),
        (milc_with(4, "<i", -4), "dims: wanted positive extents, got -4"),
        (milc_with(4, "<4i", *[2**31 - 1] * 4), "dims 2147483647 .* ask for"),
        (milc_with(84, "<i", 1), r"order: 1 \(node dump order\) is not supported(.|\n)*save_serial"),
        (milc_with(88, "<I", 1), "sum29: the header says 1, the data give"),
        (milc_with(92, "<I", 1), "sum31: the header says 1, the data give"),
        (milc_bytes(2 * LINKS), r"data: .* not in SU\(3\)"),
        (milc_bytes(LINKS * np.inf), "data: holds NaN or infinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf * 0 while the test makes its links
def test_wrong_milc_files_name_their_field(path, data, message):
    path.write_bytes(data)
    with pytest.raises(ConfigurationFileError, match=message) as caught:
        read_links(path, "milc")
    assert str(path) in str(caught.value)


def test_milc_links_outside_su3_are_read_without_verify(path):
    path.write_bytes(milc_bytes(2 * LINKS))
    assert np.array_equal(read_links(path, "milc", verify=False).links, (2 * LINKS).astype(np.complex64))


def test_milc_data_swapped_under_their_header_are_found(path):
    body = np.frombuffer(MILC["<"][96:], "<u4").byteswap().tobytes()
    path.write_bytes(MILC["<"][:96] + body)
    with pytest.raises(ConfigurationFileError, match="sum29"):
        read_links(path, "milc")


def test_openqcd_files_are_read_bit_by_bit(path):
    path.write_bytes(OPENQCD)
    found = read_links(path, "openqcd")
    assert found.links.tobytes() == LINKS.tobytes()
    assert found.links.flags.c_contiguous
    assert (found.dims, found.format) == (DIMS, "openqcd")
    assert float(found.metadata["plaquette"]) == pytest.approx(plaquette_of(LINKS), abs=1e-14)


def openqcd_with(offset, fmt, *values):
    data = bytearray(OPENQCD)
    struct.pack_into(fmt, data, offset, *values)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "header: the file has 0 bytes, an openQCD header 24"),
        (OPENQCD[:-8], "header: sizes Nt, Nx, Ny, Nz = 2 4 2 6 must be even"),
        (OPENQCD + b"\0", "header: sizes"),
        (openqcd_with(0, "<i", 3), "Nt, Nx, Ny, Nz = 3 4 2 6 must be even"),
        (openqcd_with(0, "<i", -2), "= -2 4 2 6"),
        (openqcd_with(0, "<4i", *[2**31 - 2] * 4), "= 2147483646 2147483646"),
        (openqcd_with(0, ">4i", 2, 4, 2, 6), "must be even and positive"),
        # The same volume with the sizes exchanged: links land elsewhere, the plaquette disagrees.
        (openqcd_with(0, "<4i", 2, 6, 2, 4), "plaquette: the header says"),
        (openqcd_with(16, "<d", float("nan")), "plaquette: the header says nan"),
        (openqcd_with(16, "<d", plaquette_of(LINKS)), "plaquette: the header says .* another convention"),
        (openqcd_with(24, "<d", float("inf")), "data: holds NaN or infinite"),
        (openqcd_bytes(2 * LINKS, 0.5), r"not in SU\(3\)"),
        (OPENQCD[:24] + np.frombuffer(OPENQCD[24:], "<f8").byteswap().tobytes(), r"NaN|not in SU\(3\)"),
    ],
)
def test_wrong_openqcd_files_name_their_field(path, data, message):
    path.write_bytes(data)
    with pytest.raises(ConfigurationFileError, match=message) as caught:
        read_links(path, "openqcd")
    assert str(path) in str(caught.value)


def test_openqcd_links_of_open_boundaries_are_read_without_verify(path):
    opened = LINKS.copy()
    opened[-1, ..., 3, :, :] = 0
    path.write_bytes(openqcd_bytes(opened))
    with pytest.raises(ConfigurationFileError, match=r"SU\(3\)(.|\n)*open boundary"):
        read_links(path, "openqcd")
    assert np.array_equal(read_links(path, "openqcd", verify=False).links, opened)
