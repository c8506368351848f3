"""Links in any of the formats by name, or by the first bytes of a file."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.core import HDF5_SIGNATURE, PathLike, find

from . import _links as files
from ._links import ConfigurationFileError, LoadedLinks
from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .foreign import HEADER_BYTES, MILC_MAGIC, looks_like_openqcd, read_milc, read_openqcd
from .ildg import LIME_MAGIC, read_ildg, write_ildg
from .nersc import read_nersc, write_nersc


def read_links(path: PathLike, format: str | None = None, *, verify: bool = True) -> LoadedLinks:
    """The links in `path`; the format is guessed from its first bytes unless it is named.

    Formats: nersc, ildg, hdf5 (our checkpoints), milc, openqcd. `verify=False` reads links that are not in SU(3) or
    disagree with the plaquette or link trace of their header; sizes and checksums are checked all the same.
    """
    return find("configuration format", format or guess_format(path), _READERS)(path, verify=verify)


def write_links(path: PathLike, links: NDArray[Any], format: str, **options: Any) -> None:
    """Write `links` as nersc, ildg or hdf5; `options` are those of `write_nersc`, `write_ildg` or `Checkpoint`."""
    find("configuration format to write", format, _WRITERS)(path, links, **options)


def guess_format(path: PathLike) -> str:
    """The name of the format that the first bytes of `path` announce."""
    with files.opened(path) as (stream, size):
        head = stream.read(max(HEADER_BYTES, 12))
        if head.startswith(b"BEGIN_HEADER"):
            return "nersc"
        if head.startswith(LIME_MAGIC):
            return "ildg"
        if head.startswith(HDF5_SIGNATURE):
            return "hdf5"
        if MILC_MAGIC in (int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")):
            return "milc"
        if looks_like_openqcd(head, size):
            return "openqcd"
        raise ConfigurationFileError(
            f"not a known configuration format: it begins with {head[:4].hex() or 'nothing'} and its {size} bytes are "
            f"not those of an openQCD lattice\nhint: known formats are {', '.join(_READERS)}"
        )


def _read_hdf5(path: PathLike, *, verify: bool = True) -> LoadedLinks:
    """The links of a checkpoint, widened to complex128."""
    found = read_checkpoint(path, verify=verify)
    texts = ("spec_json", "state_json", "engine", "family", "precision", "package_version")
    return LoadedLinks(
        links=found.links.astype(np.complex128),
        dims=files.dims_of(found.links),
        format="hdf5",
        metadata={name: str(getattr(found, name)) for name in texts},
    )


def _write_hdf5(path: PathLike, links: NDArray[Any], **options: Any) -> None:
    write_checkpoint(path, Checkpoint(links=links, precision=files.precision_of(links), **options))


_READERS: dict[str, Callable[..., LoadedLinks]] = {
    "nersc": read_nersc,
    "ildg": read_ildg,
    "hdf5": _read_hdf5,
    "milc": read_milc,
    "openqcd": read_openqcd,
}
_WRITERS: dict[str, Callable[..., None]] = {"nersc": write_nersc, "ildg": write_ildg, "hdf5": _write_hdf5}
