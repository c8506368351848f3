"""MILC version 5 binary files: a header of 96 bytes, then the links in single precision. Read only.

The header, in the byte order of the writing machine, is the magic number 20103, Nx, Ny, Nz, Nt, a time stamp of 64
bytes, the order of the sites and the checksums sum29 and sum31. Layout and checksums are those of
https://github.com/milc-qcd/milc_qcd, generic/io_lat4.c and generic/io_lat_utils.c (swrite_gauge_hdr).
"""

import struct

import numpy as np

from ._links import (
    REALS_PER_SITE,
    ConfigurationFileError,
    Dims,
    LoadedLinks,
    PathLike,
    check_finite,
    check_special_unitary,
    opened,
    read_bytes,
    rotated_xor,
    shape_of,
)

__all__ = ["MILC_MAGIC", "read_milc"]

MILC_MAGIC = 20103

_LAYOUT = "I4i64siII"
_HEADER_BYTES = struct.calcsize("<" + _LAYOUT)
_NATURAL_ORDER = 0


def read_milc(path: PathLike, *, verify: bool = True) -> LoadedLinks:
    """The links of a MILC v5 file of either byte order; `metadata` holds `time_stamp`, `byte_order` and the sums.

    Size and both checksums are always checked; `verify` also checks that the links are in SU(3).
    """
    with opened(path) as (stream, size):
        if size < _HEADER_BYTES:
            raise ConfigurationFileError(f"header: the file has {size} bytes, a MILC header {_HEADER_BYTES}")
        head = read_bytes(stream, _HEADER_BYTES, "header").tobytes()
        order = _byte_order(head)
        _, nx, ny, nz, nt, stamp, site_order, *sums = struct.unpack(order + _LAYOUT, head)
        dims: Dims = (nx, ny, nz, nt)
        if min(dims) < 1:
            raise ConfigurationFileError(f"dims: wanted positive extents, got {nx} {ny} {nz} {nt}")
        if site_order != _NATURAL_ORDER:
            raise ConfigurationFileError(
                f"order: {site_order} (node dump order) is not supported\nhint: save it with MILC's `save_serial`"
            )
        wanted = nx * ny * nz * nt * REALS_PER_SITE * 4
        if size - _HEADER_BYTES != wanted:
            raise ConfigurationFileError(
                f"data: dims {nx} {ny} {nz} {nt} ask for {wanted} bytes, {size - _HEADER_BYTES} follow the header"
            )
        # Both checksums are over the words as numbers of the writing machine, so after undoing its byte order.
        words = read_bytes(stream, wanted, "data").view(order + "u4").astype(np.uint32)
        for name, stored, found in zip(("sum29", "sum31"), sums, rotated_xor(words), strict=True):
            if stored != found:
                raise ConfigurationFileError(f"{name}: the header says {stored:x}, the data give {found:x}")
        values = words.view(np.float32)
        check_finite(values, "data")
        links = values.astype(np.float64).view(np.complex128).reshape(shape_of(dims))
        if verify:
            check_special_unitary(links, "f32", "data")
        metadata = {
            "time_stamp": stamp.split(b"\0")[0].decode("utf-8", errors="replace").strip(),
            "byte_order": "little" if order == "<" else "big",
            "sum29": f"{sums[0]:x}",
            "sum31": f"{sums[1]:x}",
        }
        return LoadedLinks(links=links, dims=dims, format="milc", metadata=metadata)


def _byte_order(head: bytes) -> str:
    for order in "<>":
        if struct.unpack_from(order + "I", head)[0] == MILC_MAGIC:
            return order
    raise ConfigurationFileError(
        f"magic: the first four bytes are {head[:4].hex()}, wanted {MILC_MAGIC} in either order"
    )
