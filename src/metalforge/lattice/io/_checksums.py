"""The checksums of configuration files: NERSC's sum and the rotated XOR of MILC and SciDAC."""

import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["nersc_sum", "rotated_xor", "site_crcs"]

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
