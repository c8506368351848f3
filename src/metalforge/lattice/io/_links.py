"""Gauge links as arrays: their shape, what a reader returns, and what a writer accepts.

Links are complex arrays of shape (Nt, Nz, Ny, Nx, 4, 3, 3) in C order, so x runs fastest among sites; mu = 0..3 is
x, y, z, t and matrices are row-major. Lattice sizes are given as (Nx, Ny, Nz, Nt).
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._errors import ConfigurationFileError

__all__ = [
    "REALS_PER_SITE",
    "Dims",
    "Links",
    "LoadedLinks",
    "Precision",
    "checked_links",
    "dims_of",
    "parse_extent",
    "shape_of",
]

Dims = tuple[int, int, int, int]
Links = NDArray[np.complex128]
Precision = Literal["f32", "f64"]

REALS_PER_SITE = 4 * 3 * 3 * 2
_EXTENT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedLinks:
    """Links read from a file, always complex128; `metadata` holds what else the file says, as text."""

    links: Links
    dims: Dims
    format: str
    metadata: dict[str, str]


def shape_of(dims: Dims) -> tuple[int, ...]:
    """The array shape of links on a lattice of `dims` = (Nx, Ny, Nz, Nt)."""
    return (*reversed(dims), 4, 3, 3)


def dims_of(links: NDArray[Any]) -> Dims:
    """The lattice size (Nx, Ny, Nz, Nt) of an array of links."""
    nt, nz, ny, nx = links.shape[:4]
    return nx, ny, nz, nt


def parse_extent(text: str, field: str) -> int:
    """A lattice extent from the decimal digits of a header field.

    At most nine digits: Python would accept underscores, signs and other alphabets, and a longer number is no lattice.
    """
    text = text.strip()
    if not _EXTENT.fullmatch(text) or int(text) == 0:
        raise ConfigurationFileError(f"{field}: wanted a positive whole number, got `{text[:40]}`")
    return int(text)


def checked_links(links: NDArray[Any]) -> NDArray[Any]:
    """`links` unchanged if their type and shape are right for writing."""
    shape = np.shape(links)
    if not isinstance(links, np.ndarray) or links.dtype not in (np.complex128, np.complex64):
        raise ConfigurationFileError(
            f"links must be a NumPy array of complex128 or complex64, got {getattr(links, 'dtype', type(links))}"
        )
    if len(shape) != 7 or shape[4:] != (4, 3, 3) or 0 in shape:
        raise ConfigurationFileError(f"links must have the shape (Nt, Nz, Ny, Nx, 4, 3, 3), got {shape}")
    return links
