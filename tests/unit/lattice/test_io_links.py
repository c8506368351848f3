import tracemalloc

import h5py
import numpy as np
import pytest

from metalforge.core.errors import UnknownNameError
from metalforge.lattice.io import ConfigurationFileError, guess_format, read_links, write_links
from reference.lattice_io import milc_bytes, openqcd_bytes, random_links

DIMS = (4, 2, 2, 6)
LINKS = random_links(DIMS)
FILES = {"milc": milc_bytes(LINKS), "milc-big": milc_bytes(LINKS, ">"), "openqcd": openqcd_bytes(LINKS)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conf"


@pytest.mark.parametrize("name", ["nersc", "ildg", "hdf5"])
def test_written_links_are_recognised_and_come_back_bit_by_bit(path, name):
    write_links(path, LINKS, name)
    assert guess_format(path) == name
    found = read_links(str(path))
    assert (found.format, found.dims, found.links.dtype) == (name, DIMS, np.complex128)
    assert found.links.tobytes() == LINKS.tobytes()
    assert read_links(path, name).links.tobytes() == LINKS.tobytes()
    assert all(isinstance(value, str) for value in found.metadata.values())


@pytest.mark.parametrize("name", ["nersc", "ildg", "hdf5"])
def test_single_precision_links_are_widened_on_reading(path, name):
    single = LINKS.astype(np.complex64)
    write_links(path, single, name)
    assert np.array_equal(read_links(path).links, single)


@pytest.mark.parametrize(("name", "format"), [("milc", "milc"), ("milc-big", "milc"), ("openqcd", "openqcd")])
def test_files_of_other_programs_are_recognised(path, name, format):
    path.write_bytes(FILES[name])
    found = read_links(path)
    assert (found.format, found.dims) == (format, DIMS)
    assert np.allclose(found.links, LINKS, atol=1e-6, rtol=0)


def test_converting_through_every_format_changes_nothing(path):
    for name in ("nersc", "ildg", "hdf5"):
        write_links(path, read_links(path).links if path.exists() else LINKS, name)
    assert read_links(path).links.tobytes() == LINKS.tobytes()


def test_unknown_formats_are_answered_with_the_known_ones(path):
    with pytest.raises(UnknownNameError, match=r"`milc`.*hdf5, ildg, nersc"):
        write_links(path, LINKS, "milc")
    write_links(path, LINKS, "nersc")
    with pytest.raises(UnknownNameError, match=r"known: hdf5, ildg, milc, nersc, openqcd(.|\n)*did you mean `nersc`"):
        read_links(path, "nersk")


@pytest.mark.parametrize("data", [b"", b"abc", b"\0" * 24, b"x" * 1000, FILES["openqcd"][:-1]])
def test_unknown_files_are_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(ConfigurationFileError, match=r"configuration format(.|\n)*nersc, ildg, hdf5"):
        read_links(path)


def test_a_named_format_is_not_guessed_again(path):
    path.write_bytes(FILES["milc"])
    for name in ("nersc", "ildg", "hdf5", "openqcd"):
        with pytest.raises(ConfigurationFileError):
            read_links(path, name)


def test_verify_false_reaches_every_reader(path):
    for name in ("nersc", "ildg"):
        write_links(path, 2 * LINKS, name, verify=False)
        with pytest.raises(ConfigurationFileError, match="not in SU"):
            read_links(path)
        assert np.array_equal(read_links(path, verify=False).links, 2 * LINKS)


def huge_nersc(data):
    return data.replace(b"DIMENSION_1 = 4", b"DIMENSION_1 = 999999999").replace(
        b"DIMENSION_4 = 6", b"DIMENSION_4 = 99999999"
    )


def huge_ildg(data):
    at = data.index(b"ildg-binary-data") - 8
    return data[:at] + (2**62).to_bytes(8, "big") + data[at + 8 :]


def huge_ints(start, n, order):
    return lambda data: data[:start] + (2**30).to_bytes(4, order) * n + data[start + 4 * n :]


@pytest.mark.parametrize(
    ("name", "forge"),
    [
        ("nersc", huge_nersc),
        ("ildg", huge_ildg),
        ("ildg", lambda data: data.replace(b"<lx>4</lx>", b"<lx>9</lx>").replace(b"<precision>64", b"<precision>32")),
        ("milc", huge_ints(4, 4, "little")),
        ("milc-big", huge_ints(4, 4, "big")),
        ("openqcd", huge_ints(0, 4, "little")),
    ],
)
def test_forged_sizes_allocate_nothing(path, name, forge):
    if name in FILES:
        path.write_bytes(FILES[name])
    else:
        write_links(path, LINKS, name)
    before = path.read_bytes()
    path.write_bytes(forge(before))
    assert path.read_bytes() != before
    tracemalloc.start()
    with pytest.raises(ConfigurationFileError):
        read_links(path, name.removesuffix("-big"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


def test_forged_hdf5_shapes_allocate_nothing(path):
    write_links(path, LINKS, "hdf5")
    with h5py.File(path, "r+") as file:
        del file["links"]
        file.create_dataset("links", shape=(10**6, 10**6, 1, 1, 4, 3, 3, 2), dtype="<f8")
    tracemalloc.start()
    with pytest.raises(ConfigurationFileError, match="are stored"):
        read_links(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6
