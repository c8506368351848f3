r"""Re L, the chiral condensate and its susceptibility in every chain with sea quarks.

For one staggered field of four tastes, with colours summed and V = N_s^3 N_t sites, all in lattice units,

    condensate = (1/V) tr D^-1,      chi_disc = (Nf/4)^2 V (<condensate^2> - <condensate>^2),

with Nf = 4 in campaigns. The trace of a configuration is estimated by noise vectors, c_i of each, and its square by
products of different ones: over noise the mean of c_i c_j with i != j is the square of the trace, while c_i^2 adds the
variance of the noise, which is of the size of the signal and larger (`statistics.chiral`).
"""

import msgspec
import numpy as np

from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.statistics.chiral import chiral_susceptibility
from metalforge.statistics.estimate import Estimate
from metalforge.statistics.gamma import gamma_method

from .points import FEWEST_ROWS

__all__ = ["QuarkPoint", "quark_points"]


class QuarkPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain with Gamma-method errors; `disconnected` and `connected` add up to d<(Nf/4) condensate>/dm."""

    chain: str
    dims: Dims
    beta: float
    measured: int
    re_loop: Estimate
    condensate: Estimate
    disconnected: Estimate
    connected: Estimate


def quark_points(state: CampaignState) -> tuple[QuarkPoint, ...]:
    """Return every chain that measured its condensate for long enough, by volume as in the spec, then beta."""
    order = {dims: i for i, dims in enumerate(state.spec.lattice.volumes)}
    chains = [
        chain
        for chain in state.chains.values()
        if not chain.abandoned and chain.measured >= FEWEST_ROWS and "condensate" in chain.columns
    ]
    chains.sort(key=lambda c: (order.get(c.dims, len(order)), c.dims, c.beta, c.id))
    return tuple(_point(chain, state.spec.lattice.flavors) for chain in chains)


def _point(chain: ChainLog, flavors: int) -> QuarkPoint:
    names = ("condensate", "condensate_pairs", "condensate_connected")
    condensate, pairs, connected = (chain.column(name) for name in names)
    found = chiral_susceptibility(condensate, pairs, connected, volume=int(np.prod(chain.dims)), flavors=flavors)
    return QuarkPoint(
        chain=chain.id,
        dims=chain.dims,
        beta=chain.beta,
        measured=chain.measured,
        re_loop=gamma_method(chain.column("polyakov_re")),
        condensate=gamma_method(condensate),
        disconnected=found.disconnected,
        connected=found.connected,
    )
