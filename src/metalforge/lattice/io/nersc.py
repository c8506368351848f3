"""NERSC archive files (the Gauge Connection format): a text header, then the links.

After `BEGIN_HEADER` come lines `KEY = value` up to `END_HEADER`; the data follow with x fastest and t slowest, four
links per site in the order x, y, z, t, each two (`4D_SU3_GAUGE`) or three (`4D_SU3_GAUGE_3x3`) rows of three complex
numbers. Keys and conventions as in https://github.com/paboyle/Grid, Grid/parallelIO/NerscIO.h and MetaData.h.
"""

import math
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core import PathLike
from metalforge.lattice.observables import plaquette_of

from . import _links as files
from ._links import ConfigurationFileError, HeaderFields, StoredLinks

_ROWS = {"4D_SU3_GAUGE": 2, "4D_SU3_GAUGE_3x3": 3}
# Plain IEEE32 is big-endian to SIMULATeQCD, GLU and qlua, little-endian to Grid. A file of the second kind fails its
# checksum here, and the message says that the other order fits.
_FLOATS = {"IEEE32": ">f4", "IEEE32BIG": ">f4", "IEEE32LITTLE": "<f4", "IEEE64BIG": ">f8", "IEEE64LITTLE": "<f8"}
_OF_LINKS = {"LINK_TRACE": (files.link_trace, 1e-6), "PLAQUETTE": (plaquette_of, 1e-5)}
"""What the header says of the links, and what Grid allows between the two: it is printed text, often of a float.
https://github.com/paboyle/Grid, Grid/parallelIO/NerscIO.h, readConfiguration."""
_DIMENSIONS = tuple(f"DIMENSION_{i}" for i in range(1, 5))
_MAX_HEADER_BYTES = 65536  # real headers are near one thousand bytes


def read_nersc(path: PathLike) -> StoredLinks:
    """The links of a NERSC file, with its header; keys beyond those needed are kept: collaborations add their own."""
    with files.opened(path) as (stream, size):
        header = _read_header(stream)
        rows, dtype = header.chosen("DATATYPE", _ROWS), np.dtype(header.chosen("FLOATING_POINT", _FLOATS))
        dims = header.dims(_DIMENSIONS)
        wanted = math.prod(dims) * 4 * rows * 6 * dtype.itemsize
        if (left := size - stream.tell()) != wanted:
            raise ConfigurationFileError(
                f"data: DIMENSION_1..4 = {' '.join(map(str, dims))}, DATATYPE and FLOATING_POINT ask for {wanted} "
                f"bytes, {left} follow the header"
            )
        stored = files.read_bytes(stream, wanted, "data").view(dtype)
        values = stored.astype(dtype.newbyteorder("="))

        def other_order(said: int) -> str:
            fits = files.nersc_sum(stored.view(dtype.newbyteorder()).astype(values.dtype)) == said
            return "\nhint: they agree in the other byte order; FLOATING_POINT names the wrong one" if fits else ""

        header.check_sum("CHECKSUM", files.nersc_sum(values), other_order)
        said = {key: (partial(header.number, key), *known) for key, known in _OF_LINKS.items()}
        return StoredLinks(files.as_links(values, dims, rows), header, said=said)


def write_nersc(path: PathLike, links: NDArray[Any], *, verify: bool = True) -> None:
    """Write `links` with every bit: three rows, big-endian; `verify=False` lets links outside SU(3) pass."""
    links = files.ready_to_write(links, verify)
    full, bits = links.astype(np.complex128, copy=False), 4 * links.itemsize
    values = links.view(f"f{bits // 8}").reshape(-1)
    header = {
        "HDR_VERSION": "1.0",
        "DATATYPE": "4D_SU3_GAUGE_3x3",
        "STORAGE_FORMAT": "1.0",
        **dict(zip(_DIMENSIONS, map(str, files.dims_of(links)), strict=True)),
        **{key: f"{measured(full):.12g}" for key, (measured, _) in _OF_LINKS.items()},
        **{f"BOUNDARY_{i}": "PERIODIC" for i in range(1, 5)},
        "CHECKSUM": f"{files.nersc_sum(values):x}",
        "ENSEMBLE_ID": "",
        "ENSEMBLE_LABEL": "",
        "SEQUENCE_NUMBER": "0",
        "CREATOR": f"metalforge {__version__}",
        "CREATION_DATE": datetime.now(UTC).strftime("%a %b %d %H:%M:%S %Y UTC"),
        "FLOATING_POINT": f"IEEE{bits}BIG",
    }
    text = "".join(["BEGIN_HEADER\n", *(f"{key} = {value}\n" for key, value in header.items()), "END_HEADER\n"])
    with files.replacing(path) as stream:
        stream.write(text.encode())
        stream.write(values.astype(values.dtype.newbyteorder(">")).view(np.uint8).data)


def _read_header(stream: BinaryIO) -> HeaderFields:
    """The header's keys and values; the stream then stands at the first byte of the data."""
    head = stream.read(_MAX_HEADER_BYTES)
    lines = head.split(b"\n")
    if lines[0].strip() != b"BEGIN_HEADER":
        raise ConfigurationFileError("header: the first line must be BEGIN_HEADER; this is not a NERSC file")
    header = HeaderFields()
    position = len(lines[0]) + 1
    for line in lines[1:-1]:  # what follows the last line feed is not a line
        position += len(line) + 1
        text = line.decode("utf-8", errors="replace").strip()
        if text == "END_HEADER":
            stream.seek(position)
            return header
        key, equals, value = (part.strip() for part in text.partition("="))
        if equals:
            header.add(key, value)
    raise ConfigurationFileError(f"header: no END_HEADER line in the first {len(head)} bytes")
