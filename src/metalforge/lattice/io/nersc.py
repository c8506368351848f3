"""NERSC archive files (the Gauge Connection format): a text header, then the links.

After `BEGIN_HEADER` come lines `KEY = value` up to `END_HEADER`; the data follow with x fastest and t slowest, four
links per site in the order x, y, z, t, each two (`4D_SU3_GAUGE`) or three (`4D_SU3_GAUGE_3x3`) rows of three complex
numbers. Keys and conventions as in https://github.com/paboyle/Grid, Grid/parallelIO/NerscIO.h and MetaData.h.
"""

import math
import re
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core import PathLike

from . import _links as files
from ._links import ConfigurationFileError, LoadedLinks, Precision

T = TypeVar("T")
FloatingPoint = Literal["IEEE32", "IEEE32BIG", "IEEE32LITTLE", "IEEE64BIG", "IEEE64LITTLE"]

_ROWS = {"4D_SU3_GAUGE": 2, "4D_SU3_GAUGE_3x3": 3}
# Plain IEEE32 is big-endian to SIMULATeQCD, GLU and qlua, little-endian to Grid. A file of the second kind fails its
# checksum here, and the message says that the other order fits.
_FLOATS = {"IEEE32": ">f4", "IEEE32BIG": ">f4", "IEEE32LITTLE": "<f4", "IEEE64BIG": ">f8", "IEEE64LITTLE": "<f8"}
_OF_LINKS = {"LINK_TRACE": (files.link_trace, 1e-6), "PLAQUETTE": (files.plaquette, 1e-5)}
"""What the header says of the links, and what Grid allows between the two: it is printed text, often of a float.
https://github.com/paboyle/Grid, Grid/parallelIO/NerscIO.h, readConfiguration."""
_MAX_HEADER_BYTES = 65536  # real headers are near one thousand bytes
_CHECKSUM = re.compile(r"(0[xX])?[0-9a-fA-F]{1,8}")


def read_nersc(path: PathLike, *, verify: bool = True) -> LoadedLinks:
    """The links of a NERSC file; `metadata` is its header.

    Size and CHECKSUM are always checked. `verify` also holds PLAQUETTE, LINK_TRACE and SU(3) against the links.
    Header keys beyond those needed are kept as they are: collaborations add their own.
    """
    with files.opened(path) as (stream, size):
        header = _read_header(stream)
        rows = _one_of(header, "DATATYPE", _ROWS)
        dtype = np.dtype(_one_of(header, "FLOATING_POINT", _FLOATS))
        nx, ny, nz, nt = (files.parse_extent(_get(header, f"DIMENSION_{i}"), f"DIMENSION_{i}") for i in range(1, 5))
        wanted = nx * ny * nz * nt * 4 * rows * 6 * dtype.itemsize
        if size - stream.tell() != wanted:
            raise ConfigurationFileError(
                f"data: DIMENSION_1..4 = {nx} {ny} {nz} {nt}, DATATYPE and FLOATING_POINT ask for {wanted} bytes, "
                f"{size - stream.tell()} follow the header"
            )
        stored = files.read_bytes(stream, wanted, "data").view(dtype)
        values = stored.astype(dtype.newbyteorder("="))
        _check_sum(header, stored, values)
        files.check_finite(values, "data")
        # Pairs of floats are complex numbers as they lie; going through the complex type of their own width is exact.
        narrow = values.view(np.complex64 if dtype.itemsize == 4 else np.complex128)
        links = narrow.astype(np.complex128).reshape(nt, nz, ny, nx, 4, rows, 3)
        if rows == 2:
            links = np.concatenate([links, files.third_row(links)[..., None, :]], axis=-2)
        if verify:
            files.check_special_unitary(links, "f32" if dtype.itemsize == 4 else "f64", "data")
            for key, (measured, tolerance) in _OF_LINKS.items():
                files.check_close(key, _number(header, key), measured(links), tolerance)
        return LoadedLinks(links=links, dims=(nx, ny, nz, nt), format="nersc", metadata=header)


