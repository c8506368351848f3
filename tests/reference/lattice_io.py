"""Random links, checksums word by word, and writers of the formats that the package only reads."""

import struct
import zlib

import numpy as np

MASK = 0xFFFFFFFF


def random_links(dims, seed=7):
    """SU(3) links, (Nt, Nz, Ny, Nx, 4, 3, 3): unitary by QR, then divided by a cube root of the determinant."""
    rng = np.random.default_rng(seed)
    shape = (*reversed(dims), 4, 3, 3)
    q, _ = np.linalg.qr(rng.normal(size=shape) + 1j * rng.normal(size=shape))
    return q / np.linalg.det(q)[..., None, None] ** (1 / 3)


def rotate(word, by):
    return ((word << by) | (word >> (32 - by))) & MASK


def milc_sums(words):
    sum29 = sum31 = 0
    for i, word in enumerate(int(w) for w in words):
        sum29 ^= rotate(word, i % 29)
        sum31 ^= rotate(word, i % 31)
    return sum29, sum31


def scidac_sums(data, n_sites):
    size = len(data) // n_sites
    return milc_sums(zlib.crc32(data[i * size : (i + 1) * size]) for i in range(n_sites))


def milc_bytes(links, order="<", magic=20103, site_order=0):
    nt, nz, ny, nx = links.shape[:4]
    values = links.astype(np.complex64)
    sums = milc_sums(values.reshape(-1).view(np.uint32))
    head = struct.pack(f"{order}I4i64siII", magic, nx, ny, nz, nt, b"Mon Jan  1 00:00:00 2024", site_order, *sums)
    return head + values.astype(f"{order}c8").tobytes()


def plaquette_by_loops(links):
    """Mean of Re tr U_p / 3, site by site."""
    nt, nz, ny, nx = links.shape[:4]
    sizes = (nx, ny, nz, nt)
    total = 0.0
    for site in np.ndindex(*sizes):
        for mu in range(4):
            for nu in range(mu):
                ahead = tuple((s + (d == mu)) % n for d, (s, n) in enumerate(zip(site, sizes, strict=True)))
                aside = tuple((s + (d == nu)) % n for d, (s, n) in enumerate(zip(site, sizes, strict=True)))
                first = links[site[::-1]][mu] @ links[ahead[::-1]][nu]
                second = links[site[::-1]][nu] @ links[aside[::-1]][mu]
                total += np.trace(first @ second.conj().T).real / 3
    return total / (6 * nx * ny * nz * nt)


def openqcd_bytes(links, plaquette=None):
    nt, nz, ny, nx = links.shape[:4]
    plaquette = plaquette_by_loops(links) if plaquette is None else plaquette
    out = [struct.pack("<4id", nt, nx, ny, nz, 3 * plaquette)]
    for t, x, y, z in np.ndindex(nt, nx, ny, nz):
        if (t + x + y + z) % 2 == 0:
            continue
        for mu, (dt, dx, dy, dz) in ((3, (1, 0, 0, 0)), (0, (0, 1, 0, 0)), (1, (0, 0, 1, 0)), (2, (0, 0, 0, 1))):
            behind = ((t - dt) % nt, (z - dz) % nz, (y - dy) % ny, (x - dx) % nx)
            out += [links[t, z, y, x, mu].astype("<c16").tobytes(), links[behind][mu].astype("<c16").tobytes()]
    return b"".join(out)


def nersc_bytes(links, rows=3, floating_point="IEEE64BIG"):
    """The links of three rows or two, in any of the five spellings of floating-point numbers."""
    nt, nz, ny, nx = links.shape[:4]
    dtype = np.dtype(("<" if floating_point.endswith("LITTLE") else ">") + ("f8" if "64" in floating_point else "f4"))
    values = np.ascontiguousarray(links[..., :rows, :]).view(np.float64).astype(dtype)
    words = values.astype(dtype.newbyteorder("=")).view(np.uint32)
    header = {
        "DATATYPE": {2: "4D_SU3_GAUGE", 3: "4D_SU3_GAUGE_3x3"}[rows],
        **{f"DIMENSION_{i}": n for i, n in enumerate((nx, ny, nz, nt), start=1)},
        "LINK_TRACE": np.mean(np.trace(links, axis1=-2, axis2=-1).real) / 3,
        "PLAQUETTE": plaquette_by_loops(links),
        "CHECKSUM": f"{int(words.astype(object).sum()) % 2**32:x}",
        "FLOATING_POINT": floating_point,
    }
    lines = ["BEGIN_HEADER", *(f"{key} = {value}" for key, value in header.items()), "END_HEADER"]
    return "\n".join(lines).encode() + b"\n" + values.tobytes()
