"""SU(3) gauge theory on a periodic lattice: fields, updates, observables, analysis, files. Knows no campaign.

Conventions, the same everywhere:

- dims are (Nx, Ny, Nz, Nt), each even; arrays of links on the host are complex128 of shape (Nt, Nz, Ny, Nx, 4, 3, 3),
  mu = 0 .. 3 = x, y, z, t.
- Action S = beta sum_p (1 - Re tr U_p / 3) unless another is named (`actions`), beta = 6 / g^2; plaquette
  P = Re tr U_p / 3, so 0 <= P <= 1 at equilibrium.
- Polyakov loop L = tr(prod_t U_t) / 3, averaged over space before any modulus is taken; its susceptibility is
  N_s^3 (<|L|^2> - <|L|>^2) with N_s^3 = Nx Ny Nz.
- Momenta pi_a with tr T_a T_b = delta_ab / 2, kinetic energy sum pi_a^2 / 2, links move by U' = i pi_a T_a U.
- Staggered quarks: D = m + 1/2 sum_mu eta_mu (U_mu - U_mu^dagger), eta_x = 1, eta_y = (-1)^x, eta_z = (-1)^(x+y),
  eta_t = (-1)^(x+y+z), antiperiodic in t; four flavours a field. Condensate (1/V) tr D^-1, colours summed.
- A chain is named by (seed, stream); step n of it can be recomputed on its own.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .actions import SYMANZIK, WILSON, Action, action
    from .batch import ChainBatch
    from .campaign.lessons import taught_by
    from .chain import Chain, ChainSpec, FermionSpec, HeatbathSpec, HmcSpec, UpdateInfo
    from .eigenvalues import largest_eigenvalue, lowest_eigenvalues
    from .field import GaugeField
    from .flow import FlowPoint, gradient_flow, scale_t0, scale_w0
    from .generate import Generation, GenerationSummary, Job
    from .hmc import EnergyProbe, MidEnergy, hmc_trajectory
    from .integrators import SCHEMES, Scheme, scheme
    from .io import read_links
    from .observables import (
        Observables,
        SeaObservables,
        measure,
        measure_condensate,
        pion_correlator,
        wilson_loop,
        z3_projection,
    )
    from .sea import Sea, SpectralRangeError
    from .solvers import Inverter
    from .warmup import warm_up

__all__ = [
    "SCHEMES",
    "SYMANZIK",
    "WILSON",
    "Action",
    "Chain",
    "ChainBatch",
    "ChainSpec",
    "EnergyProbe",
    "FermionSpec",
    "FlowPoint",
    "GaugeField",
    "HeatbathSpec",
    "HmcSpec",
    "Inverter",
    "Observables",
    "Sea",
    "SeaObservables",
    "SpectralRangeError",
    "gradient_flow",
    "hmc_trajectory",
    "largest_eigenvalue",
    "lowest_eigenvalues",
    "measure",
    "measure_condensate",
    "pion_correlator",
    "scale_t0",
    "scale_w0",
    "scheme",
    "warm_up",
    "wilson_loop",
    "z3_projection",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
