"""Checkpoints of a chain: links, specification and state in one HDF5 file, exact to the bit.

::

    /                attributes format, format_version, package_version, engine, family, precision, sha256
    /links           floats (Nt, Nz, Ny, Nx, 4, 3, 3, 2): real and imaginary parts, 8 bytes for f64, 4 for f32
    /spec_json       text: what was asked for
    /state_json      text: trajectory counter, seeds, state of the algorithm
    /series/NAME     float64, any shape: measurements so far

The file is sealed (`core.sealed_files`): every dataset and the list of them have a checksum.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core import PathLike, Sealed, naming, read_sealed, write_sealed

from . import _links as files
from ._links import ConfigurationFileError, Precision

FORMAT = "metalforge-checkpoint"
_TEXTS = {"2": ("format", "format_version", "package_version", "engine", "family", "precision")}
"""The attributes of each version."""
_FLOATS: dict[str, str] = {"f32": "<f4", "f64": "<f8"}


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


def write_checkpoint(path: PathLike, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` over `path`: afterwards there is the old file or the new one, never a part.

    Links that are not finite or not in SU(3) are refused first, so a chain gone wrong cannot replace its last good
    checkpoint.
    """
    links = files.ready_to_write(checkpoint.links, checkpoint.precision, verify=True)
    pairs = links.view(links.real.dtype).reshape(*links.shape, 2).astype(_FLOATS[checkpoint.precision], copy=False)
    series = {f"series/{name}": np.ascontiguousarray(v, dtype="<f8") for name, v in checkpoint.series.items()}
    attributes = {
        "format": FORMAT,
        "format_version": "2",
        "package_version": checkpoint.package_version,
        "engine": checkpoint.engine,
        "family": checkpoint.family,
        "precision": checkpoint.precision,
    }
    texts = {"spec_json": checkpoint.spec_json, "state_json": checkpoint.state_json}
    write_sealed(path, Sealed(attributes, {"links": pairs} | series, texts), ConfigurationFileError)


def read_checkpoint(path: PathLike, *, verify: bool = True) -> Checkpoint:
    """The checkpoint in `path`, as it was written.

    All checksums are always compared; `verify` also checks that the links are in SU(3).
    """
    sealed = read_sealed(path, FORMAT, _TEXTS, ("links", "spec_json", "state_json"), ConfigurationFileError)
    with naming(path, "read", ConfigurationFileError):
        checkpoint = _checkpoint_of(sealed)
        if verify:
            files.check_special_unitary(checkpoint.links.astype(np.complex128), checkpoint.precision, "links")
        return checkpoint


def _checkpoint_of(sealed: Sealed) -> Checkpoint:
    attributes, data = sealed.attributes, sealed.arrays
    precision: Precision = "f32" if attributes["precision"] == "f32" else "f64"
    pairs = data.pop("links", np.empty(0))
    if pairs.dtype != _FLOATS[precision] or pairs.ndim != 8 or pairs.shape[4:] != (4, 3, 3, 2):
        raise ConfigurationFileError(
            f"links: wanted {precision} (Nt, Nz, Ny, Nx, 4, 3, 3, 2), got {pairs.dtype} {pairs.shape}"
        )
    files.check_finite(pairs, "links")
    if sealed.texts.keys() != {"spec_json", "state_json"}:
        raise ConfigurationFileError(f"wanted the texts spec_json and state_json, got {sorted(sealed.texts)}")
    return Checkpoint(
        links=pairs.astype(pairs.dtype.newbyteorder("=")).view(f"c{2 * pairs.itemsize}")[..., 0],
        spec_json=sealed.texts["spec_json"],
        state_json=sealed.texts["state_json"],
        precision=precision,
        **{name: attributes[name] for name in ("engine", "family", "package_version")},
        series={name.removeprefix("series/"): values.astype(np.float64) for name, values in data.items()},
    )
