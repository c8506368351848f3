"""Published values and fits of the Yukawa plasma, each with its source and where it holds.

Gamma_m is the coupling of melting; D* = D/(a^2 omega_p), eta* = eta/(m n a^2 omega_p), u_pp the energy of pairs.
Freezing scaling takes a number of the unscreened plasma at G = 171.8 Gamma/Gamma_m for one of the screened plasma,
times the ratio of thermal velocities, sqrt(G/Gamma).
"""

import math

import msgspec

MELTING_OCP = 171.8
FORMULA_EDGE = 0.05
"""Gamma / Gamma_m below which formulas for dense fluids do not hold."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A published number at a state point."""

    value: float
    source: str


def melting_gamma(kappa: float) -> float:
    """Return Gamma_m: 171.8, 217.4, 440.1, 1185 and 3837 at kappa 0 to 4, and a smooth curve through them.

    S. Hamaguchi, R. T. Farouki, D. H. E. Dubin, Phys. Rev. E 56 (1997) 4671. Between and beyond by what they are to
    171.8 e^y / (1 + y + y^2/2), y = 1.612 kappa, of O. S. Vaulina, S. A. Khrapak, JETP 90 (2000) 287: within 5 %.
    """
    at = min(max(kappa, 0.0), 4.0)
    below = min(int(at), 3)
    part = at - below
    ratio = _MELTING[below] ** (1 - part) * _MELTING[below + 1] ** part
    return float(ratio * _melting_formula(kappa))


def _melting_formula(kappa: float) -> float:
    y = (4 * math.pi / 3) ** (1 / 3) * kappa
    return float(MELTING_OCP * math.exp(y) / (1 + y + y * y / 2))


_MELTING = [
    simulated / _melting_formula(kappa) for kappa, simulated in enumerate((MELTING_OCP, 217.4, 440.1, 1185, 3837))
]


def static_energy(kappa: float) -> float:
    """Return u_pp/Gamma of the ion sphere, kappa (kappa + 1) / ((kappa + 1) + (kappa - 1) e^(2 kappa)).

    What remains of the energy in the limit of strong coupling, within a percent of lattice sums.
    """
    return kappa * (kappa + 1) / ((kappa + 1) + (kappa - 1) * math.exp(2 * kappa))


def einstein_frequency(kappa: float, u_over_gamma: float | None = None) -> float:
    """Return omega_E/omega_p, where omega_E^2 = (2 kappa^2/9) u_pp/Gamma exactly; by default of an ion sphere."""
    energy = static_energy(kappa) if u_over_gamma is None else u_over_gamma
    return math.sqrt(2 / 9 * kappa * kappa * energy)


def energy_hfd(gamma: float, kappa: float) -> float | None:
    """Return u_pp/Gamma of a fluid, kappa <= 1.4: S. Hamaguchi, R. T. Farouki, D. H. E. Dubin, JCP 105 (1996) 7641."""
    if kappa > 1.4 or gamma < 1:
        return None
    k = kappa * kappa
    a = -0.895929 - 0.103731 * k + 0.003084 * k**2 - 0.000131 * k**3 - 0.003366 + 0.00066 * k - 0.000089 * k**2
    b = 0.565004 - 0.026134 * k - 0.002689 * k**2
    c = -0.206893 - 0.086384 * k + 0.018278 * k**2
    d = -0.031402 + 0.042429 * k - 0.008037 * k**2
    cube = gamma ** (1 / 3)
    with_background = a * gamma + b * cube + c + d / cube
    return float(with_background / gamma + 1.5 / k + kappa / 2)


def energy_khrapak_thomas(gamma: float, kappa: float) -> float | None:
    """Return u_pp/Gamma by S. A. Khrapak, H. M. Thomas, Phys. Rev. E 91 (2015) 023108: about 0.6 %, if dense."""
    if gamma < FORMULA_EDGE * melting_gamma(kappa):
        return None
    return float(static_energy(kappa) + (3.1 * (gamma / melting_gamma(kappa)) ** 0.4 - 0.1) / gamma)


def diffusion_cbf(gamma: float, kappa: float) -> float | None:
    """Return D* by M. E. Caplan, E. B. Bauer, I. F. Freeman, MNRAS 513 (2022) L52, coefficients as in MESA.

    Made for Gamma from 0.1 on and kappa below about 1. From there on it knows no caging, and is left out for
    Gamma/Gamma_m >= 0.35.
    """
    if gamma < 0.1 or (kappa >= 0.9 and gamma >= 0.35 * melting_gamma(kappa)):
        return None
    b = 0.0070782 * math.exp(-0.80499 * kappa**4.53523)
    c = 2.20689 + 1.351594 * math.erf(1.57138 * kappa**3.34187)
    factor = math.pi / 3 * (1.55973 + 1.10941 * kappa**1.36909)
    return float(factor * gamma**-2.5 * math.exp(-b * gamma) / math.log1p(c * gamma**-1.5 / math.sqrt(3)))


def diffusion_scaled(gamma: float, kappa: float) -> float | None:
    """Return D* of the unscreened plasma by `diffusion_cbf`, mapped by freezing scaling; for Gamma <= Gamma_m.

    15 % low at intermediate coupling against own runs.
    """
    mapped = MELTING_OCP * gamma / melting_gamma(kappa)
    at_ocp = diffusion_cbf(mapped, 0.0) if mapped <= 1.01 * MELTING_OCP else None
    return None if at_ocp is None else math.sqrt(mapped / gamma) * at_ocp


def viscosity_scaled(gamma: float, kappa: float) -> float | None:
    """Return eta* = 1.612 * 0.126 exp(3.64 sqrt(Gamma/Gamma_m)) / sqrt(3 Gamma), for Gamma/Gamma_m from 0.05 to 1.

    L. Costigliola et al., J. Chem. Phys. 148 (2018) 081101, for simple liquids; S. A. Khrapak, arXiv:1808.06567, for
    the Yukawa plasma: about 10 %. It has its minimum near 0.1.
    """
    ratio = gamma / melting_gamma(kappa)
    if not FORMULA_EDGE <= ratio <= 1.01:
        return None
    return 1.612 * 0.126 * math.exp(3.64 * math.sqrt(ratio)) / math.sqrt(3 * gamma)


def references(gamma: float, kappa: float) -> dict[str, tuple[Reference, ...]]:
    """Return what was published for a fluid at this (measured) coupling, by observable; empty where nothing holds."""
    energy = energy_hfd(gamma, kappa)
    cbf, scaled, eta = (f(gamma, kappa) for f in (diffusion_cbf, diffusion_scaled, viscosity_scaled))
    found: dict[str, list[tuple[float | None, str]]] = {
        "u_over_gamma": [
            (energy, "Hamaguchi, Farouki, Dubin 1996"),
            (energy_khrapak_thomas(gamma, kappa), "Khrapak, Thomas 2015"),
        ],
        "diffusion_infinite": [(cbf, "Caplan, Bauer, Freeman 2022"), (scaled, "freezing scaling of the same")],
        "viscosity": [(eta, "freezing scaling, Costigliola et al. 2018")],
    }
    return {
        name: tuple(Reference(value=value, source=source) for value, source in values if value is not None)
        for name, values in found.items()
    }
