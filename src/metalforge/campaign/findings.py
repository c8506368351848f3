"""What a campaign has found in a volume, from its journal: the peak with its evidence, and every look at it so far."""

from .headline import target_looks
from .physics.evidence import Finding, PlannedPoints, finding_of
from .physics.stopping import target_reached
from .spec import Dims
from .state import CampaignState
from .steerers import find_steerer

__all__ = ["finding", "plan_of", "target_met"]


def plan_of(state: CampaignState, dims: Dims) -> PlannedPoints:
    """Return how many beta of a volume the campaign means to look at first, and how many have a complete visit.

    They are those that were asked for by name, and as many others as the steerer begins with.
    """
    spec = state.spec
    first = find_steerer(spec.steering.steerer).first_points(spec.scan(dims))
    visited = {chain.beta for chain in state.chains.values() if chain.dims == dims and chain.ends and chain.measured}
    named = set(spec.steering.points)
    return PlannedPoints(first + len(named), min(len(visited - named), first) + len(visited & named))


def finding(state: CampaignState, dims: Dims, *, n_bootstrap: int) -> Finding:
    """Return what all measurements of a volume say."""
    return finding_of(state.points(dims), plan_of(state, dims), seed=state.spec.seed, n_bootstrap=n_bootstrap)


def target_met(state: CampaignState) -> bool:
    """Return whether the campaign has reached its target error; without a target it never has."""
    target = state.spec.budget.target_error
    return target is not None and target_reached([seen.look for seen in target_looks(state)], target)
