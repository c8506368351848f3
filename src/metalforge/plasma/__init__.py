"""The classical one-component plasma with screened (Yukawa) repulsion: molecular dynamics on any engine.

Conventions, the same everywhere:

- Length a = (3 / (4 pi n))^(1/3), time 1 / omega_p, energy Q^2 / (4 pi eps0 a). Then n = 3 / (4 pi), the mass is 3,
  kT = 1 / Gamma, L = (4 pi N / 3)^(1/3), and about r^3 particles lie within r.
- phi = exp(-kappa r) / r, F = phi (1 + kappa r) / r; pairs within r_c, where the force is `tol` of that at 1.7.
- u / Gamma is the potential energy of pairs per particle, without the neutralising background, beta P / n the pressure,
  both with tails (g = 1) beyond r_c.
- A run warms up in a bath (Langevin) and then is NVE: its Gamma is measured, not the one it was asked for.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

from .box import LostParticleError, Particles, begin, open_box
from .references import Reference, references
from .replicas import PlasmaReplicas
from .run import PlasmaJob, PlasmaRun, PlasmaSummary
from .spec import MASS, PlasmaSpec, cutoff_of, least_particles, length_of
from .transport import Correlations, Transport, TransportSegment, merged, segment_of, transport
from .warmup import WarmupEnd

if TYPE_CHECKING:
    from .observables import CURRENTS, STRESSES, WaveVectors, mode_powers
    from .references import melting_gamma
    from .replicas import at_border, found_together, read_replicas, replicas_of, resumed, said_enough
    from .run import TOO_SHORT, PlasmaBlock, Watch
    from .spec import SAMPLE_TIME

__all__ = [
    "MASS",
    "Correlations",
    "LostParticleError",
    "Particles",
    "PlasmaJob",
    "PlasmaReplicas",
    "PlasmaRun",
    "PlasmaSpec",
    "PlasmaSummary",
    "Reference",
    "Transport",
    "TransportSegment",
    "WarmupEnd",
    "begin",
    "cutoff_of",
    "least_particles",
    "length_of",
    "merged",
    "open_box",
    "references",
    "segment_of",
    "transport",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
