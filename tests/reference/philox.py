"""Philox4x32-10 in plain integers: the definition that native/philox.hpp is held against."""

import numpy as np

MASK = 0xFFFFFFFF


def block(counter, key):
    c0, c1, c2, c3 = (int(c) for c in counter)
    k0, k1 = (int(k) for k in key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def uniform(seed, stream, step, sites, draws, first_site=0, first_draw=0):
    """(k + 1/2) / 2^52 with k the top 52 bits of each pair of words; exact in floats."""
    out = np.empty((sites, draws))
    for site in range(sites):
        for d in range(draws // 2):
            words = block((first_draw + d, first_site + site, step, stream), (seed & MASK, seed >> 32))
            for k in range(2):
                bits = ((words[2 * k + 1] << 32) | words[2 * k]) >> 12
                out[site, 2 * d + k] = (2 * bits + 1) * 2.0**-53
    return out


def normal(*address, **more):
    """Box-Muller with libm's functions: equal up to their rounding, not bit by bit."""
    u = uniform(*address, **more)
    radius = np.sqrt(-2.0 * np.log(u[:, 0::2]))
    angle = 2.0 * np.pi * u[:, 1::2]
    out = np.empty_like(u)
    out[:, 0::2], out[:, 1::2] = radius * np.cos(angle), radius * np.sin(angle)
    return out
