"""Checkpoints of a chain: links, specification and state in one HDF5 file, exact to the bit.

::

    /                attributes format, format_version, package_version, engine, family, precision, sha256
    /links           floats (Nt, Nz, Ny, Nx, 4, 3, 3, 2): real and imaginary parts, 8 bytes for f64, 4 for f32
    /spec_json       text: what was asked for
    /state_json      text: trajectory counter, seeds, state of the algorithm
    /series/NAME     float64, any shape: measurements so far

The file is sealed (`core.sealed_files`): every dataset and the list of them have a checksum.
"""

from metalforge.core import Form, PathLike, Sealed, naming, read_sealed, write_sealed

from . import _links as files
from ._links import ConfigurationFileError, StoredLinks

FORM = Form("metalforge-checkpoint", "2")
_TEXTS = ("spec_json", "state_json")
_FLOATS = {"f32": "<f4", "f64": "<f8"}


def write_checkpoint(path: PathLike, content: Sealed) -> None:
    """Write a checkpoint over `path`; `links` among its arrays are complex128 for f64 and complex64 for f32.

    Links that are not finite or not in SU(3) are refused first, so a chain gone wrong cannot replace its last good
    checkpoint.
    """
    links = files.ready_to_write(content.arrays["links"])
    precision = files.precision_of(links)
    pairs = links.view(links.real.dtype).reshape(*links.shape, 2).astype(_FLOATS[precision], copy=False)
    arrays = {**content.arrays, "links": pairs}
    write_sealed(path, FORM, content._replace(arrays=arrays, precision=precision), ConfigurationFileError)


def read_checkpoint(path: PathLike, *, verify: bool = True) -> Sealed:
    """The checkpoint in `path`, as it was written.

    All checksums are always compared; `verify` also checks that the links are in SU(3).
    """
    sealed = read_sealed(path, FORM, ("links", *_TEXTS), ConfigurationFileError)
    with naming(path, "read", ConfigurationFileError):
        if sealed.texts.keys() != set(_TEXTS):
            raise ConfigurationFileError(f"wanted the texts {' and '.join(_TEXTS)}, got {sorted(sealed.texts)}")
        pairs = sealed.arrays["links"]
        if pairs.dtype != _FLOATS[sealed.precision] or pairs.ndim != 8 or pairs.shape[4:] != (4, 3, 3, 2):
            raise ConfigurationFileError(
                f"links: wanted {sealed.precision} (Nt, Nz, Ny, Nx, 4, 3, 3, 2), got {pairs.dtype} {pairs.shape}"
            )
        links = pairs.astype(pairs.dtype.newbyteorder("=")).view(f"c{2 * pairs.itemsize}")[..., 0]
        files.checked(StoredLinks(links, {}, "links"), verify)
    return sealed._replace(arrays={**sealed.arrays, "links": links})


def read_stored(path: PathLike) -> StoredLinks:
    """The links of a checkpoint, for `read_links`."""
    found = read_checkpoint(path, verify=False)
    said = {name: getattr(found, name) for name in ("engine", "family", "precision", "package_version")}
    return StoredLinks(found.arrays["links"], found.texts | said, "links")
