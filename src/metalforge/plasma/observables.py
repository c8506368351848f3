"""What samples and frames of a run say: energy, pressure and stress; g(r), S(k), and how far particles go.

Sums over pairs stop at the cut-off; beyond it g = 1 is taken for energy and pressure.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.native import PARTICLE_SUMS, density_powers

from .spec import DENSITY, MASS, PlasmaSpec

Floats = NDArray[np.float64]
STRESSES = ("xy", "yz", "zx", "xx-yy", "2zz-xx-yy")
"""The five anisotropic components: the last two are (xx - yy) / 2 and (2 zz - xx - yy) / (2 sqrt 3)."""
CURRENTS = PARTICLE_SUMS[14:]
SERIES = ("time", "kinetic", "potential", "phi", "virial", *(f"stress_{name}" for name in STRESSES), *CURRENTS)
"""What a sample is kept as, of all particles: the potential is the conserved one, zero at the cut-off; phi is not
shifted."""
_AT = {name: i for i, name in enumerate(PARTICLE_SUMS)}
_TENSOR = ("xx", "yy", "zz", "xy", "yz", "zx")


def energy_tail(spec: PlasmaSpec) -> float:
    """Return u / Gamma of pairs beyond the cut-off, (3/2) e^(-x) (1 + x) / kappa^2 with x = kappa r_c."""
    x = spec.kappa * spec.cutoff
    return 1.5 * math.exp(-x) * (1 + x) / spec.kappa**2


def virial_tail(spec: PlasmaSpec) -> float:
    """Return sum r F of pairs beyond the cut-off for each particle, (3/2) e^(-x) (r_c^2 + 3 r_c/kappa + 3/kappa^2)."""
    x, r = spec.kappa * spec.cutoff, spec.cutoff
    return 1.5 * math.exp(-x) * (r * r + 3 * r / spec.kappa + 3 / spec.kappa**2)


def series_of(spec: PlasmaSpec, sums: Floats, first: float) -> dict[str, Floats]:
    """Return the columns of SERIES for samples, the first of which is one sample time after `first`.

    Stress is P_ab = (1/V) [sum m v_a v_b + sum_pairs r_a F_b]; P_ab = P_ba.
    """
    column = {name: sums[:, i] for name, i in _AT.items()}
    at_cutoff = math.exp(-spec.kappa * spec.cutoff) / spec.cutoff  # which the conserved potential has not of any pair
    stress = {ab: (MASS * column[f"v_{ab}"] + column[f"w_{ab}"]) / spec.length**3 for ab in _TENSOR}
    xx, yy, zz = stress["xx"], stress["yy"], stress["zz"]
    parts = (stress["xy"], stress["yz"], stress["zx"], (xx - yy) / 2, (2 * zz - xx - yy) / (2 * math.sqrt(3)))
    columns: tuple[Floats, ...] = (
        np.asarray(first + spec.sample_time * np.arange(1, len(sums) + 1), np.float64),
        MASS / 2 * (column["v_xx"] + column["v_yy"] + column["v_zz"]),
        column["phi"] - at_cutoff * column["pairs"],
        column["phi"],
        column["w_xx"] + column["w_yy"] + column["w_zz"],
        *parts,
        *(column[name] for name in CURRENTS),
    )
    return dict(zip(SERIES, columns, strict=True))


class Thermodynamics(NamedTuple):
    """Numbers of each sample: the coupling of its kinetic energy, u / Gamma = phi a particle, beta P / n."""

    gamma: Floats
    u_over_gamma: Floats
    pressure: Floats


def thermodynamics(spec: PlasmaSpec, kinetic: Floats, phi: Floats, virial: Floats) -> Thermodynamics:
    """Return the quotable numbers of samples; `phi` is the sum over pairs, not shifted.

    kT = 2 K / (3 N - 3): the total momentum is zero. beta P / n = 1 + (W / N + tail) / (3 kT).
    """
    n = spec.particles
    temperature = 2 * kinetic / (3 * n - 3)
    pressure = 1 + (virial / n + virial_tail(spec)) / (3 * temperature)
    return Thermodynamics(1 / temperature, phi / n + energy_tail(spec), pressure)


def pair_distribution(positions: Floats, length: float, bins: int) -> Floats:
    """Return g(r) of one configuration in so many bins up to L/2; it goes to 1 - 1/N."""
    n, counts = len(positions), np.zeros(bins)
    edges = np.linspace(0, length / 2, bins + 1)
    for begin in range(0, n - 1, 64):
        rows = positions[begin : begin + 64]
        apart = rows[:, None, :] - positions[None, begin:, :]
        apart -= length * np.round(apart / length)
        r = np.sqrt(np.einsum("ijk,ijk->ij", apart, apart))
        later = np.arange(begin, n)[None, :] > np.arange(begin, begin + len(rows))[:, None]
        counts += np.histogram(r[later], edges)[0]
    shells = 4 / 3 * math.pi * DENSITY * (edges[1:] ** 3 - edges[:-1] ** 3)
    return 2 * counts / n / shells


class WaveVectors(NamedTuple):
    """Some of the wave vectors 2 pi n / L of each length, as integers, with that length."""

    integers: NDArray[np.int64]
    lengths: Floats

    @classmethod
    def up_to(cls, most: float, length: float, *, of_each: int = 6) -> "WaveVectors":
        """Return at most so many vectors of each |n|^2, spread evenly over the half space of those that differ."""
        side = int(most * length / (2 * math.pi))
        every = np.array([n for n in product(range(-side, side + 1), repeat=3) if n > (0, 0, 0)])
        square = (every**2).sum(axis=1)
        keep = []
        for value in np.unique(square[square <= side * side]):
            same = np.flatnonzero(square == value)
            keep.append(same[np.linspace(0, len(same) - 1, min(of_each, len(same))).astype(int)])
        chosen = np.concatenate(keep)
        return cls(every[chosen], 2 * math.pi / length * np.sqrt(square[chosen]))


def mode_powers(positions: Floats, length: float, waves: WaveVectors) -> Floats:
    """Return |rho_k|^2 / N of each wave vector, of positions (..., N, 3) in turn: S(k) is its mean over directions."""
    return density_powers(positions, length, waves.integers)
