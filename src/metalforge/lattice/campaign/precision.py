"""A configuration evaluated again in higher precision: how far the action, the plaquette and |L| of a run are off.

Single-precision links are evaluated in double precision, double-precision ones in extended precision (the C long
double: 64 bits of mantissa on x86), both by NumPy: independent of the kernels that measured them.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Links: TypeAlias = NDArray[Any]
"""Complex of either width."""
DIRECTIONS = 4
EXTENDED = "f80" if np.finfo(np.longdouble).nmant == 63 else "long double"
"""What the C long double is here; on some systems it is no wider than a double."""


class EvaluatedField(NamedTuple):
    """P, the action a site over beta 6 (1 - P), and L of a configuration."""

    plaquette: float
    action_density: float
    polyakov: complex
    precision: str


def evaluate_again(links: NDArray[np.complex128], precision: str) -> EvaluatedField:
    """Return the observables of host links (Nt, Nz, Ny, Nx, 4, 3, 3), one precision above `precision`."""
    u: Links = links.astype(np.complex128 if precision == "f32" else np.clongdouble)
    plaquette = _plaquette(u)
    return EvaluatedField(
        float(plaquette), float(6 * (1 - plaquette)), complex(_polyakov(u)), "f64" if precision == "f32" else EXTENDED
    )


def _product(a: Links, b: Links) -> Links:
    # Nine sums of three terms: matmul has no fast path for extended precision.
    c = np.empty(np.broadcast_shapes(a.shape, b.shape), np.result_type(a, b))
    for i in range(3):
        for j in range(3):
            c[..., i, j] = a[..., i, 0] * b[..., 0, j] + a[..., i, 1] * b[..., 1, j] + a[..., i, 2] * b[..., 2, j]
    return c


def _plaquette(u: Links) -> Any:
    total = u.real.dtype.type(0)
    for mu in range(DIRECTIONS):
        for nu in range(mu):
            ahead = np.roll(u[..., nu, :, :], -1, axis=3 - mu)
            beside = np.roll(u[..., mu, :, :], -1, axis=3 - nu)
            forth = _product(u[..., mu, :, :], ahead)
            back = _product(u[..., nu, :, :], beside)
            total += (forth * back.conj()).real.sum()
    sites = u.shape[0] * u.shape[1] * u.shape[2] * u.shape[3]
    return total / (3 * 6 * sites)


def _polyakov(u: Links) -> Any:
    line = u[0, ..., 3, :, :]
    for t in range(1, u.shape[0]):
        line = _product(line, u[t, ..., 3, :, :])
    trace = line[..., 0, 0] + line[..., 1, 1] + line[..., 2, 2]
    return trace.mean() / 3
