"""openQCD configurations (`export_cnfg`): sizes, plaquette, then eight links at each odd site. Read only.

Little-endian: four 32-bit integers Nt, Nx, Ny, Nz, a double (the mean of Re tr U_p, so 3P), then for each site with
t + x + y + z odd, in the order t, x, y, z with z fastest, for each direction t, x, y, z the links U(x, mu) and
U(x - mu, mu) as nine complex doubles. Luescher, openQCD, modules/archive/archive.c (notes).

The format has no checksum. The plaquette and SU(3) checks find what changes a link by more than about the tolerance of
SU(3), 1e-10; a change of the last digits stays unseen.
"""

import math
import struct

import numpy as np

from ._links import (
    REALS_PER_SITE,
    ConfigurationFileError,
    Dims,
    Links,
    LoadedLinks,
    PathLike,
    check_close,
    check_finite,
    check_special_unitary,
    opened,
    plaquette,
    read_bytes,
)

__all__ = ["looks_like_openqcd", "read_openqcd"]

_HEADER = struct.Struct("<4id")
HEADER_BYTES = _HEADER.size
_TOLERANCE = 1e-12  # both are sums in double precision; openQCD allows the square root of their length in roundings


def read_openqcd(path: PathLike, *, verify: bool = True) -> LoadedLinks:
    """The links of an openQCD file; `metadata` holds `plaquette`, with 1 for unit links.

    `verify` compares the plaquette with the header and checks that the links are in SU(3). Fields with open or
    Schroedinger-functional boundaries fail both: read them with `verify=False`.
    """
    with opened(path) as (stream, size):
        if size < HEADER_BYTES:
            raise ConfigurationFileError(f"header: the file has {size} bytes, an openQCD header {HEADER_BYTES}")
        head = read_bytes(stream, HEADER_BYTES, "header").tobytes()
        nt, nx, ny, nz, traces = _HEADER.unpack(head)
        dims: Dims = (nx, ny, nz, nt)
        if not looks_like_openqcd(head, size):
            raise ConfigurationFileError(
                f"header: sizes Nt, Nx, Ny, Nz = {nt} {nx} {ny} {nz} must be even and positive and ask for "
                f"{HEADER_BYTES} + {REALS_PER_SITE * 8} Nt Nx Ny Nz bytes, the file has {size}"
            )
        if not math.isfinite(traces):
            raise ConfigurationFileError(f"plaquette: the header says {traces}")
        values = read_bytes(stream, size - HEADER_BYTES, "data").view("<f8").astype(np.float64)
        check_finite(values, "data")
        links = _from_odd_sites(values.view(np.complex128).reshape(-1, 4, 2, 3, 3), dims)
        if verify:
            check_special_unitary(links, "f64", "data")
            check_close("plaquette", traces / 3, plaquette(links), _TOLERANCE)
        return LoadedLinks(links=links, dims=dims, format="openqcd", metadata={"plaquette": f"{traces / 3:.17g}"})


def looks_like_openqcd(head: bytes, size: int) -> bool:
    """Whether the sizes in the first bytes of a file fit its length: there is no magic number."""
    if len(head) < HEADER_BYTES:
        return False
    nt, nx, ny, nz, _ = _HEADER.unpack(head[:HEADER_BYTES])
    sizes = (nt, nx, ny, nz)
    return (
        min(sizes) > 0
        and not any(n % 2 for n in sizes)
        and size == HEADER_BYTES + REALS_PER_SITE * 8 * math.prod(sizes)
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
