r"""`ordering = "auto"`: try the orderings that the spec allows, in turns, and keep the best.

    figure = effective samples of the order parameter of the first volume / cost,       ESS = n / (2 tau_int)

Each ordering gets `ROUNDS` windows of equal length, in turns (`pipeline.judging` takes them and judges). The cost
is measured joules where several kinds of silicon run chains and each has a meter that can be read: which of them an
ordering keeps busy is then what it costs. Otherwise it is seconds, and the reason says why. All that was measured
meanwhile counts for the result; nothing is thrown away.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from metalforge.campaign.orderings import ORDERINGS
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.pipeline import judge, take_turns
from metalforge.statistics import gamma_method

if TYPE_CHECKING:
    from .campaign import Campaign

ROUNDS = 2
WINDOW_S = 5.0
SHARE = 0.2
"""Part of a budget in seconds that the trial may take."""
FEWEST = 20


def measured_rows(state: CampaignState) -> int:
    """Return the updates of the first volume that were measured."""
    system = state.spec.theory.systems[0]
    return sum(chain.measured for chain in state.chains.values() if chain.system == system and not chain.abandoned)


def pooled_tau_of(state: CampaignState) -> float:
    """Return tau_int of the order parameter of the first volume, averaged by length of chains; 1/2 without any."""
    taus, rows = [], []
    for point in state.points(state.spec.theory.systems[0]):
        if len(point.order) >= FEWEST and np.ptp(point.order) > 0:
            taus.append(gamma_method(point.order).tau_int)
            rows.append(len(point.order))
    return float(np.average(taus, weights=rows)) if taus else 0.5


def choose_ordering(campaign: "Campaign") -> str:
    """Return the ordering with the most effective samples per joule or second, and write why."""
    systems = len(campaign.spec.theory.systems)
    candidates = [one.letter for one in ORDERINGS.values() if one.tried and systems >= one.systems]
    budget = campaign.spec.budget.seconds
    window = WINDOW_S if budget is None else min(WINDOW_S, SHARE * budget / (ROUNDS * len(candidates)))

    unmetered = campaign.why_no_joules()
    spent = time.monotonic if unmetered else campaign.joules

    def rows_per_cost(ordering: str) -> float:
        if campaign.ends:
            return 0.0
        before, had, began = measured_rows(campaign.state), spent(), time.monotonic()
        campaign.segment(ordering, until=lambda: time.monotonic() >= began + window)
        return (measured_rows(campaign.state) - before) / (spent() - had)

    turns = take_turns(candidates, rows_per_cost, ROUNDS)
    if campaign.ends:
        return "C"
    # The chains are the same whoever runs them: one tau for all, or its noise would decide.
    tau = pooled_tau_of(campaign.state)
    outcome = judge({ordering: [rate / (2 * tau) for rate in rates] for ordering, rates in turns.items()})
    said = ", ".join(f"{ordering} {figure:.3g}" for ordering, figure in outcome.means.items())
    campaign.book.write(
        Decided(
            what="ordering",
            by=outcome.best,
            reason=f"effective samples per {'second' if unmetered else 'joule'}, measured over {ROUNDS} windows of "
            f"{window:.2g} s each: {said}; {outcome.words}" + (f"; not per joule: {unmetered}" if unmetered else ""),
            value=outcome.means[outcome.best],
        )
    )
    return outcome.best
