"""What the file formats share: links as arrays, header fields, opening and replacing files, checks, checksums.

Links are complex arrays of shape (Nt, Nz, Ny, Nx, 4, 3, 3) in C order, so x runs fastest among sites; mu = 0..3 is
x, y, z, t and matrices are row-major. Lattice sizes are given as (Nx, Ny, Nz, Nt).
"""

import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge.core import MetalforgeError, files

T = TypeVar("T")
Dims = tuple[int, int, int, int]
Links = NDArray[Any]
"""Complex of either width."""
Precision = Literal["f32", "f64"]

REALS_PER_SITE = 4 * 3 * 3 * 2
_EXTENT = re.compile(r"[0-9]{1,9}")
_HEXADECIMAL = re.compile(r"(0[xX])?[0-9a-fA-F]{1,8}")


class ConfigurationFileError(MetalforgeError):
    """A gauge configuration file that cannot be trusted, read or written; the message names the field or record."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedLinks:
    """Links read from a file, always complex128; `metadata` holds what else the file says, as text."""

    links: NDArray[np.complex128]
    format: str
    metadata: dict[str, str]

    @property
    def dims(self) -> Dims:
        """The lattice size (Nx, Ny, Nz, Nt)."""
        return dims_of(self.links)


class StoredLinks(NamedTuple):
    """Links in the precision of their file, with two rows or three, not yet checked.

    `said` gives numbers of the header, read where they are compared, with their functions of the links and tolerances;
    `where` names the data in errors.
    """

    links: Links
    metadata: Mapping[str, str]
    where: str = "data"
    said: Mapping[str, tuple[Callable[[], float], Callable[[Links], float], float]] = {}


class HeaderFields(dict[str, str]):
    """What a header says, by the names of its fields; `place` stands before the names in errors."""

    place = ""

    def add(self, name: str, value: str) -> None:
        """Take a field, which may come twice where it says the same."""
        if self.setdefault(name, value) != value:
            raise self._error(name[:40], f"given twice, as `{self[name][:40]}` and `{value[:40]}`")

    def text(self, name: str) -> str:
        """Return a field that must be there."""
        if name not in self:
            raise self._error(name, f"missing from the header; found {', '.join(self)[:400] or 'nothing'}")
        return self[name]

    def chosen(self, name: str, known: Mapping[str, T]) -> T:
        """Return what a field stands for, among those that are `known`."""
        if (value := self.text(name)) not in known:
            raise self._error(name, f"`{value[:40]}` is not supported; known: {', '.join(known)}")
        return known[value]

    def number(self, name: str) -> float:
        """Return a field that is a finite number."""
        try:
            value = float(self.text(name))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self._error(name, f"wanted a number, got `{self[name][:40]}`")
        return value

    def dims(self, names: Sequence[str]) -> Dims:
        """Return the extents of the lattice.

        At most nine digits: Python would accept underscores, signs and other alphabets, and a longer number is no
        lattice.
        """
        for name in names:
            if not _EXTENT.fullmatch(self.text(name).strip()) or int(self[name]) == 0:
                raise self._error(name, f"wanted a positive whole number, got `{self[name][:40]}`")
        nx, ny, nz, nt = (int(self[name]) for name in names)
        return nx, ny, nz, nt

    def check_sum(self, name: str, found: int, otherwise: Callable[[int], str] = lambda said: "") -> None:
        """Raise where a checksum is not what the data give; `otherwise` returns a hint for what it says."""
        if not _HEXADECIMAL.fullmatch(text := self.text(name)):
            raise self._error(name, f"wanted up to eight hexadecimal digits, got `{text[:40]}`")
        if (said := int(text, 16)) != found:
            raise self._error(name, f"the header says {said:x}, the data give {found:x}{otherwise(said)}")

    def _error(self, name: str, message: str) -> ConfigurationFileError:
        return ConfigurationFileError(f"{self.place}{name}: {message}")


def dims_of(links: Links) -> Dims:
    """The lattice size (Nx, Ny, Nz, Nt) of an array of links."""
    nt, nz, ny, nx = links.shape[:4]
    return nx, ny, nz, nt


def as_links(values: NDArray[Any], dims: Dims, rows: int = 3) -> Links:
    """Floats in the order of most files, as links with so many rows; pairs are complex numbers as they lie."""
    return values.view(f"c{2 * values.itemsize}").reshape(*dims[::-1], 4, rows, 3)


def precision_of(links: Links) -> Precision:
    """The precision that links have."""
    return "f32" if links.dtype == np.complex64 else "f64"


opened = partial(files.opened, kind=ConfigurationFileError)
"""An open file and its size in bytes; errors raised inside name the file."""
replacing = partial(files.replacing, kind=ConfigurationFileError)
"""A new file that takes the place of another one when the block ends well; otherwise that is as it was."""


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


def checked(stored: StoredLinks, verify: bool) -> NDArray[np.complex128]:
    """The links of a file as complex128, refused if they are not finite, or do not `verify`."""
    check_finite(stored.links, stored.where)
    links = stored.links.astype(np.complex128)
    if links.shape[-2] == 2:
        links = np.concatenate([links, third_row(links)[..., None, :]], axis=-2)
    if verify:
        check_special_unitary(links, precision_of(stored.links), stored.where)
        for field, (of_header, measured, tolerance) in stored.said.items():
            said, found = of_header(), measured(links)
            if not abs(said - found) <= tolerance:
                raise ConfigurationFileError(
                    f"{field}: the header says {said:.12g}, the links give {found:.12g}; "
                    "the data are damaged or follow another convention"
                )
    return links


def ready_to_write(links: NDArray[Any], verify: bool = True) -> Links:
    """`links` as a contiguous array, refused if a reader would refuse them."""
    if not isinstance(links, np.ndarray) or links.dtype not in (np.complex128, np.complex64):
        raise ConfigurationFileError(
            f"links must be a NumPy array of complex128 or complex64, got {getattr(links, 'dtype', type(links))}"
        )
    if links.ndim != 7 or links.shape[4:] != (4, 3, 3) or 0 in links.shape:
        raise ConfigurationFileError(f"links must have the shape (Nt, Nz, Ny, Nx, 4, 3, 3), got {links.shape}")
    links = np.ascontiguousarray(links)
    check_finite(links, "links")
    if verify:
        check_special_unitary(links.astype(np.complex128, copy=False), precision_of(links), "links")
    return links


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


def scidac_sums(data: NDArray[np.uint8], dims: Dims) -> dict[str, int]:
    """The checksums of a SciDAC record: `rotated_xor` over the CRC-32 (zlib) of each site's bytes as stored."""
    count = math.prod(dims)
    step = data.size // count
    crcs = (zlib.crc32(data.data[start : start + step]) for start in range(0, count * step, step))
    return dict(zip(("suma", "sumb"), rotated_xor(np.fromiter(crcs, dtype=np.uint32, count=count)), strict=True))
