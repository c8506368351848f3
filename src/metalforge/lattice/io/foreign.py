"""Configurations of openQCD and MILC. Read only.

openQCD (`export_cnfg`), little-endian: four 32-bit integers Nt, Nx, Ny, Nz, a double (the mean of Re tr U_p, so 3P),
then for each site with t + x + y + z odd, in the order t, x, y, z with z fastest, for each direction t, x, y, z the
links U(x, mu) and U(x - mu, mu) as nine complex doubles. Luescher, openQCD, modules/archive/archive.c (notes). It has
no checksum: the plaquette and SU(3) checks find what changes a link by more than about the tolerance of SU(3), 1e-10.

MILC version 5: a header of 96 bytes in the byte order of the writing machine (the magic number 20103, Nx, Ny, Nz, Nt, a
time stamp of 64 bytes, the order of the sites, the checksums sum29 and sum31), then the links in single precision.
https://github.com/milc-qcd/milc_qcd, generic/io_lat4.c and generic/io_lat_utils.c (swrite_gauge_hdr).
"""

import math
import struct

import numpy as np

from metalforge.core import PathLike
from metalforge.lattice.observables import plaquette_of

from . import _links as files
from ._links import ConfigurationFileError, Dims, HeaderFields, Links, StoredLinks

_HEADER = struct.Struct("<4id")
HEADER_BYTES = _HEADER.size
_TOLERANCE = 1e-12  # both are sums in double precision; openQCD allows the square root of their length in roundings


def read_openqcd(path: PathLike) -> StoredLinks:
    """The links of an openQCD file; `metadata` holds `plaquette`, with 1 for unit links.

    Fields with open or Schroedinger-functional boundaries do not have the plaquette of the header, nor are they in
    SU(3): they are read with `verify=False`.
    """
    with files.opened(path) as (stream, size):
        if size < HEADER_BYTES:
            raise ConfigurationFileError(f"header: the file has {size} bytes, an openQCD header {HEADER_BYTES}")
        head = files.read_bytes(stream, HEADER_BYTES, "header").tobytes()
        nt, nx, ny, nz, traces = _HEADER.unpack(head)
        if not looks_like_openqcd(head, size):
            raise ConfigurationFileError(
                f"header: sizes Nt, Nx, Ny, Nz = {nt} {nx} {ny} {nz} must be even and positive and ask for "
                f"{HEADER_BYTES} + {files.REALS_PER_SITE * 8} Nt Nx Ny Nz bytes, the file has {size}"
            )
        if not math.isfinite(traces):
            raise ConfigurationFileError(f"plaquette: the header says {traces}")
        values = files.read_bytes(stream, size - HEADER_BYTES, "data").view("<f8").astype(np.float64)
        links = _from_odd_sites(values.view(np.complex128).reshape(-1, 4, 2, 3, 3), (nx, ny, nz, nt))
        said = {"plaquette": (lambda: traces / 3, plaquette_of, _TOLERANCE)}
        return StoredLinks(links, {"plaquette": f"{traces / 3:.17g}"}, said=said)


def looks_like_openqcd(head: bytes, size: int) -> bool:
    """Whether the sizes in the first bytes of a file fit its length: there is no magic number."""
    if len(head) < HEADER_BYTES:
        return False
    nt, nx, ny, nz, _ = _HEADER.unpack(head[:HEADER_BYTES])
    sizes = (nt, nx, ny, nz)
    return (
        min(sizes) > 0
        and not any(n % 2 for n in sizes)
        and size == HEADER_BYTES + files.REALS_PER_SITE * 8 * math.prod(sizes)
    )


def _from_odd_sites(pairs: Links, dims: Dims) -> Links:
    """All links from the forward and backward links of the odd sites; `pairs` is (odd site, mu, 2, 3, 3), mu = txyz."""
    nx, ny, nz, nt = dims
    t, x, y, z = np.ix_(range(nt), range(nx), range(ny), range(nz))
    odd = (t + x + y + z) % 2 == 1
    field = np.empty((nt, nx, ny, nz, 4, 3, 3), dtype=np.complex128)
    behind = np.empty((nt, nx, ny, nz, 3, 3), dtype=np.complex128)
    for mu in range(4):
        field[odd, mu] = pairs[:, mu, 0]
        behind[odd] = pairs[:, mu, 1]
        field[~odd, mu] = np.roll(behind, -1, axis=mu)[~odd]  # the backward link of x belongs to x - mu
    return np.ascontiguousarray(field.transpose(0, 3, 2, 1, 4, 5, 6)[..., [1, 2, 3, 0], :, :])


MILC_MAGIC = 20103

_LAYOUT = "I4i64siII"
_HEADER_BYTES = struct.calcsize("<" + _LAYOUT)
_NATURAL_ORDER = 0


def read_milc(path: PathLike) -> StoredLinks:
    """The links of a MILC v5 file of either byte order; `metadata` holds `time_stamp`, `byte_order` and the sums."""
    with files.opened(path) as (stream, size):
        if size < _HEADER_BYTES:
            raise ConfigurationFileError(f"header: the file has {size} bytes, a MILC header {_HEADER_BYTES}")
        head = files.read_bytes(stream, _HEADER_BYTES, "header").tobytes()
        order = _byte_order(head)
        _, nx, ny, nz, nt, stamp, site_order, *sums = struct.unpack(order + _LAYOUT, head)
        dims: Dims = (nx, ny, nz, nt)
        if min(dims) < 1:
            raise ConfigurationFileError(f"dims: wanted positive extents, got {nx} {ny} {nz} {nt}")
        if site_order != _NATURAL_ORDER:
            raise ConfigurationFileError(
                f"order: {site_order} (node dump order) is not supported\nhint: save it with MILC's `save_serial`"
            )
        wanted = math.prod(dims) * files.REALS_PER_SITE * 4
        if size - _HEADER_BYTES != wanted:
            raise ConfigurationFileError(
                f"data: dims {nx} {ny} {nz} {nt} ask for {wanted} bytes, {size - _HEADER_BYTES} follow the header"
            )
        # Both checksums are over the words as numbers of the writing machine, so after undoing its byte order.
        words = files.read_bytes(stream, wanted, "data").view(order + "u4").astype(np.uint32)
        header = HeaderFields(
            time_stamp=stamp.split(b"\0")[0].decode("utf-8", errors="replace").strip(),
            byte_order="little" if order == "<" else "big",
            sum29=f"{sums[0]:x}",
            sum31=f"{sums[1]:x}",
        )
        for name, found in zip(("sum29", "sum31"), files.rotated_xor(words), strict=True):
            header.check_sum(name, found)
        return StoredLinks(files.as_links(words.view(np.float32), dims), header)


def _byte_order(head: bytes) -> str:
    for order in "<>":
        if struct.unpack_from(order + "I", head)[0] == MILC_MAGIC:
            return order
    raise ConfigurationFileError(
        f"magic: the first four bytes are {head[:4].hex()}, wanted {MILC_MAGIC} in either order"
    )
