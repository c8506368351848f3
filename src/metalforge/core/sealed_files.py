"""Arrays and texts in one HDF5 file that says when it is damaged: what checkpoints of any physics are.

Each dataset carries the SHA-256 of its type, shape and bytes; that of the root covers the attributes and all others, so
a dataset cannot be lost or exchanged unnoticed. Files are replaced whole or not at all.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__

from .errors import MetalforgeError, SpecError
from .files import PathLike, opened, replacing

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
KindOfError: TypeAlias = type[MetalforgeError]


class Form(NamedTuple):
    """The format of a file, and its version."""

    name: str
    version: str


class Sealed(NamedTuple):
    """What a file holds: its datasets by their path, the engine and bit family that made them, and their precision."""

    arrays: dict[str, NDArray[Any]]
    texts: dict[str, str]
    engine: str = ""
    family: str = ""
    precision: str = "f64"
    package_version: str = __version__


_SAID = ("package_version", "engine", "family", "precision")


def write_sealed(path: PathLike, form: Form, content: Sealed, kind: KindOfError = SpecError) -> None:
    """Write a file over `path`: afterwards there is the old one or the new one, never a part."""
    attributes = {"format": form.name, "format_version": form.version}
    attributes |= {name: getattr(content, name) for name in _SAID}
    # Built in memory: HDF5 can fail to close a file whose disk is full, and then keeps its space to the process's end.
    image = io.BytesIO()
    # From version 1.10 on HDF5 puts checksums on the blocks of its own metadata, so damage there is found as well.
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        stored = content.arrays | {name: _as_text(text) for name, text in content.texts.items()}
        digests = {name: _put(file, name, np.asarray(values, order="C")) for name, values in stored.items()}
        for name, text in attributes.items():
            file.attrs[name] = _as_text(text)
        file.attrs["sha256"] = _as_text(_root_digest(attributes, digests))
    with replacing(path, kind) as stream:
        stream.write(image.getbuffer())


def read_sealed(
    path: PathLike, form: Form, names: Sequence[str], kind: KindOfError = SpecError, groups: Sequence[str] = ("series",)
) -> Sealed:
    """Return what a file of this form holds, with all its checksums compared.

    `names` are datasets that must be there, and those of `groups` may be.
    """
    with opened(path, kind) as (stream, size):
        if stream.read(len(HDF5_SIGNATURE)) != HDF5_SIGNATURE:
            raise kind("signature: this is not an HDF5 file")
        try:
            # Locks do not work on every network file system, and a file that is only ever replaced needs none.
            with h5py.File(path, "r", locking=False) as file:
                return _Reader(file, size, kind).read(form, names, groups)
        except kind:
            raise
        except Exception as error:  # the library answers damage with many types, none of them its own
            raise kind(f"HDF5 structure: damaged or foreign ({error})") from error


class _Reader:
    """One open file that may be forged."""

    def __init__(self, file: Any, size: int, kind: KindOfError) -> None:
        self.file, self.size, self.kind = file, size, kind

    def read(self, form: Form, names: Sequence[str], groups: Sequence[str]) -> Sealed:
        found = Form(self.attribute(self.file, "format"), self.attribute(self.file, "format_version"))
        if found != form:
            raise self.kind(
                f"format: `{found.name[:40]}` version {found.version[:10]}, "
                f"this release reads `{form.name}` version {form.version}"
            )
        said = {name: self.attribute(self.file, name) for name in _SAID}
        if said["precision"] not in ("f32", "f64"):
            raise self.kind(f"precision: wanted f32 or f64, got `{said['precision'][:40]}`")
        there = [g for g in groups if self.file.get(g, getlink=True) is not None]
        wanted = (*names, *(f"{group}/{name}" for group in there for name in self.inside(group)))
        data = {name: self.take(name) for name in wanted}
        attributes = {"format": form.name, "format_version": form.version} | said
        if self.attribute(self.file, "sha256") != _root_digest(attributes, {n: d for n, (_, d) in data.items()}):
            raise self.kind("sha256: the attributes or the list of datasets are not those that were written")
        texts = {name: self.text(values) for name, (values, _) in data.items() if values.dtype.kind == "S"}
        return Sealed({name: values for name, (values, _) in data.items() if name not in texts}, texts, **said)

    def take(self, name: str) -> tuple[NDArray[Any], str]:
        """The values of a dataset and their verified digest.

        Only plain storage inside this file is read: links to other files, filters and shapes beyond the bytes on the
        disk are how a forged file makes a reader open or allocate what it should not.
        """
        dataset = self.inside(name)
        plain = isinstance(dataset, h5py.Dataset) and not dataset.is_virtual and dataset.external is None
        if not plain or dataset.chunks is not None or dataset.dtype.kind not in "fS":
            raise self.kind(f"{name}: not stored as plain numbers or text in this file")
        wanted, stored = dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size()
        if wanted != stored or stored > self.size:
            raise self.kind(f"{name}: its shape {dataset.shape} takes {wanted} bytes, {stored} are stored")
        values = np.asarray(dataset[()])
        digest = _digest(values)
        if self.attribute(dataset, "sha256") != digest:
            raise self.kind(f"{name}: its SHA-256 differs; the data are damaged")
        return values, digest

    def inside(self, name: str) -> Any:
        """The object `name`, refused unless it lies in this file."""
        if not isinstance(self.file.get(name, getlink=True), h5py.HardLink):
            raise self.kind(f"{name}: missing, or a link to somewhere else")
        return self.file[name]

    def attribute(self, holder: Any, name: str) -> str:
        if name not in holder.attrs:
            raise self.kind(f"attribute `{name}` of {holder.name} is missing; this is not a metalforge checkpoint")
        return self.text(np.asarray(holder.attrs[name]))

    def text(self, value: NDArray[Any]) -> str:
        if value.shape != () or value.dtype.kind != "S":
            raise self.kind(f"wanted text, found {value.dtype} {value.shape}")
        return bytes(value[()]).decode("utf-8")


def _put(file: Any, name: str, values: NDArray[Any]) -> str:
    """Store `values` and their digest; returns the digest."""
    dataset = file.create_dataset(name, data=values)
    digest = _digest(values)
    dataset.attrs["sha256"] = _as_text(digest)
    return digest


def _as_text(text: str) -> NDArray[np.bytes_]:
    """Text of fixed length: HDF5 keeps text of variable length in a block without a checksum."""
    raw = text.encode()
    return np.array(raw, dtype=f"S{max(len(raw), 1)}")


def _digest(values: NDArray[Any]) -> str:
    contiguous = np.ascontiguousarray(values)
    digest = hashlib.sha256(f"{values.dtype.str} {values.shape}\n".encode())
    digest.update(contiguous.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _root_digest(texts: Mapping[str, str], digests: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode([sorted(texts.items()), sorted(digests.items())])).hexdigest()
