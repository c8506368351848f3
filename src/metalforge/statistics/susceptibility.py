r"""Fluctuations that locate the transition: chi and the Binder ratio B4 of the Polyakov loop, chi of the condensate.

With |L| the modulus of the spatially averaged loop L = (1/N_s^3) sum_x tr(prod_t U_t) / 3 and V_s = N_s^3,

    chi_|L| = V_s (<|L|^2> - <|L|>^2),        B4 = <dL^4> / <dL^2>^2,   dL = |L| - <|L|>.

chi peaks at the transition and its height grows like V_s at a first-order one. B4, about the mean as in studies of
critical end points (for example de Forcrand and Philipsen, hep-lat/0607017), is 3 for Gaussian fluctuations, 1 for
two equally likely sharp phases, and 1.604 at a critical point of the 3d Ising class.

The chiral susceptibility says how the condensate changes with the mass. For Nf flavours of one mass in the sea, and
`condensate` = (1/V) tr D^-1 of four tastes,

    d<(Nf/4) condensate>/dm = (Nf/4) <connected> + (Nf/4)^2 V (<condensate^2> - <condensate>^2),

the connected part -(1/V) tr D^-2 and the disconnected one, whose square comes from products of different noise vectors:
those have no bias.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import SpecError

from .estimate import Estimate, Floats, as_series
from .gamma import gamma_method, gamma_method_derived


def susceptibility(abs_loop: ArrayLike, spatial_volume: float) -> Estimate:
    """Return V_s (<|L|^2> - <|L|>^2) of the series `abs_loop` of |L|, with its Gamma-method error.

    The variance is the plain one, divided by n: the fraction 2 tau_int / n by which it falls short is left in, being
    far below the error. `tau_int` is that of the squared fluctuation, not of |L| itself.
    """
    x = as_series(abs_loop, "abs_loop")
    if not (np.isfinite(spatial_volume) and spatial_volume > 0):
        raise SpecError(f"`spatial_volume` must be > 0, the number of spatial sites N_s^3. Got {spatial_volume}")
    # About the sample mean the same expression loses no digits; the shift is a constant and changes no error.
    y = x - np.mean(x)
    return gamma_method_derived([y, y**2], lambda m: float(spatial_volume * (m[1] - m[0] ** 2)))


class ChiralSusceptibility(NamedTuple):
    """The two parts of d<(Nf/4) condensate>/dm."""

    connected: Estimate
    disconnected: Estimate


def chiral_susceptibility(
    condensate: ArrayLike, pairs: ArrayLike, connected: ArrayLike, *, volume: int, flavors: int
) -> ChiralSusceptibility:
    """Return the susceptibility from series over configurations: the condensate, its square and its connected part.

    `pairs` is the mean product of two noise vectors' condensates on a configuration, `volume` counts all sites,
    `flavors` the sea quarks of that mass.
    """
    share = flavors / 4
    # About the mean the same expression loses no digits: <(c - c0)(c' - c0)> - <c - c0>^2.
    raw = as_series(condensate, "condensate")
    centre = float(np.mean(raw))
    c = raw - centre
    p = as_series(pairs, "pairs") - centre * (2 * c + centre)
    return ChiralSusceptibility(
        gamma_method(share * as_series(connected, "connected")),
        gamma_method_derived([c, p], lambda m: float(share**2 * volume * (m[1] - m[0] ** 2))),
    )


def kurtosis(moments: Floats) -> Floats:
    """Return <dx^4> / <dx^2>^2 from the moments <x>, <x^2>, <x^3>, <x^4> about any constant, for arrays of them too."""
    m1, m2, m3, m4 = moments
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return np.asarray(fourth / (m2 - m1**2) ** 2, dtype=np.float64)
