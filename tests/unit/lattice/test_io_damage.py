"""Damage of any kind gives our error or the same links: never another exception, never another field.

Lattices are small and uneven so that a few thousand damaged files are read in seconds. openQCD has no checksum: there
the links may differ by what the SU(3) and plaquette checks allow, which is part of its contract here.
"""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.core import Sealed
from metalforge.lattice.io import ConfigurationFileError, read_links, write_checkpoint, write_links
from metalforge.lattice.io._links import UNITARITY_TOLERANCE
from metalforge.lattice.io.ildg import find_records
from reference.lattice_io import milc_bytes, nersc_bytes, openqcd_bytes, random_links

DIMS = (2, 2, 2, 2)
LINKS = random_links(DIMS)
SINGLE = LINKS.astype(np.complex64).astype(complex)
NAMES = ["nersc", "nersc-2x32", "ildg", "ildg-32", "hdf5", "milc", "milc-big", "openqcd"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def files(folder):
    """The bytes of one good file of each kind and the links that it holds."""
    made = {
        "milc": milc_bytes(LINKS),
        "milc-big": milc_bytes(LINKS, ">"),
        "openqcd": openqcd_bytes(LINKS),
        "nersc-2x32": nersc_bytes(LINKS, 2, "IEEE32LITTLE"),
    }
    path = folder / "good"
    for name, format in {"nersc": "nersc", "ildg": "ildg", "ildg-32": "ildg"}.items():
        write_links(path, LINKS.astype(np.complex64) if name == "ildg-32" else LINKS, format)
        made[name] = path.read_bytes()
    texts = {"spec_json": "{}", "state_json": "{}"}
    write_checkpoint(path, Sealed({"links": LINKS, "series/plaquette": np.arange(4.0)}, texts, "cpu:v2"))
    made["hdf5"] = path.read_bytes()
    found = {}
    for name, data in made.items():
        path.write_bytes(data)
        found[name] = (data, read_links(path))
    return found


def outcome(folder, data, good):
    """`same` links, a `clear` error that names the file, or the largest difference of the links."""
    path = folder / "damaged"
    path.write_bytes(data)
    try:
        found = read_links(path)
    except ConfigurationFileError as error:
        return "clear" if str(path) in str(error) else str(error)
    assert found.dims == good.dims
    if found.links.tobytes() == good.links.tobytes():
        return "same"
    return float(np.max(np.abs(found.links - good.links)))


def acceptable(name, result):
    return result in ("same", "clear") or (name == "openqcd" and float(result) <= 4 * UNITARITY_TOLERANCE["f64"])


def test_the_good_files_are_good(files):
    assert sorted(files) == sorted(NAMES)
    for name in ("nersc", "ildg", "hdf5", "openqcd"):
        assert files[name][1].links.tobytes() == LINKS.tobytes()
    for name in ("ildg-32", "milc", "milc-big"):
        assert np.array_equal(files[name][1].links, SINGLE)


def metadata_end(name, data):
    """Where the links begin: flips are drawn as often before as after."""
    if name.startswith("nersc"):
        return data.index(b"END_HEADER\n") + 11
    if name.startswith("ildg"):
        return next(r.offset for r in find_records(io.BytesIO(data), len(data)) if r.type == "ildg-binary-data")
    return {"milc": 96, "milc-big": 96, "openqcd": 24, "hdf5": 2000}[name]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_is_found_or_harmless(folder, files, name, data):
    raw, good = files[name]
    middle = metadata_end(name, raw)
    places = st.one_of(st.integers(0, middle - 1), st.integers(middle, len(raw) - 1), st.integers(0, len(raw) - 1))
    at, bit = data.draw(places), data.draw(st.integers(0, 7))
    damaged = bytearray(raw)
    damaged[at] ^= 1 << bit
    assert acceptable(name, outcome(folder, bytes(damaged), good))


@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_bit_of_one_link_is_found(folder, files, name):
    raw, good = files[name]
    width = 4 if name in ("nersc-2x32", "ildg-32", "milc", "milc-big") else 8
    start = raw.index(LINKS.tobytes()[:64]) if name == "hdf5" else metadata_end(name, raw)
    results = []
    for at in range(start, start + 2 * width):
        damaged = bytearray(raw)
        damaged[at] ^= 1 << (at % 8)
        results.append(outcome(folder, bytes(damaged), good))
    if name == "openqcd":
        assert all(acceptable(name, result) for result in results)
        assert results.count("clear") >= len(results) // 2
    else:
        assert set(results) == {"clear"}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_a_file_cut_short_is_refused(folder, files, name, data):
    raw, good = files[name]
    middle = metadata_end(name, raw)
    keep = data.draw(st.one_of(st.integers(0, middle), st.integers(0, len(raw) - 1)))
    assert outcome(folder, raw[:keep], good) == "clear"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_bytes_written_over_or_added_are_found_or_harmless(folder, files, name, data):
    raw, good = files[name]
    at = data.draw(st.integers(0, len(raw)))
    patch = data.draw(st.binary(min_size=1, max_size=200))
    insert = data.draw(st.booleans())
    result = outcome(folder, raw[:at] + patch + raw[at if insert else at + len(patch) :], good)
    assert acceptable(name, result)


@settings(max_examples=150)
@given(
    magic=st.sampled_from(
        [b"BEGIN_HEADER\n", b"\x45\x67\x89\xab\x00\x01", b"\x89HDF\r\n\x1a\n", b"\x87\x4e\0\0", b"\0\0\x4e\x87", b""]
    ),
    rest=st.binary(max_size=400),
)
def test_noise_behind_any_magic_is_refused(folder, magic, rest):
    path = folder / "noise"
    path.write_bytes(magic + rest)
    with pytest.raises(ConfigurationFileError):
        read_links(path)
