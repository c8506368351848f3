"""What is measured on a configuration."""

import cmath
import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .field import GaugeField

__all__ = ["Observables", "creutz_ratio", "measure", "wilson_loops", "z3_projection"]


class Observables(msgspec.Struct, frozen=True, kw_only=True):
    """The cheap observables of one configuration; conventions in `metalforge.lattice`."""

    plaquette: float
    plaquette_spatial: float
    plaquette_temporal: float
    polyakov_re: float
    polyakov_im: float

    @property
    def polyakov(self) -> complex:
        """The volume-averaged Polyakov loop."""
        return complex(self.polyakov_re, self.polyakov_im)

    @property
    def action_density(self) -> float:
        """S / (beta V) = 6 (1 - P)."""
        return 6 * (1 - self.plaquette)


def measure(field: GaugeField) -> Observables:
    """Return the observables of a field."""
    spatial, temporal = (s / (3 * field.volume) for s in field.plaquette_sums())
    loop = field.polyakov()
    return Observables(
        plaquette=(spatial + temporal) / 2,
        plaquette_spatial=spatial,
        plaquette_temporal=temporal,
        polyakov_re=loop.real,
        polyakov_im=loop.imag,
    )


def z3_projection(loop: complex) -> float:
    """Return Re(z L) for the third root of unity z that brings L closest to the positive real axis."""
    if loop == 0 or not cmath.isfinite(loop):
        return abs(loop)
    sector = round(cmath.phase(loop) / (2 * math.pi / 3))
    return (loop * cmath.exp(-2j * math.pi / 3 * sector)).real


def wilson_loops(links: NDArray[np.complex128], r_max: int, t_max: int) -> NDArray[np.float64]:
    """Return W(r, t) = <Re tr / 3> of planar loops, r = 1 .. r_max in space by t = 1 .. t_max in time.

    `links` are host links; entry [r - 1, t - 1] is averaged over sites and the three spatial directions.
    """
    n_t, n_z, n_y, n_x = links.shape[:4]
    if not (1 <= r_max <= min(n_x, n_y, n_z) and 1 <= t_max <= n_t):
        raise SpecError(f"loops of {r_max} x {t_max} do not fit a lattice of {(n_x, n_y, n_z, n_t)}")

    def shift(field: NDArray[np.complex128], mu: int, distance: int) -> NDArray[np.complex128]:
        return np.roll(field, -distance, axis=3 - mu)

    def lines(mu: int, longest: int) -> list[NDArray[np.complex128]]:
        """Products of 1 .. longest links in direction mu, starting at each site."""
        u = links[..., mu, :, :]
        products = [u]
        for n in range(1, longest):
            products.append(products[-1] @ shift(u, mu, n))
        return products

    loops = np.zeros((r_max, t_max))
    temporal = lines(3, t_max)
    for mu in range(3):
        for r, side in enumerate(lines(mu, r_max), start=1):
            for t, up in enumerate(temporal, start=1):
                there = side @ shift(up, mu, r)
                back = up @ shift(side, 3, t)
                loops[r - 1, t - 1] += np.einsum("...ij,...ij->...", there, back.conj()).real.mean() / 9
    return loops


def creutz_ratio(loops: NDArray[np.float64], r: int, t: int) -> float:
    """Return chi(r, t) = -ln[W(r,t) W(r-1,t-1) / (W(r,t-1) W(r-1,t))], an estimate of the string tension."""
    if r < 2 or t < 2:
        raise SpecError(f"a Creutz ratio needs r, t >= 2. Got {r}, {t}")
    above = float(loops[r - 1, t - 1] * loops[r - 2, t - 2])
    below = float(loops[r - 1, t - 2] * loops[r - 2, t - 1])
    # Noise can turn a small loop negative; there is no ratio then.
    return -math.log(above / below) if above * below > 0 else math.nan
