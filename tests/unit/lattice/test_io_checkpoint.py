import errno
import os
import resource

import h5py
import numpy as np
import pytest

from metalforge import __version__
from metalforge.core import Sealed
from metalforge.lattice.io import ConfigurationFileError, read_checkpoint, write_checkpoint
from reference.lattice_io import random_links

DIMS = (2, 4, 2, 3)
LINKS = random_links(DIMS)
SERIES = {
    "series/plaquette": np.array([0.5, np.nan, -0.0]),
    "series/loops.2x2": np.arange(6.0).reshape(2, 3),
    "series/none": np.empty(0),
}
TEXTS = {"spec_json": '{"beta": 6.0, "note": "Schrödinger"}', "state_json": '{"trajectory": 41, "seed": 7}'}
CHECKPOINT = Sealed({"links": LINKS, **SERIES}, TEXTS, "cpu:v4", "fma")
OTHER = CHECKPOINT._replace(texts={"spec_json": "{}", "state_json": "{}"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chain.h5"


def test_everything_comes_back_bit_by_bit(path):
    write_checkpoint(path, CHECKPOINT)
    found = read_checkpoint(path)
    links = found.arrays["links"]
    assert (links.dtype, links.shape, links.flags.c_contiguous) == (np.complex128, LINKS.shape, True)
    assert found._replace(arrays={}) == CHECKPOINT._replace(arrays={})
    assert found.package_version == __version__
    assert found.arrays.keys() == CHECKPOINT.arrays.keys()
    assert all(found.arrays[name].tobytes() == values.tobytes() for name, values in CHECKPOINT.arrays.items())
    assert all(found.arrays[name].shape == values.shape for name, values in CHECKPOINT.arrays.items())


def test_single_precision_is_kept_as_such(path):
    single = LINKS.astype(np.complex64)
    write_checkpoint(path, Sealed({"links": single}, TEXTS))
    found = read_checkpoint(path)
    assert (found.precision, found.arrays["links"].dtype, found.engine) == ("f32", np.complex64, "")
    assert found.arrays["links"].tobytes() == single.tobytes()


def test_any_memory_layout_is_written(path):
    write_checkpoint(path, Sealed({"links": np.asfortranarray(LINKS), "series/t": np.arange(10.0)[::2]}, TEXTS))
    found = read_checkpoint(path)
    assert found.arrays["links"].tobytes() == LINKS.tobytes()
    assert list(found.arrays["series/t"]) == [0, 2, 4, 6, 8]


def test_other_programs_find_plain_pairs_and_text(path):
    write_checkpoint(path, CHECKPOINT)
    with h5py.File(path) as file:
        assert file["links"].shape == (3, 2, 4, 2, 4, 3, 3, 2)
        assert np.array_equal(file["links"][..., 0] + 1j * file["links"][..., 1], LINKS)
        assert file["state_json"][()].decode() == TEXTS["state_json"]
        assert file.attrs["format_version"] == b"2"
        assert len(file["links"].attrs["sha256"]) == 64


@pytest.mark.parametrize("links", [LINKS.real, LINKS[0], LINKS.tolist()])
def test_arrays_that_are_no_links_are_refused(path, links):
    with pytest.raises(ConfigurationFileError, match="links must"):
        write_checkpoint(path, CHECKPOINT._replace(arrays={"links": links}))


@pytest.mark.parametrize(("factor", "message"), [(1.001, "not in SU"), (np.nan, "holds NaN")])
def test_a_chain_gone_wrong_does_not_replace_its_last_good_checkpoint(path, factor, message):
    write_checkpoint(path, CHECKPOINT)
    before = path.read_bytes()
    with pytest.raises(ConfigurationFileError, match=message):
        write_checkpoint(path, CHECKPOINT._replace(arrays={"links": LINKS * factor}))
    assert path.read_bytes() == before


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch, step):
    write_checkpoint(path, CHECKPOINT)
    before = path.read_bytes()
    monkeypatch.setattr(os, step, no_space)
    with pytest.raises(ConfigurationFileError, match=r"chain.h5.*\(No space left on device\)"):
        write_checkpoint(path, OTHER)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_data_and_directory_reach_the_disk_before_and_after_the_rename(path, monkeypatch):
    calls = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        calls.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        real_fsync(descriptor)

    def replace(source, target):
        assert os.path.dirname(source) == os.path.dirname(target)
        assert os.path.getsize(source) > LINKS.nbytes
        calls.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_checkpoint(path, CHECKPOINT)
    assert calls == ["file", "rename", "directory"]


def test_the_system_refusing_more_bytes_is_survived(path):
    """A real short write: for a moment this process may not write files beyond 8 kB."""
    write_checkpoint(path, CHECKPOINT)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(ConfigurationFileError, match=r"\(File too large\)"):
            write_checkpoint(path, OTHER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    write_checkpoint(path, OTHER)
    assert read_checkpoint(path).texts == OTHER.texts


def test_a_missing_directory_is_an_error_of_ours(tmp_path):
    with pytest.raises(ConfigurationFileError, match=r"\(No such file"):
        write_checkpoint(tmp_path / "absent" / "chain.h5", CHECKPOINT)


def drop(name):
    def change(file):
        del file[name]

    return change


def attribute(name, value):
    def change(file):
        file.attrs[name] = value

    return change


def exchange_texts(file):
    for name in ("spec_json", "state_json"):
        file.move(name, f"{name}.old")
    file.move("spec_json.old", "state_json")
    file.move("state_json.old", "spec_json")


def one_number(file):
    file["links"][0, 0, 0, 0, 0, 0, 0, 0] += 1e-16


def link_elsewhere(kind):
    def change(file):
        del file["spec_json"]
        file["spec_json"] = kind

    return change


def claim_a_huge_shape(file):
    del file["links"]
    file.create_dataset("links", shape=(10**6, 10**6, 10, 1, 4, 3, 3, 2), dtype="<f8")


def compress(file):
    del file["links"]
    file.create_dataset("links", shape=(10**5, 10**5, 1, 1, 4, 3, 3, 2), dtype="<f8", compression="gzip")


def integers(file):
    del file["links"]
    file["links"] = np.zeros(3, dtype=int)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("links"), "links: missing"),
        (drop("state_json"), "state_json: missing"),
        (drop("series/plaquette"), "sha256: the attributes or the list of datasets are not those"),
        (drop("series"), "sha256: the attributes or the list"),
        (attribute("format_version", np.bytes_("3")), "format: .* version 3, this release reads .* 2"),
        (attribute("format_version", np.bytes_("1")), "format: .* version 1, this release reads .* 2"),
        (attribute("format", np.bytes_("other")), "format: `other`"),
        (attribute("engine", np.bytes_("cpu:v3")), "sha256: the attributes"),
        (attribute("family", np.bytes_("plain")), "sha256: the attributes"),
        (attribute("precision", np.bytes_("f16")), "precision: wanted f32 or f64, got `f16`"),
        (attribute("precision", np.bytes_("f32")), "sha256: the attributes"),
        (attribute("sha256", 7), "wanted text, found int"),
        (lambda file: file.attrs.pop("family"), "attribute `family` of / is missing"),
        (lambda file: file["links"].attrs.pop("sha256"), "attribute `sha256` of /links is missing"),
        (one_number, "links: its SHA-256 differs"),
        (exchange_texts, "sha256: the attributes or the list"),
        (link_elsewhere(h5py.SoftLink("/state_json")), "spec_json: missing, or a link to somewhere else"),
        (link_elsewhere(h5py.ExternalLink("other.h5", "/x")), "spec_json: missing, or a link to somewhere else"),
        (claim_a_huge_shape, r"links: its shape .* takes 5760000000000000 bytes, 0 are stored"),
        (compress, "links: not stored as plain numbers"),
        (integers, "links: not stored as plain numbers"),
    ],
)
def test_what_was_not_written_by_us_is_refused(path, change, message):
    write_checkpoint(path, CHECKPOINT)
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(ConfigurationFileError, match=message) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "signature"), (b"\x89HDF\r\n\x1a\n", "HDF5 structure"), (b"BEGIN_HEADER\n", "signature")],
)
def test_other_files_are_refused(path, data, message):
    path.write_bytes(data)
    with pytest.raises(ConfigurationFileError, match=message):
        read_checkpoint(path)


def test_foreign_hdf5_files_are_refused(path):
    with h5py.File(path, "w") as file:
        file["links"] = np.zeros(3)
    with pytest.raises(ConfigurationFileError, match="checkpoint"):
        read_checkpoint(path)
