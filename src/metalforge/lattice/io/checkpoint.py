"""Checkpoints of a chain: links, specification and state in one HDF5 file, exact to the bit.

::

    /                attributes format, format_version, package_version, engine, family, precision, sha256
    /links           floats (Nt, Nz, Ny, Nx, 4, 3, 3, 2): real and imaginary parts, 8 bytes for f64, 4 for f32
    /spec_json       text: what was asked for
    /state_json      text: trajectory counter, seeds, state of the algorithm
    /series/NAME     float64, any shape: measurements so far

Each dataset carries the SHA-256 of its type, shape and bytes; that of the root covers the attributes and all others,
so a dataset cannot be lost or exchanged unnoticed. Version 1 has the build level of the CPU's kernels, `isa`, in place
of engine and family.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core.files import PathLike
from metalforge.native.engine import family_of_level

from . import _links as files
from ._links import ConfigurationFileError, Precision

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
FORMAT = "metalforge-checkpoint"
FORMAT_VERSION = 2

_TEXTS = {
    "1": ("format", "format_version", "package_version", "isa", "precision"),
    "2": ("format", "format_version", "package_version", "engine", "family", "precision"),
}
"""The attributes of each version."""
_FLOATS: dict[str, str] = {"f32": "<f4", "f64": "<f8"}
_SERIES_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """Everything a chain needs to go on as if it had never stopped.

    `links` are complex128 for `precision` f64 and complex64 for f32; `engine` and its bit `family` say what computed
    them, since a chain goes on bit for bit only within a family. `series` holds float64 arrays by name.
    """

    links: NDArray[Any]
    precision: Precision
    spec_json: str = "{}"
    state_json: str = "{}"
    engine: str = ""
    family: str = ""
    package_version: str = __version__
    series: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = {"f32": np.complex64, "f64": np.complex128}.get(self.precision)
        if files.checked_links(self.links).dtype != wanted:
            raise ConfigurationFileError(f"links: {self.links.dtype} does not go with precision `{self.precision}`")
        for name in ("spec_json", "state_json"):
            try:
                msgspec.json.decode(getattr(self, name))
            except (msgspec.DecodeError, TypeError) as error:
                raise ConfigurationFileError(f"{name}: must be JSON text ({error})") from error
        for name, values in self.series.items():
            if not _SERIES_NAME.fullmatch(name) or name in (".", ".."):
                raise ConfigurationFileError(
                    f"series `{name[:40]}`: a name is 1 to 100 of the characters a-z A-Z 0-9 _ . + -"
                )
            if not isinstance(values, np.ndarray) or values.dtype != np.float64:
                raise ConfigurationFileError(f"series `{name}`: must be a NumPy array of float64")


def write_checkpoint(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` over `path`: afterwards there is the old file or the new one, never a part.

    Links that are not finite or not in SU(3) are refused first, so a chain gone wrong cannot replace its last good
    checkpoint.
    """
    links = files.ready_to_write(checkpoint.links, checkpoint.precision, verify=True)
    pairs = links.view(links.real.dtype).reshape(*links.shape, 2).astype(_FLOATS[checkpoint.precision], copy=False)
    # Built in memory: HDF5 can fail to close a file whose disk is full, and then keeps its space to the process's end.
    image = io.BytesIO()
    # From version 1.10 on HDF5 puts checksums on the blocks of its own metadata, so damage there is found as well.
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        digests = {
            "links": _put(file, "links", pairs),
            "spec_json": _put(file, "spec_json", _as_text(checkpoint.spec_json)),
            "state_json": _put(file, "state_json", _as_text(checkpoint.state_json)),
        }
        for name, values in checkpoint.series.items():
            digests[f"series/{name}"] = _put(file, f"series/{name}", np.ascontiguousarray(values, dtype="<f8"))
        texts = {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "package_version": checkpoint.package_version,
            "engine": checkpoint.engine,
            "family": checkpoint.family,
            "precision": checkpoint.precision,
        }
        for name, text in texts.items():
            file.attrs[name] = _as_text(text)
        file.attrs["sha256"] = _as_text(_root_digest(texts, digests))
    with files.replacing(path) as stream:
        stream.write(image.getbuffer())


def read_checkpoint(path: PathLike, *, verify: bool = True) -> Checkpoint:
    """The checkpoint in `path`, as it was written.

    All checksums are always compared; `verify` also checks that the links are in SU(3).
    """
    with files.opened(path) as (stream, size):
        if stream.read(len(HDF5_SIGNATURE)) != HDF5_SIGNATURE:
            raise ConfigurationFileError("signature: this is not an HDF5 file")
        try:
            # Locks do not work on every network file system, and a file that is only ever replaced needs none.
            with h5py.File(path, "r", locking=False) as file:
                checkpoint = _read(file, size)
        except ConfigurationFileError:
            raise
        except Exception as error:  # the library answers damage with many types, none of them its own
            raise ConfigurationFileError(f"HDF5 structure: damaged or foreign ({error})") from error
        if verify:
            files.check_special_unitary(checkpoint.links.astype(np.complex128), checkpoint.precision, "links")
        return checkpoint


