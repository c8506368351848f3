r"""What each chain measured: means with errors, where its updates went, and how it ran.

Errors of the order parameter and its chi are those of the evidence, from all chains together (`chain_errors`): tau_int
and variance of a short chain alone are too small. Other observables have Gamma-method errors.

With sea quarks there is the chiral susceptibility. For one staggered field of four tastes, with colours summed and
V = N_s^3 N_t sites, all in lattice units,

    condensate = (1/V) tr D^-1,      chi_disc = (Nf/4)^2 V (<condensate^2> - <condensate>^2),

with Nf = 4 in campaigns. The trace of a configuration is estimated by noise vectors, c_i of each, and its square by
products of different ones: over noise the mean of c_i c_j with i != j is the square of the trace, while c_i^2 adds the
variance of the noise, which is of the size of the signal and larger (`statistics.susceptibility`).
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from metalforge.campaign.physics.evidence import Finding
from metalforge.campaign.physics.transition import ChainErrors, chain_errors
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.lattice.registered import Value, described, value_of
from metalforge.statistics import chiral_susceptibility
from metalforge.statistics.estimate import Estimate
from metalforge.statistics.gamma import gamma_method
from metalforge.statistics.susceptibility import susceptibility

FEWEST_ROWS = 20
"""Rows below which nothing is estimated: an error of so few is itself a guess."""


class Quarks(NamedTuple):
    """What a chain with sea quarks has besides; `disconnected` and `connected` add up to d<(Nf/4) condensate>/dm."""

    re_loop: Estimate
    condensate: Estimate
    disconnected: Estimate
    connected: Estimate


class ChainResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain: the order parameter and its chi with errors (None where it was left out), and its updates by phase.

    `values` are the means of the observables that have a column in the table, by name. `seconds` is measured:
    processor time of the threads that ran it. `effective` is measured / (2 tau_int of the order parameter).
    """

    id: str
    dims: Dims
    beta: float
    quenched: int
    warmup: int
    measured: int
    order: Estimate | None
    chi: Estimate | None
    values: dict[str, Value]
    quarks: Quarks | None
    effective: float
    seconds: float
    abandoned: str


def chain_results(state: CampaignState, found: Mapping[Dims, Finding]) -> tuple[ChainResult, ...]:
    """Return every chain, by volume as in the spec, then beta."""
    order = {dims: i for i, dims in enumerate(state.spec.theory.systems)}
    chains = sorted(state.chains.values(), key=lambda c: (order.get(c.dims, len(order)), c.dims, c.beta, c.id))
    if (lattice := state.spec.lattice) is None:
        return tuple(map(_trajectory, chains))
    errors: dict[str, ChainErrors] = {}
    for dims, finding in found.items():
        errors |= chain_errors(state.points(dims), finding.located)
    return tuple(_chain(chain, lattice.flavors, errors.get(chain.id)) for chain in chains)


def _trajectory(chain: ChainLog) -> ChainResult:
    """Return where the segments of a trajectory went; what they say is found of all at a coupling together."""
    return ChainResult(
        id=chain.id,
        dims=chain.dims,
        beta=chain.beta,
        quenched=0,
        warmup=chain.by_phase["warmup"],
        measured=chain.measured,
        order=None,
        chi=None,
        values={},
        quarks=None,
        effective=float(chain.measured),
        seconds=chain.seconds,
        abandoned=_given_up(chain),
    )


def _given_up(chain: ChainLog) -> str:
    return next((d.reason for d in chain.decisions if d.what == "abandoned"), "")


def _chain(chain: ChainLog, flavors: int, errors: ChainErrors | None) -> ChainResult:
    values = chain.series().order
    volume = chain.dims[0] * chain.dims[1] * chain.dims[2]
    enough = chain.measured >= FEWEST_ROWS
    order = gamma_method(values) if enough else None
    return ChainResult(
        id=chain.id,
        dims=chain.dims,
        beta=chain.beta,
        quenched=chain.by_phase["quench"],
        warmup=chain.by_phase["warmup"],
        measured=chain.measured,
        order=None if order is None or errors is None else replace(order, error=errors.order_error),
        chi=None
        if errors is None
        else replace(susceptibility(values, volume), mean=errors.chi, error=errors.chi_error),
        values={
            name: value
            for name in chain.columns
            if described(name).label
            and (value := value_of(described(name), chain.column(name), fewest=FEWEST_ROWS)) is not None
        },
        quarks=_quarks(chain, flavors) if enough and not chain.abandoned and "condensate" in chain.columns else None,
        effective=0.0 if order is None else chain.measured / (2 * order.tau_int),
        seconds=chain.seconds,
        abandoned=_given_up(chain),
    )


def _quarks(chain: ChainLog, flavors: int) -> Quarks:
    names = ("polyakov_re", "condensate", "condensate_pairs", "condensate_connected")
    loop, condensate, pairs, connected = (chain.column(name) for name in names)
    found = chiral_susceptibility(condensate, pairs, connected, volume=prod(chain.dims), flavors=flavors)
    return Quarks(gamma_method(loop), gamma_method(condensate), found.disconnected, found.connected)
