"""What the file formats share: links as arrays, opening and replacing files, checks of what was read, checksums.

Links are complex arrays of shape (Nt, Nz, Ny, Nx, 4, 3, 3) in C order, so x runs fastest among sites; mu = 0..3 is
x, y, z, t and matrices are row-major. Lattice sizes are given as (Nx, Ny, Nz, Nt). Plaquette and link trace are small
and slow on purpose: a second opinion about files, not the measurements of a run.
"""

import re
import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, PathLike, files

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


def precision_of(links: NDArray[Any]) -> Precision:
    """The precision that links have."""
    return "f32" if checked_links(links).dtype == np.complex64 else "f64"


class ConfigurationFileError(MetalforgeError):
    """A gauge configuration file that cannot be trusted, read or written; the message names the field or record."""


def opened(path: PathLike) -> AbstractContextManager[tuple[BinaryIO, int]]:
    """An open file and its size in bytes; errors raised inside name the file."""
    return files.opened(path, ConfigurationFileError)


def replacing(path: PathLike) -> AbstractContextManager[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well; otherwise `path` is as it was."""
    return files.replacing(path, ConfigurationFileError)


def read_bytes(stream: BinaryIO, count: int, what: str) -> NDArray[np.uint8]:
    """The next `count` bytes. The caller has compared `count` with the size of the file."""
    data = np.empty(count, dtype=np.uint8)
    got = stream.readinto(data.data)  # type: ignore[attr-defined]  # typing.BinaryIO does not declare it
    if got != count:
        raise ConfigurationFileError(f"{what}: wanted {count} bytes, the file ends after {got}")
    return data


# f32: what MILC allows (https://github.com/milc-qcd/milc_qcd, generic/check_unitarity.c, TOLERANCE).
# f64: above the rounding of a hundred thousand link updates without reunitarisation, below one of single precision.
UNITARITY_TOLERANCE: dict[Precision, float] = {"f32": 1e-4, "f64": 1e-10}

_SITE_AXIS = (3, 2, 1, 0)  # the array axis of direction mu


def plaquette(links: Links) -> float:
    """P = mean over sites and the six planes of Re tr U_p / 3; 1 for unit links."""
    total = 0.0
    for mu in range(4):
        for nu in range(mu):
            ahead = np.roll(links[..., nu, :, :], -1, axis=_SITE_AXIS[mu])
            aside = np.roll(links[..., mu, :, :], -1, axis=_SITE_AXIS[nu])
            first = links[..., mu, :, :] @ ahead
            second = links[..., nu, :, :] @ aside
            total += float(np.sum((first * second.conj()).real))  # Re tr (first second^dagger)
    return total / (6 * 3 * (links.size // 36))


def link_trace(links: Links) -> float:
    """Mean over sites and directions of Re tr U / 3."""
    return float(np.mean(np.trace(links, axis1=-2, axis2=-1).real)) / 3


def third_row(rows: Links) -> Links:
    """The third row of SU(3) matrices from the first two: conj(row 1 x row 2). `rows` has shape (..., >= 2, 3)."""
    with np.errstate(over="ignore", invalid="ignore"):  # foreign numbers may overflow; the SU(3) check finds them
        return np.cross(rows[..., 0, :], rows[..., 1, :]).conj()


def check_finite(values: NDArray[Any], what: str) -> None:
    """Raise if any of the stored numbers is a NaN or infinite."""
    if not np.isfinite(values).all():
        raise ConfigurationFileError(f"{what}: holds NaN or infinite numbers; the file is damaged")


def check_special_unitary(links: Links, precision: Precision, what: str) -> None:
    """Raise if a link is not in SU(3) within the tolerance of its precision.

    Rows 1 and 2 orthonormal and row 3 = conj(row 1 x row 2) together are U U^dagger = 1 and det U = 1.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow compares as too large
        first, second = links[..., 0, :], links[..., 1, :]
        off = np.abs(np.sum(first * second.conj(), axis=-1))
        for row in (first, second):
            off = np.maximum(off, np.abs(np.sum(np.abs(row) ** 2, axis=-1) - 1))
        off = np.maximum(off, np.max(np.abs(links[..., 2, :] - third_row(links)), axis=-1))
    tolerance = UNITARITY_TOLERANCE[precision]
    if not bool((off <= tolerance).all()):
        worst = np.argmax(np.where(np.isnan(off), np.inf, off))
        t, z, y, x, mu = (int(i) for i in np.unravel_index(worst, off.shape))
        raise ConfigurationFileError(
            f"{what}: the link at (x, y, z, t) = ({x}, {y}, {z}, {t}), mu = {mu} is not in SU(3): "
            f"off by {off.flat[worst]:.2g}, {tolerance:g} is allowed for {precision}\n"
            "hint: pass verify=False if the links are meant to be like this (smeared, open boundary)"
        )


def check_close(field: str, stored: float, found: float, tolerance: float) -> None:
    """Raise if a header value differs from what the links give."""
    if not abs(stored - found) <= tolerance:
        raise ConfigurationFileError(
            f"{field}: the header says {stored:.12g}, the links give {found:.12g}; "
            "the data are damaged or follow another convention"
        )


def ready_to_write(links: NDArray[Any], precision: Precision, verify: bool) -> NDArray[Any]:
    """`links` as a contiguous complex array of `precision`, refused if a reader would refuse them."""
    with np.errstate(over="ignore"):  # what does not fit in single precision is infinite and found below
        narrow = np.ascontiguousarray(checked_links(links), dtype=np.complex64 if precision == "f32" else np.complex128)
    check_finite(narrow, "links")
    if verify:
        check_special_unitary(narrow.astype(np.complex128, copy=False), precision, "links")
    return narrow


# The rotations repeat after 29 * 31 words: a chunk of whole periods needs its two shift tables only once.
_PERIOD = 29 * 31
_CHUNK = 1024 * _PERIOD


def nersc_sum(values: NDArray[np.floating]) -> int:
    """Sum mod 2^32 of the 32-bit words of native floats; a double counts as two words.

    Taken on values, not on bytes as stored, it is the same for either byte order.
    https://github.com/paboyle/Grid, Grid/parallelIO/BinaryIO.h, NerscChecksum.
    """
    return int(np.sum(values.view(np.uint32), dtype=np.uint32))


def rotated_xor(words: NDArray[np.uint32]) -> tuple[int, int]:
    """XOR of all words, word i rotated left by i mod 29 (first value) and by i mod 31 (second value).

    MILC: over the data's 32-bit words (https://github.com/milc-qcd/milc_qcd, generic/io_lat4.c, "Checksums").
    SciDAC: over one CRC per site (https://github.com/usqcd-software/qio, DML_checksum_accum).
    """
    count = np.arange(min(_CHUNK, words.size), dtype=np.uint32)
    sums = []
    for modulus in (29, 31):
        left = count % np.uint32(modulus)
        right = np.where(left == 0, np.uint32(0), np.uint32(32) - left)  # a shift by 32 is undefined
        total = 0
        for start in range(0, words.size, _CHUNK):
            part = words[start : start + _CHUNK]
            rotated = (part << left[: part.size]) | (part >> right[: part.size])
            total ^= int(np.bitwise_xor.reduce(rotated))
        sums.append(total)
    return sums[0], sums[1]


def site_crcs(data: memoryview, n_sites: int) -> NDArray[np.uint32]:
    """CRC-32 (zlib) of each site's bytes as stored; `data` holds `n_sites` equal pieces."""
    step = len(data) // n_sites
    crcs = (zlib.crc32(data[start : start + step]) for start in range(0, n_sites * step, step))
    return np.fromiter(crcs, dtype=np.uint32, count=n_sites)
