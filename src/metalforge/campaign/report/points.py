"""What each chain measured: means with Gamma-method errors, where its updates went, and how it ran."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.statistics.estimate import Estimate
from metalforge.statistics.gamma import gamma_method
from metalforge.statistics.susceptibility import susceptibility

__all__ = ["ChainResult", "chain_results"]

FEWEST_ROWS = 20
"""Rows below which nothing is estimated: an error of so few is itself a guess."""


class ChainResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain: P, the order parameter and its chi with errors (None while it is too short), and its updates by phase.

    `seconds` is measured: processor time of the threads that ran it. `effective` is measured / (2 tau_int of the
    order parameter).
    `cg_iterations` are those of one solve.
    """

    id: str
    stream: int
    dims: Dims
    beta: float
    visits: int
    quenched: int
    warmup: int
    measured: int
    plaquette: Estimate | None
    order: Estimate | None
    chi: Estimate | None
    acceptance: float | None
    exp_minus_delta_h: Estimate | None
    cg_iterations: float | None
    effective: float
    seconds: float
    abandoned: str


def chain_results(state: CampaignState) -> tuple[ChainResult, ...]:
    """Return every chain, by volume as in the spec, then beta."""
    order = {dims: i for i, dims in enumerate(state.spec.lattice.volumes)}
    chains = sorted(state.chains.values(), key=lambda c: (order.get(c.dims, len(order)), c.dims, c.beta, c.id))
    return tuple(_chain(chain) for chain in chains)


def _chain(chain: ChainLog) -> ChainResult:
    values = chain.series().order
    volume = chain.dims[0] * chain.dims[1] * chain.dims[2]
    enough = chain.measured >= FEWEST_ROWS
    order = gamma_method(values) if enough else None
    delta_h = chain.column("delta_h")
    delta_h = delta_h[np.isfinite(delta_h)]
    return ChainResult(
        id=chain.id,
        stream=chain.stream,
        dims=chain.dims,
        beta=chain.beta,
        visits=len(chain.visits),
        quenched=sum(phase == "quench" for phase in chain.phases),
        warmup=sum(phase == "warmup" for phase in chain.phases),
        measured=chain.measured,
        plaquette=gamma_method(chain.column("plaquette")) if enough else None,
        order=order,
        chi=susceptibility(values, volume) if enough else None,
        acceptance=_mean(chain.column("accepted")),
        exp_minus_delta_h=gamma_method(np.exp(-delta_h)) if delta_h.size >= FEWEST_ROWS else None,
        cg_iterations=_mean(chain.column("cg_iterations")),
        effective=0.0 if order is None else chain.measured / (2 * order.tau_int),
        seconds=chain.seconds,
        abandoned=next((d.reason for d in chain.decisions if d.what == "abandoned"), ""),
    )


def _mean(column: NDArray[np.float64]) -> float | None:
    finite = column[np.isfinite(column)]
    return float(finite.mean()) if finite.size else None
