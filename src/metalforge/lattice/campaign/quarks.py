r"""What chains with sea quarks have besides: the condensate and its susceptibility.

For one staggered field of four tastes, with colours summed and V = N_s^3 N_t sites, all in lattice units,

    condensate = (1/V) tr D^-1,      chi_disc = (Nf/4)^2 V (<condensate^2> - <condensate>^2),

with Nf = 4 in campaigns. The trace of a configuration is estimated by noise vectors, c_i of each, and its square by
products of different ones: over noise the mean of c_i c_j with i != j is the square of the trace, while c_i^2 adds the
variance of the noise, which is of the size of the signal and larger (`statistics.susceptibility`).
"""

from math import prod
from typing import NamedTuple

from metalforge.campaign import FEWEST_ROWS, CampaignState, ChainLog
from metalforge.statistics import Estimate, chiral_susceptibility, gamma_method

from .theory import lattice_of


class Quarks(NamedTuple):
    """What a chain with sea quarks has besides; `disconnected` and `connected` add up to d<(Nf/4) condensate>/dm."""

    re_loop: Estimate
    condensate: Estimate
    disconnected: Estimate
    connected: Estimate


def quarks_of(state: CampaignState) -> dict[str, Quarks]:
    """Return what each chain with enough measurements says of its sea quarks."""
    flavors = lattice_of(state.spec).flavors
    return {
        name: _quarks(chain, flavors)
        for name, chain in state.chains.items()
        if chain.measured >= FEWEST_ROWS and not chain.abandoned and "condensate" in chain.columns
    }


def _quarks(chain: ChainLog, flavors: int) -> Quarks:
    names = ("polyakov_re", "condensate", "condensate_pairs", "condensate_connected")
    loop, condensate, pairs, connected = (chain.column(name) for name in names)
    found = chiral_susceptibility(condensate, pairs, connected, volume=prod(chain.system), flavors=flavors)
    return Quarks(gamma_method(loop), gamma_method(condensate), found.disconnected, found.connected)
