"""SU(3) gauge theory on a periodic lattice: fields, updates, observables, analysis, files. Knows no campaign.

Conventions, the same everywhere:

- dims are (Nx, Ny, Nz, Nt), each even; arrays of links on the host are complex128 of shape (Nt, Nz, Ny, Nx, 4, 3, 3),
  mu = 0 .. 3 = x, y, z, t.
- Action S = beta sum_p (1 - Re tr U_p / 3), beta = 6 / g^2; plaquette P = Re tr U_p / 3, so 0 <= P <= 1 at equilibrium.
- Polyakov loop L = tr(prod_t U_t) / 3, averaged over space before any modulus is taken; its susceptibility is
  N_s^3 (<|L|^2> - <|L|>^2) with N_s^3 = Nx Ny Nz.
- Momenta pi_a with tr T_a T_b = delta_ab / 2, kinetic energy sum pi_a^2 / 2, links move by U' = i pi_a T_a U.
- A chain is named by (seed, stream); step n of it can be recomputed on its own.
"""

from .chain import Chain, ChainSpec, HeatbathSpec, HmcSpec, UpdateInfo
from .field import GaugeField
from .flow import FlowPoint, gradient_flow, scale_t0, scale_w0
from .hmc import TrajectoryInfo, hmc_trajectory
from .integrators import SCHEMES, Scheme, scheme
from .observables import Observables, creutz_ratio, measure, wilson_loops, z3_projection
from .warmup import warm_up

__all__ = [
    "SCHEMES",
    "Chain",
    "ChainSpec",
    "FlowPoint",
    "GaugeField",
    "HeatbathSpec",
    "HmcSpec",
    "Observables",
    "Scheme",
    "TrajectoryInfo",
    "UpdateInfo",
    "creutz_ratio",
    "gradient_flow",
    "hmc_trajectory",
    "measure",
    "scale_t0",
    "scale_w0",
    "scheme",
    "warm_up",
    "wilson_loops",
    "z3_projection",
]