def write_nersc(
    path: PathLike,
    links: NDArray[Any],
    *,
    rows: Literal[2, 3] = 3,
    floating_point: FloatingPoint | None = None,
    verify: bool = True,
) -> None:
    """Write `links`; three rows of 64 bits keep every bit.

    `floating_point` follows the links when it is not given: IEEE64BIG for complex128, IEEE32BIG for complex64.
    `verify=False` lets links outside SU(3) pass, except with two rows, which could not hold them.
    """
    name = floating_point or {"f32": "IEEE32BIG", "f64": "IEEE64BIG"}[files.precision_of(links)]
    if rows not in (2, 3) or name not in _FLOATS:
        raise ConfigurationFileError(f"rows must be 2 or 3 and floating_point one of {', '.join(_FLOATS)}")
    dtype = np.dtype(_FLOATS[name])
    precision: Precision = "f32" if dtype.itemsize == 4 else "f64"
    narrow = files.ready_to_write(links, precision, verify or rows == 2)
    full = narrow.astype(np.complex128, copy=False)
    values = np.ascontiguousarray(narrow[..., :rows, :]).view(f"f{dtype.itemsize}").reshape(-1)
    header = {
        "HDR_VERSION": "1.0",
        "DATATYPE": {2: "4D_SU3_GAUGE", 3: "4D_SU3_GAUGE_3x3"}[rows],
        "STORAGE_FORMAT": "1.0",
        **{f"DIMENSION_{i}": str(extent) for i, extent in enumerate(files.dims_of(links), start=1)},
        **{key: f"{measured(full):.12g}" for key, (measured, _) in _OF_LINKS.items()},
        **{f"BOUNDARY_{i}": "PERIODIC" for i in range(1, 5)},
        "CHECKSUM": f"{files.nersc_sum(values):x}",
        "ENSEMBLE_ID": "",
        "ENSEMBLE_LABEL": "",
        "SEQUENCE_NUMBER": "0",
        "CREATOR": f"metalforge {__version__}",
        "CREATION_DATE": datetime.now(UTC).strftime("%a %b %d %H:%M:%S %Y UTC"),
        "FLOATING_POINT": name,
    }
    text = "".join(["BEGIN_HEADER\n", *(f"{key} = {value}\n" for key, value in header.items()), "END_HEADER\n"])
    with files.replacing(path) as stream:
        stream.write(text.encode())
        stream.write(values.astype(dtype).view(np.uint8).data)


def _read_header(stream: BinaryIO) -> dict[str, str]:
    """The header's keys and values; the stream then stands at the first byte of the data."""
    head = stream.read(_MAX_HEADER_BYTES)
    lines = head.split(b"\n")
    if lines[0].strip() != b"BEGIN_HEADER":
        raise ConfigurationFileError("header: the first line must be BEGIN_HEADER; this is not a NERSC file")
    header: dict[str, str] = {}
    position = len(lines[0]) + 1
    for line in lines[1:-1]:  # what follows the last line feed is not a line
        position += len(line) + 1
        text = line.decode("utf-8", errors="replace").strip()
        if text == "END_HEADER":
            stream.seek(position)
            return header
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            continue
        if header.setdefault(key, value) != value:
            raise ConfigurationFileError(f"{key[:40]}: given twice, as `{header[key][:40]}` and `{value[:40]}`")
    raise ConfigurationFileError(f"header: no END_HEADER line in the first {len(head)} bytes")


def _get(header: dict[str, str], key: str) -> str:
    if key not in header:
        raise ConfigurationFileError(f"{key}: missing from the header; found {', '.join(header)[:400] or 'nothing'}")
    return header[key]


def _one_of(header: dict[str, str], key: str, known: dict[str, T]) -> T:
    value = _get(header, key)
    if value not in known:
        raise ConfigurationFileError(f"{key}: `{value[:40]}` is not supported; known: {', '.join(known)}")
    return known[value]


def _number(header: dict[str, str], key: str) -> float:
    text = _get(header, key)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationFileError(f"{key}: wanted a number, got `{text[:40]}`")
    return value


def _check_sum(header: dict[str, str], stored: NDArray[Any], values: NDArray[Any]) -> None:
    text = _get(header, "CHECKSUM")
    if not _CHECKSUM.fullmatch(text):
        raise ConfigurationFileError(f"CHECKSUM: wanted up to eight hexadecimal digits, got `{text[:40]}`")
    wanted, found = int(text, 16), files.nersc_sum(values)
    if wanted == found:
        return
    message = f"CHECKSUM: the header says {wanted:x}, the data give {found:x}"
    if files.nersc_sum(stored.view(stored.dtype.newbyteorder()).astype(values.dtype)) == wanted:
        message += "\nhint: they agree in the other byte order; FLOATING_POINT names the wrong one"
    raise ConfigurationFileError(message)
