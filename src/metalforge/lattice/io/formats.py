"""Links in any of the formats by name, or by the first bytes of a file."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from metalforge.core import HDF5_SIGNATURE, PathLike, Sealed, find, naming

from . import _links as files
from ._links import ConfigurationFileError, LoadedLinks, StoredLinks
from .checkpoint import read_stored, write_checkpoint
from .foreign import HEADER_BYTES, MILC_MAGIC, looks_like_openqcd, read_milc, read_openqcd
from .ildg import LIME_MAGIC, read_ildg, write_ildg
from .nersc import read_nersc, write_nersc


def read_links(path: PathLike, format: str | None = None, *, verify: bool = True) -> LoadedLinks:
    """The links in `path`; the format is guessed from its first bytes unless it is named.

    Formats: nersc, ildg, hdf5 (our checkpoints), milc, openqcd. `verify=False` reads links that are not in SU(3) or
    disagree with the plaquette or link trace of their header; sizes and checksums are checked all the same.
    """
    name = format or guess_format(path)
    stored = find("configuration format", name, _READERS)(path)
    with naming(path, "read", ConfigurationFileError):
        return LoadedLinks(links=files.checked(stored, verify), format=name, metadata=dict(stored.metadata))


def write_links(path: PathLike, links: NDArray[Any], format: str, *, verify: bool = True) -> None:
    """Write `links` as nersc, ildg or hdf5; `verify=False` lets links outside SU(3) pass, but not into hdf5."""
    find("configuration format to write", format, _WRITERS)(path, links, verify=verify)


def guess_format(path: PathLike) -> str:
    """The name of the format that the first bytes of `path` announce."""
    with files.opened(path) as (stream, size):
        head = stream.read(max(HEADER_BYTES, 12))
        magics = {"nersc": b"BEGIN_HEADER", "ildg": LIME_MAGIC, "hdf5": HDF5_SIGNATURE}
        for name, magic in magics.items():
            if head.startswith(magic):
                return name
        if MILC_MAGIC in (int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big")):
            return "milc"
        if looks_like_openqcd(head, size):
            return "openqcd"
        raise ConfigurationFileError(
            f"not a known configuration format: it begins with {head[:4].hex() or 'nothing'} and its {size} bytes are "
            f"not those of an openQCD lattice\nhint: known formats are {', '.join(_READERS)}"
        )


def _write_hdf5(path: PathLike, links: NDArray[Any], *, verify: bool) -> None:
    write_checkpoint(path, Sealed({"links": links}, {"spec_json": "{}", "state_json": "{}"}))


_READERS: dict[str, Callable[[PathLike], StoredLinks]] = {
    "nersc": read_nersc,
    "ildg": read_ildg,
    "hdf5": read_stored,
    "milc": read_milc,
    "openqcd": read_openqcd,
}
_WRITERS: dict[str, Callable[..., None]] = {"nersc": write_nersc, "ildg": write_ildg, "hdf5": _write_hdf5}
