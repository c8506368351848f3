r"""`ordering = "auto"`: try the orderings that the spec allows, in turns, and keep the best.

    figure = effective samples of the order parameter of the first volume / seconds,       ESS = n / (2 tau_int)

Each ordering gets `ROUNDS` windows of equal length, in turns (`pipeline.calibrate` takes them and judges). By
joules only where every substrate is metered, or where the spec asks for modelled ones and says so. All that was
measured meanwhile counts for beta_c; nothing is thrown away. A CPU without a readable meter has no joules, and no
device profile states a CPU's power, so that there the seconds decide, and the reason says so.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from metalforge.campaign.orderings import ORDERINGS
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Decided
from metalforge.pipeline.calibrate import judge, take_turns
from metalforge.statistics import gamma_method

from .equipment import HeadReader

if TYPE_CHECKING:
    from .campaign import Campaign

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


def choose_ordering(campaign: "Campaign", reader: HeadReader) -> str:
    """Return the ordering with the most effective samples per second, and write why."""
    volumes = len(campaign.spec.lattice.volumes)
    candidates = [one.letter for one in ORDERINGS.values() if one.tried and volumes >= one.volumes]
    budget = campaign.spec.budget.seconds
    window = WINDOW_S if budget is None else min(WINDOW_S, SHARE * budget / (ROUNDS * len(candidates)))

    def rows_per_second(ordering: str) -> float:
        if campaign.halted:
            return 0.0
        before, began = measured_rows(campaign.state), time.monotonic()
        campaign.segment(ordering, reader, until=lambda: time.monotonic() >= began + window)
        return (measured_rows(campaign.state) - before) / (time.monotonic() - began)

    turns = take_turns(candidates, rows_per_second, ROUNDS)
    if campaign.halted:
        return "C"
    # The chains are the same whoever runs them: one tau for all, or its noise would decide.
    tau = pooled_tau_of(campaign.state)
    outcome = judge({ordering: [rate / (2 * tau) for rate in rates] for ordering, rates in turns.items()})
    figures = {one.name: one.mean for one in outcome.candidates}
    said = ", ".join(f"{ordering} {figure:.3g}" for ordering, figure in figures.items())
    campaign.book.write(
        Decided(
            what="ordering",
            by=outcome.best,
            reason=f"effective samples per second, measured over {ROUNDS} windows of {window:.2g} s each: {said}; "
            f"{outcome.words}; not per joule: {campaign.why_no_joules()}",
            value=figures[outcome.best],
        )
    )
    return outcome.best