def _read(file: Any, size: int) -> Checkpoint:
    form, form_version = _attribute(file, "format"), _attribute(file, "format_version")
    if form != FORMAT or form_version not in _TEXTS:
        raise ConfigurationFileError(
            f"format: `{form[:40]}` version {form_version[:10]}, "
            f"this release reads `{FORMAT}` versions {' and '.join(_TEXTS)}"
        )
    texts = {name: _attribute(file, name) for name in _TEXTS[form_version]}
    if texts["precision"] not in _FLOATS:
        raise ConfigurationFileError(f"precision: wanted f32 or f64, got `{texts['precision'][:40]}`")
    precision: Precision = "f32" if texts["precision"] == "f32" else "f64"
    names = []
    if file.get("series", getlink=True) is not None:
        names = [f"series/{name}" for name in _inside(file, "series")]
    data = {name: _take(file, name, size) for name in ("links", "spec_json", "state_json", *names)}
    if _attribute(file, "sha256") != _root_digest(texts, {name: digest for name, (_, digest) in data.items()}):
        raise ConfigurationFileError("sha256: the attributes or the list of datasets are not those that were written")
    pairs = data["links"][0]
    if pairs.dtype != _FLOATS[precision] or pairs.ndim != 8 or pairs.shape[4:] != (4, 3, 3, 2):
        raise ConfigurationFileError(
            f"links: wanted {precision} (Nt, Nz, Ny, Nx, 4, 3, 3, 2), got {pairs.dtype} {pairs.shape}"
        )
    files.check_finite(pairs, "links")
    return Checkpoint(
        links=pairs.astype(pairs.dtype.newbyteorder("=")).view(f"c{2 * pairs.itemsize}")[..., 0],
        spec_json=_from_text(data["spec_json"][0]),
        state_json=_from_text(data["state_json"][0]),
        engine=f"cpu:{texts['isa']}" if form_version == "1" else texts["engine"],
        family=family_of_level(texts["isa"]) if form_version == "1" else texts["family"],
        precision=precision,
        package_version=texts["package_version"],
        series={name.removeprefix("series/"): data[name][0].astype(np.float64) for name in names},
    )


def _put(file: Any, name: str, values: NDArray[Any]) -> str:
    """Store `values` and their digest; returns the digest."""
    dataset = file.create_dataset(name, data=values)
    digest = _digest(values)
    dataset.attrs["sha256"] = _as_text(digest)
    return digest


def _take(file: Any, name: str, size: int) -> tuple[NDArray[Any], str]:
    """The values of a dataset and their verified digest.

    Only plain storage inside this file is read: links to other files, filters and shapes beyond the bytes on the disk
    are how a forged file makes a reader open or allocate what it should not.
    """
    dataset = _inside(file, name)
    plain = isinstance(dataset, h5py.Dataset) and not dataset.is_virtual and dataset.external is None
    if not plain or dataset.chunks is not None or dataset.dtype.kind not in "fS":
        raise ConfigurationFileError(f"{name}: not stored as plain numbers or text in this file")
    wanted, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if wanted != stored or stored > size:
        raise ConfigurationFileError(f"{name}: its shape {dataset.shape} takes {wanted} bytes, {stored} are stored")
    values = np.asarray(dataset[()])
    digest = _digest(values)
    if _attribute(dataset, "sha256") != digest:
        raise ConfigurationFileError(f"{name}: its SHA-256 differs; the data are damaged")
    return values, digest


def _inside(file: Any, name: str) -> Any:
    """The object `name`, refused unless it lies in this file."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise ConfigurationFileError(f"{name}: missing, or a link to somewhere else")
    return file[name]


def _attribute(holder: Any, name: str) -> str:
    if name not in holder.attrs:
        raise ConfigurationFileError(
            f"attribute `{name}` of {holder.name} is missing; this is not a metalforge checkpoint"
        )
    return _from_text(np.asarray(holder.attrs[name]))


def _as_text(text: str) -> NDArray[np.bytes_]:
    """Text of fixed length: HDF5 keeps text of variable length in a block without a checksum."""
    raw = text.encode()
    return np.array(raw, dtype=f"S{max(len(raw), 1)}")


def _from_text(value: NDArray[Any]) -> str:
    if value.shape != () or value.dtype.kind != "S":
        raise ConfigurationFileError(f"wanted text, found {value.dtype} {value.shape}")
    return bytes(value[()]).decode("utf-8")


def _digest(values: NDArray[Any]) -> str:
    contiguous = np.ascontiguousarray(values)
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}\n".encode())
    digest.update(contiguous.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _root_digest(texts: Mapping[str, str], digests: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode([sorted(texts.items()), sorted(digests.items())])).hexdigest()
