"""`rule:acceptance`: what becomes of chains of which fewer than 15 % of the trajectories are accepted.

A warm-up, in which the steps are tuned, does not end early. In a measurement, where nothing may be tuned, the chain is
given up and begins again with twice the steps. `[running] rewire = false` leaves everything as it is.
"""

from collections.abc import Sequence

import numpy as np

from metalforge.campaign.chain_log import ChainLog, chain_name
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Assigned, Decided

ACCEPTANCE = "rule:acceptance"
LEAST_ACCEPTANCE = 0.15
"""Below which a trajectory is mostly spent on staying where it was."""
TRIED = 50
"""Trajectories over which that is counted: one of 30 % is below it once in 150 windows."""
TRIED_IN_WARMUP = 20
FINER = 2
"""Times the steps with which a chain begins again."""


def acceptance_of(accepted: Sequence[float], fewest: int) -> float | None:
    """Return the part of trajectories that was accepted; None below so many."""
    return float(np.mean(accepted)) if len(accepted) >= fewest else None


def refusal(chain: ChainLog) -> Decided | None:
    """Return the decision that gives up a chain whose last trajectories were refused; None for any other.

    Steps are never changed in a measurement. What is decided here follows from rows of the journal alone.
    """
    if "accepted" not in chain.columns or chain.measured < TRIED:
        return None
    found = float(np.mean(chain.columns["accepted"][chain.rows - TRIED : chain.rows]))
    if found >= LEAST_ACCEPTANCE:
        return None
    steps = int(chain.columns["n_steps"][-1])
    return Decided(
        what="abandoned",
        chain=chain.id,
        step=chain.step,
        by=ACCEPTANCE,
        reason=f"{found:.0%} of its last {TRIED} trajectories were accepted with {steps} steps",
        value=found,
        baseline=LEAST_ACCEPTANCE,
        done=f"a new chain begins with {FINER * steps} steps",
    )


def in_place_of(visit: Assigned, state: CampaignState, updates: int) -> Assigned:
    """Return the visit of a new chain with finer steps, in the place of a visit's chain that was given up."""
    chain, number = state.chains[visit.chain], len(state.chains)
    return Assigned(
        visit=len(state.visits),
        round=visit.round,
        chain=chain_name(number),
        stream=number,
        system=visit.system,
        coordinate=visit.coordinate,
        updates=updates,
        fresh=True,
        substrate=visit.substrate,
        by=ACCEPTANCE,
        reason=f"in the place of {chain.id}, with finer steps",
        start=chain.start,
        cheap=chain.cheap,
        n_steps=FINER * int(chain.columns["n_steps"][-1]),
        instead_of=chain.id,
    )
