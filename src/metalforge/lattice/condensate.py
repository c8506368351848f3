"""The chiral condensate by noise, and the pion's correlator.

Normalised for one staggered field, that is four tastes, colours summed:

    condensate = (1/V) tr D^-1 = (m/V) tr A^-1 over all sites = (2 m/V) tr A^-1 over even ones,
    connected  = -(1/V) tr D^-2 = (2/V) tr (A^-1 - 2 m^2 A^-2) over even sites, its derivative with m at fixed links,

with A = D^+ D: the rest of D^-1 = D^+ A^-1 joins sites of opposite parity, and both parities have one spectrum.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError

from .colour import ColourField
from .inverter import Inverter
from .observables import Observables

__all__ = ["CondensateSample", "SeaObservables", "measure_condensate", "pion_correlator"]

NOISE_DRAW = 6 << 28
"""Draws of estimator noise: NOISE_DRAW + vector * 256."""

TOLERANCE = 1e-9
"""Relative residual of a measurement's solves: far below the noise of any number of vectors one would draw."""


class SeaObservables(Observables, frozen=True, kw_only=True):
    """The observables of a configuration with sea quarks; of the first mass, averaged over noise vectors."""

    condensate: float
    condensate_pairs: float | None
    """The mean product of two different noise vectors' condensates, an estimate of its square; None for one vector."""
    condensate_connected: float


class CondensateSample(NamedTuple):
    """What each noise vector found on one configuration."""

    condensate: tuple[float, ...]
    connected: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean condensate."""
        return math.fsum(self.condensate) / len(self.condensate)

    @property
    def pairs(self) -> float | None:
        """The mean product of two different vectors' condensates."""
        n = len(self.condensate)
        if n < 2:
            return None
        total = math.fsum(self.condensate)
        return (total**2 - math.fsum(c**2 for c in self.condensate)) / (n * (n - 1))

    @property
    def mean_connected(self) -> float:
        """The mean connected part."""
        return math.fsum(self.connected) / len(self.connected)


def measure_condensate(
    inverter: Inverter,
    mass: float,
    *,
    n_vectors: int,
    seed: int,
    stream: int,
    step: int,
    tolerance: float = TOLERANCE,
) -> CondensateSample:
    """Return the condensate and its connected part on the inverter's links, from each of `n_vectors` noise vectors.

    Noise is (+-1 +- i) / sqrt 2 for each component, so that only off-diagonal elements of A^-1 make it noisy.
    """
    if n_vectors < 1:
        raise SpecError(f"`n_vectors` must be at least 1. Got {n_vectors}")
    noise, found = inverter.fresh(), inverter.fresh()
    volume = inverter.volume
    condensate, connected = [], []
    for n in range(n_vectors):
        noise.gaussian(seed=seed, stream=stream, step=step, draw=NOISE_DRAW + 256 * n)
        noise.from_host(np.copysign(math.sqrt(0.5), noise.to_host().view(float)).view(complex))
        inverter.solve(noise, found, mass=mass, tolerance=tolerance)
        trace = noise.dot(found).real
        condensate.append(2 * mass * trace / volume)
        connected.append(2 * (trace - 2 * mass**2 * found.norm2()) / volume)
    return CondensateSample(tuple(condensate), tuple(connected))


def pion_correlator(inverter: Inverter, mass: float, *, tolerance: float = TOLERANCE) -> NDArray[np.float64]:
    """Return C(t) = sum_x sum_ab |D^-1(x, t; 0)_ab|^2 for t = 0 .. Nt - 1, from a point source at the origin.

    The Goldstone pion's channel. With X = A^-1 source on even sites, D^-1 source is m X there and -H X on odd ones.
    """
    source, found, odd = inverter.fresh(), inverter.fresh(), inverter.fresh(parity=1)
    host = source.to_host()
    total = np.zeros(host.shape[0])
    for colour in range(3):
        host[...] = 0
        host[0, 0, 0, 0, colour] = 1
        source.from_host(host)
        inverter.solve(source, found, mass=mass, tolerance=tolerance)
        inverter.hop(odd, found)
        total += _sum_by_time(found) * mass**2 + _sum_by_time(odd)
    return total


def _sum_by_time(field: ColourField) -> NDArray[np.float64]:
    host = field.to_host()
    return np.asarray(np.sum(np.abs(host) ** 2, axis=(1, 2, 3, 4)), np.float64)
