r"""What a campaign has found so far, from its journal: peaks with evidence, and every look at what its target is for.

The target's error is also what decides which volume gets more work. With `budget.target_of = "first"` it is that of the
first volume. With "infinite" it is the extrapolation of the volumes that share its N_t and scale
(`physics.finite_size`): beta_c = sum_i c_i beta_i, so that

    sigma^2 = sum_i c_i^2 sigma_i^2,     - d sigma^2 / d work_i = c_i^2 sigma_i^2 / work_i

where work_i is the number of site updates and sigma_i^2 falls as 1 / work_i; that the c_i change meanwhile makes no
difference to first order, since they minimise sigma^2.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from metalforge.lattice.exchange import Traffic, traffic

from .physics.evidence import Finding, PlannedPoints, finding_of
from .physics.finite_size import VolumePeak, extrapolate
from .physics.stopping import PrecisionLook, target_reached
from .spec import Dims, on_the_line
from .state import CampaignState, ChainLog
from .steerers import find_steerer
from .store.records import Estimated

OTHERS = 0.25
"""Site updates that every other volume gets for one of the first, where the target is for the first."""


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


def traffic_of(rungs: Sequence[ChainLog]) -> Traffic | None:
    """Return how the replicas of a ladder moved while it was measured; None before there are two updates to compare."""
    rows = min(chain.measured for chain in rungs)
    columns = [chain.column("replica")[:rows] for chain in rungs]
    return traffic(np.array(columns).T) if rows > 1 else None


def target_met(state: CampaignState) -> bool:
    """Return whether the campaign has reached its target error; without a target it never has."""
    target = state.spec.budget.target_error
    return target is not None and target_reached(target_looks(state), target)


def target_looks(state: CampaignState) -> list[PrecisionLook]:
    """Return every look at what the target is for, in order."""
    first = state.spec.lattice.volumes[0]
    if state.spec.budget.target_of == "first":
        own = [e for e in state.estimates if e.dims == first]
        return [PrecisionLook(e.error, e.effective, e.established, e.trajectories) for e in own]
    wanted = on_the_line(state.spec)
    latest: dict[Dims, Estimated] = {}
    looks = []
    for e in state.estimates:
        if e.dims in wanted:
            latest[e.dims] = e
        # Volumes are estimated in turn: a look is complete with the last of them.
        if e.dims == wanted[-1] and len(latest) == len(wanted):
            looks.append(_combined(latest, e.trajectories))
    return looks


def _combined(latest: Mapping[Dims, Estimated], trajectories: int) -> PrecisionLook:
    """Return the extrapolation of the last estimates as one look.

    It is established when its volumes are and nothing contradicts their line. Its effective samples n are those with
    sigma^2 = sum_i v_i and v_i ~ 1 / n_i: n = sum_i v_i / sum_i (v_i / n_i), which doubles when all n_i do.
    """
    peaks = _peaks(latest.values())
    fit = extrapolate(peaks)[0] if peaks else None
    if fit is None:
        return PrecisionLook(None, 0.0, False, trajectories)
    used = [latest[dims] for dims in fit.volumes]
    terms = [v / e.effective for v, e in zip(fit.variances, used, strict=True) if e.effective > 0]
    return PrecisionLook(
        fit.error,
        sum(fit.variances) / sum(terms) if len(terms) == len(used) else 0.0,
        fit.consistent and all(e.established for e in latest.values()),
        trajectories,
    )


def _peaks(estimates: Iterable[Estimated]) -> list[VolumePeak]:
    return [VolumePeak(e.dims, e.beta_c, e.error) for e in estimates if e.beta_c is not None and e.error]


def gains(state: CampaignState) -> dict[Dims, float]:
    """Return by volume what more work there is worth: gain / work orders volumes, the largest first.

    For the first volume these are fixed shares: every other one gets a quarter of its work. For infinite volume they
    are c_i^2 sigma_i^2; a volume that may take part and is not located comes before all others, and one that does not
    scale gets nothing beyond its first points.
    """
    volumes = state.spec.lattice.volumes
    if state.spec.budget.target_of == "first":
        return {dims: 1.0 if dims == volumes[0] else OTHERS for dims in volumes}
    wanted = on_the_line(state.spec)
    peaks = _peaks(found for dims in wanted if (found := state.latest(dims)) is not None)
    fit = extrapolate(peaks)[0] if peaks else None
    terms = {} if fit is None else dict(zip(fit.volumes, fit.variances, strict=True))
    located = {peak.dims for peak in peaks}
    return {dims: terms.get(dims, 0.0) if dims in located or dims not in wanted else float("inf") for dims in volumes}
