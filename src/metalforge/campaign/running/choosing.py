r"""`ordering = "auto"`: try the orderings that this machine and spec allow, in turns, and keep the best.

    figure = effective samples of the order parameter of the first volume / seconds,       ESS = n / (2 tau_int)

Each ordering gets `ROUNDS` windows of equal length, in turns, so that a machine that slows down is unfair to none. By
joules only where every substrate is metered, or where the spec asks for modelled ones and says so. All that was
measured meanwhile counts for beta_c; nothing is thrown away. A CPU without a readable meter has no joules, and no
device profile states a CPU's power, so that there the seconds decide, and the reason says so.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from metalforge.campaign.spec import Ordering
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.core.errors import SpecError
from metalforge.statistics import gamma_method

from .heads import Heads
from .orderings import arrange
from .pool import ChainPool

if TYPE_CHECKING:
    from .campaign import Campaign

__all__ = ["choose_ordering", "effective_samples"]

ROUNDS = 2
WINDOW_S = 5.0
SHARE = 0.2
"""Part of a budget in seconds that the trial may take."""
FEWEST = 20


def effective_samples(state: CampaignState) -> float:
    """Return the effective number of measurements of the order parameter of the first volume, over all chains."""
    return measured_rows(state) / (2 * pooled_tau_of(state))


def measured_rows(state: CampaignState) -> int:
    """Return the updates of the first volume that were measured."""
    dims = state.spec.lattice.volumes[0]
    return sum(chain.measured for chain in state.chains.values() if chain.dims == dims and not chain.abandoned)


def pooled_tau_of(state: CampaignState) -> float:
    """Return tau_int of the order parameter of the first volume, averaged by length of chains; 1/2 without any."""
    taus, rows = [], []
    for point in state.points(state.spec.lattice.volumes[0]):
        if len(point.polyakov) >= FEWEST and np.ptp(point.order) > 0:
            taus.append(gamma_method(point.order).tau_int)
            rows.append(len(point.polyakov))
    return float(np.average(taus, weights=rows)) if taus else 0.5


def choose_ordering(campaign: "Campaign", pool: ChainPool, heads: Heads) -> Ordering:
    """Return the ordering with the most effective samples per second, and write why."""
    candidates = [ordering for ordering in ("A", "B", "C", "D") if _possible(campaign, ordering)]
    budget = campaign.spec.budget.seconds
    window = WINDOW_S if budget is None else min(WINDOW_S, SHARE * budget / (ROUNDS * len(candidates)))
    gained: dict[str, list[float]] = {ordering: [] for ordering in candidates}
    for _ in range(ROUNDS):
        for ordering in candidates:
            before, began = measured_rows(campaign.state), time.monotonic()
            ends = began + window
            campaign.segment(ordering, pool, heads, until=lambda ends=ends: time.monotonic() >= ends)  # type: ignore[misc, arg-type]
            if campaign.halted:
                return "C"
            gained[ordering].append((measured_rows(campaign.state) - before) / (time.monotonic() - began))
    # The chains are the same whoever runs them: one tau for all, or its noise would decide.
    tau = pooled_tau_of(campaign.state)
    figures = {ordering: float(np.mean(values)) / (2 * tau) for ordering, values in gained.items()}
    best = max(figures, key=lambda ordering: figures[ordering])
    joules = campaign.why_no_joules()
    said = ", ".join(f"{ordering} {figure:.3g}" for ordering, figure in figures.items())
    campaign.book.write(
        Decided(
            at=campaign.book.clock(),
            what="ordering",
            by=best,
            reason=f"effective samples per second, measured over {ROUNDS} windows of {window:.2g} s each: {said}; "
            f"not per joule: {joules}",
            value=figures[best],
        )
    )
    return best  # type: ignore[return-value]


def _possible(campaign: "Campaign", ordering: Ordering) -> bool:
    from .campaign import producers_here

    try:
        arrange(ordering, campaign.spec, producers_here(campaign.spec))
    except SpecError:
        return False
    return True
