r"""What each chain measured: means with errors, where its updates went, and how it ran.

Errors of the order parameter and its chi are those of the evidence, from all chains together (`chain_errors`): tau_int
and variance of a short chain alone are too small. Other observables have Gamma-method errors.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from metalforge.campaign.analysis.evidence import Finding
from metalforge.campaign.analysis.transition import ChainErrors, chain_errors
from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import System, Theory
from metalforge.statistics import Estimate, Value, gamma_method, susceptibility, value_of

FEWEST_ROWS = 20
"""Rows below which nothing is estimated: an error of so few is itself a guess."""


class ChainResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chain: the order parameter and its chi with errors (None where it was left out), and its updates by phase.

    `values` are the means of the observables that have a column in the table, by name. `seconds` is measured:
    processor time of the threads that ran it. `effective` is measured / (2 tau_int of the order parameter).
    """

    id: str
    system: System
    coordinate: float
    cheap: int
    warmup: int
    measured: int
    order: Estimate | None
    chi: Estimate | None
    values: dict[str, Value]
    effective: float
    seconds: float
    abandoned: str


def chain_results(state: CampaignState, found: Mapping[System, Finding]) -> tuple[ChainResult, ...]:
    """Return every chain of a campaign that looks for a peak, by system as in the spec, then coordinate."""
    errors: dict[str, ChainErrors] = {}
    for system, finding in found.items():
        errors |= chain_errors(state.points(system), finding.located)
    return tuple(_chain(state.spec.theory, chain, errors.get(chain.id)) for chain in in_order(state))


def in_order(state: CampaignState) -> list[ChainLog]:
    """Return the chains by system as in the spec, then coordinate."""
    order = {system: i for i, system in enumerate(state.spec.theory.systems)}
    return sorted(state.chains.values(), key=lambda c: (order.get(c.system, len(order)), c.system, c.coordinate, c.id))


def bare_result(theory: Theory, chain: ChainLog) -> ChainResult:
    """Return where the updates of a chain went, and its observables; all else is found of several together."""
    return ChainResult(
        id=chain.id,
        system=chain.system,
        coordinate=chain.coordinate,
        cheap=0,
        warmup=chain.by_phase["warmup"],
        measured=chain.measured,
        order=None,
        chi=None,
        values=_values(theory, chain, theory.observables),
        effective=float(chain.measured),
        seconds=chain.seconds,
        abandoned=next((d.reason for d in chain.decisions if d.what == "abandoned"), ""),
    )


def _values(theory: Theory, chain: ChainLog, names: Iterable[str]) -> dict[str, Value]:
    """Return the means of columns that are shown with one."""
    return {
        name: value
        for name in names
        if (shown := theory.described(name)).label
        and (value := value_of(shown.transform(chain.column(name)), error=shown.error, fewest=FEWEST_ROWS)) is not None
    }


def _chain(theory: Theory, chain: ChainLog, errors: ChainErrors | None) -> ChainResult:
    values, volume = theory.order_of(chain.column), theory.volume_of(chain.system)
    enough = chain.measured >= FEWEST_ROWS
    order = gamma_method(values) if enough else None
    return replace(
        bare_result(theory, chain),
        cheap=chain.by_phase["quench"],
        order=None if order is None or errors is None else replace(order, error=errors.order_error),
        chi=None
        if errors is None
        else replace(susceptibility(values, volume), mean=errors.chi, error=errors.chi_error),
        values=_values(theory, chain, chain.columns),
        effective=0.0 if order is None else chain.measured / (2 * order.tau_int),
    )
