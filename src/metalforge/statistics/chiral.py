r"""The chiral susceptibility: how the condensate changes with the mass.

For Nf flavours of one mass in the sea, and `condensate` = (1/V) tr D^-1 of four tastes,

    d<(Nf/4) condensate>/dm = (Nf/4) <connected> + (Nf/4)^2 V (<condensate^2> - <condensate>^2),

the connected part -(1/V) tr D^-2 and the disconnected one, whose square comes from products of different noise vectors:
those have no bias.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .estimate import Estimate, as_series
from .gamma import gamma_method, gamma_method_derived

__all__ = ["ChiralSusceptibility", "chiral_susceptibility"]


class ChiralSusceptibility(NamedTuple):
    """The two parts of d<(Nf/4) condensate>/dm."""

    connected: Estimate
    disconnected: Estimate


def chiral_susceptibility(
    condensate: ArrayLike,
    pairs: ArrayLike,
    connected: ArrayLike,
    *,
    volume: int,
    flavors: int,
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
