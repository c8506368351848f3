"""Arrays out of .npy and .npz files: what was saved comes back, and what nobody saved is refused by name."""

import io
import struct
import zipfile

import numpy as np
import pytest

from metalforge.core.array_files import load_array, load_arrays
from metalforge.core.errors import SpecError

ARRAYS = {
    "doubles": np.linspace(0, 1, 6).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "labels": np.array(["a", "b\u2603"]),
    "other order of bytes": np.arange(3, dtype=">i4"),
    "one number": np.array(7.5),
    "truth": np.array([True, False]),
}


def npy(header, data=b"", version=(1, 0)):
    """Return the bytes of an .npy file with any header."""
    text = header.encode("latin1").ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text + data


def described(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def archive(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(f"{name}.npy", data)
    return stream.getvalue()


def pickled():
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    return stream.getvalue()


def packed_zeros():
    """96 MiB in 96 kB."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made, made.open("x.npy", "w") as member:
        member.write(npy(described((6 * 2**24,), "'|u1'")))
        for _ in range(6):
            member.write(bytes(2**24))
    return stream.getvalue()


@pytest.mark.parametrize("name", ARRAYS)
def test_what_numpy_saved_comes_back(tmp_path, name):
    np.save(tmp_path / "a.npy", ARRAYS[name])
    found = load_array(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, ARRAYS[name])
    assert (found.dtype, found.flags.writeable) == (ARRAYS[name].dtype, True)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_gives_its_arrays_by_name_in_its_order(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    found = load_arrays(tmp_path / "a.npz")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(SpecError, match=r"a\.npz: must hold one array. Got 6"):
        load_array(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("data", "word"),
    {
        "nothing": (b"", "not an .npy"),
        "text": (b"1.0 2.0\n", "not an .npy"),
        "half a header": (npy(described((2,)))[:40], "not an .npy"),
        "a shape that is not there": (npy(described((10**7, 10**7)), bytes(8)), "8 are there"),
        "a shape beyond all numbers": (npy(described((10**30,)), bytes(8)), "8 are there"),
        "sizes that cancel": (npy(described((0, 10**30))), "empty"),
        "negative extents": (npy(described((-1, -2)), bytes(16)), "empty"),
        "letters of no size": (npy(described((10**12,), "'<U0'")), "numbers or text"),
        "letters of any size": (npy(described((1,), "'<U99999999'")), "bytes"),
        "an unknown type": (npy(described((1,), "'bogus'"), bytes(8)), "not an .npy"),
        "a type that is no text": (npy(described((1,), "[[[7]]]"), bytes(8)), "not an .npy"),
        "extents that are no numbers": (npy(described((True, 1)), bytes(8)), "integer"),
        "too many dimensions": (npy(described((1,) * 70), bytes(8)), "dimension"),
        "nested": (npy("[" * 9000), "not an .npy"),
        "fields": (npy(described((1,), "[('a', '<f8')]"), bytes(8)), "numbers or text"),
        "version 9": (npy(described((1,)), bytes(8), (9, 0)), "Got 9.0"),
        "pickled": (pickled(), "numbers or text"),
        "half an archive": (archive(x=npy(described((1,)), bytes(8)))[:-10], "archive"),
        "an archive of text": (archive(x=b"hello"), "not an .npy"),
        "an empty archive": (archive(), "without arrays"),
    }.values(),
)  # fmt: skip
def test_what_is_no_array_is_refused_by_the_name_of_its_file(tmp_path, data, word):
    (tmp_path / "odd.npy").write_bytes(data)
    with pytest.raises(SpecError, match=rf"odd\.npy: .*{word}"):
        load_arrays(tmp_path / "odd.npy")


def test_an_archive_may_not_unpack_to_any_size(tmp_path):
    (tmp_path / "bomb.npz").write_bytes(packed_zeros())
    assert (tmp_path / "bomb.npz").stat().st_size < 2**20
    with pytest.raises(SpecError, match=r"bomb\.npz: unpacks to more than"):
        load_arrays(tmp_path / "bomb.npz")


def test_a_file_with_a_hole_is_not_read(tmp_path):
    with open(tmp_path / "hole.npy", "wb") as stream:
        stream.write(npy(described((2**33,), "'|u1'")))
        stream.truncate(2**34)
    with pytest.raises(SpecError, match=r"hole\.npy: .*2048 MiB"):
        load_arrays(tmp_path / "hole.npy")
