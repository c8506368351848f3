"""A configuration evaluated again in higher precision: how far the action, the plaquette and |L| of a run are off.

Single-precision links are evaluated in double precision, double-precision ones in extended precision (the C long
double: 64 bits of mantissa on x86), both by NumPy: independent of the kernels that measured them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.lattice.observables import plaquette_of, polyakov_of

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
    u = links.astype(np.complex128 if precision == "f32" else np.clongdouble)
    plaquette = plaquette_of(u)
    return EvaluatedField(
        float(plaquette), float(6 * (1 - plaquette)), complex(polyakov_of(u)), "f64" if precision == "f32" else EXTENDED
    )
