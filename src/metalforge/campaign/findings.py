r"""What a campaign has found so far, from its journal: peaks with evidence, and every look at what its target is for.

The target's error is also what decides which volume gets more work. With `budget.target_of = "first"` it is that of the
first volume. With "infinite" it is the extrapolation of the volumes that share its N_t and scale
(`physics.finite_size`): beta_c = sum_i c_i beta_i, so that

    sigma^2 = sum_i c_i^2 sigma_i^2,     - d sigma^2 / d work_i = c_i^2 sigma_i^2 / work_i

where work_i is the number of site updates and sigma_i^2 falls as 1 / work_i; that the c_i change meanwhile makes no
difference to first order, since they minimise sigma^2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from metalforge.core.steering import Observation
from metalforge.lattice.exchange import Traffic, traffic

from .physics.evidence import Finding, PlannedPoints, finding_of
from .physics.finite_size import VolumePeak, extrapolate
from .physics.freezing import FreezingFinding, find_freezing, observed_growth
from .physics.selection import observe
from .physics.series import PointSeries
from .physics.stopping import PrecisionLook, target_reached
from .physics.transport import ERROR_ITEM, SegmentRows, TransportFinding, find_transport, observed_transport
from .spec import CampaignSpec, Dims, on_the_line
from .state import CampaignState, ChainLog
from .steerers import find_steerer
from .store.records import Estimated

REPLICAS = 200
"""Bootstrap replicas of every estimate, while a campaign runs and when it is over: errors are then known to 5 %."""
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


def finding(state: CampaignState, dims: Dims, *, n_bootstrap: int = REPLICAS) -> Finding:
    """Return the peak of a volume with its evidence."""
    return finding_of(state.points(dims), plan_of(state, dims), seed=state.spec.seed, n_bootstrap=n_bootstrap)


def segments_of(spec: CampaignSpec, chain: ChainLog, *, complete: bool = False) -> SegmentRows:
    """Return the measured segments of a trajectory; `complete` leaves out what a visit under way has added."""
    plasma = spec.plasma
    assert plasma is not None, "a campaign of a plasma"
    wanted = plasma.trajectory(chain.dims, chain.beta, seed=spec.seed, stream=chain.stream, start=chain.start)
    end = max(chain.complete - chain.warmup, 0) if complete else None
    time = plasma.update_time
    return SegmentRows(
        chain=chain.id,
        at=chain.beta,
        spec=wanted,
        segment=time,
        columns={name: chain.column(name)[:end] for name in chain.columns},
        cost=float(chain.complete if complete else chain.rows) * time / wanted.step_time * wanted.particles,
    )


def trajectories_of(state: CampaignState, dims: Dims) -> list[SegmentRows]:
    """Return the trajectories of a box, in order of where they aimed, with the segments that `state.points` takes."""
    complete = state.spec.running.deterministic
    chosen = [c for c in state.chains.values() if c.dims == dims and c.measured and not c.abandoned]
    found = [segments_of(state.spec, c, complete=complete) for c in sorted(chosen, key=lambda c: (c.beta, c.id))]
    return [rows for rows in found if rows.segments]


def plasma_finding(
    spec: CampaignSpec, rows: Sequence[SegmentRows], plan: PlannedPoints
) -> TransportFinding | FreezingFinding:
    """Return what trajectories of one box say, of what the campaign is for."""
    if spec.theory.target == "crossing":
        return find_freezing(rows, plan)
    return find_transport(rows, plan, spec.theory.low, spec.theory.high, spec.budget.target_error)


def observer_of(spec: CampaignSpec, chain: ChainLog) -> Callable[[], Observation | None]:
    """Take what a chain has measured in its complete visits; return what makes of it what a steerer is told."""
    if spec.lattice is not None:
        series = chain.series(complete=True)
        return partial(observe, series, id=chain.id, cost=float(chain.complete))
    rows = segments_of(spec, chain, complete=True)
    return partial(observed_growth if spec.theory.target == "crossing" else observed_transport, rows)


def estimator_of(state: CampaignState, dims: Dims) -> Callable[[int], Estimated] | None:
    """Take what a system has measured; return what estimates it, after so many updates. None where there is nothing."""
    spec, plan = state.spec, plan_of(state, dims)
    if spec.lattice is not None:
        points = state.points(dims)
        return partial(_estimated_peak, spec, dims, points, plan) if points else None
    rows = trajectories_of(state, dims)
    return partial(_estimated_plasma, spec, dims, rows, plan) if rows else None


def _estimated_peak(
    spec: CampaignSpec,
    dims: Dims,
    points: Sequence[PointSeries],
    plan: PlannedPoints,
    trajectories: int,
) -> Estimated:
    found = finding_of(points, plan, seed=spec.seed, n_bootstrap=REPLICAS)
    peak = found.transition
    return Estimated(
        dims=dims,
        trajectories=trajectories,
        beta_c=None if peak is None else peak.beta_c,
        error=None if peak is None else peak.error,
        height=None if peak is None else peak.height,
        reason=found.reason,
        effective=0.0 if peak is None else peak.n_effective,
        width=0.0 if peak is None else peak.width,
        established=found.established,
        evidence=found.evidence,
        wants=found.wants,
        overlap=found.overlap,
        crossings=found.crossings,
    )


def _estimated_plasma(
    spec: CampaignSpec, dims: Dims, rows: Sequence[SegmentRows], plan: PlannedPoints, trajectories: int
) -> Estimated:
    found = plasma_finding(spec, rows, plan)
    crossing = isinstance(found, FreezingFinding)
    return Estimated(
        dims=dims,
        trajectories=trajectories,
        beta_c=found.log_gamma if isinstance(found, FreezingFinding) else None,
        error=found.error,
        reason=found.said,
        effective=float(sum(one.segments for one in rows)) if not crossing else float(len(rows)),
        established=found.established,
        evidence=found.evidence,
    )


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
    first = state.spec.theory.systems[0]
    if state.spec.budget.target_of == "first":
        own = [e for e in state.estimates if e.dims == first]
        return [PrecisionLook(e.error, e.effective, _but_for_error(e), e.trajectories) for e in own]
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


def _but_for_error(e: Estimated) -> bool:
    """Return whether all evidence holds except the target error of a curve, which is compared over several looks."""
    lacking = [item.name for item in e.evidence if not item.holds]
    return e.established or lacking == [ERROR_ITEM]


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
    volumes = state.spec.theory.systems
    if state.spec.budget.target_of == "first":
        return {dims: 1.0 if dims == volumes[0] else OTHERS for dims in volumes}
    wanted = on_the_line(state.spec)
    peaks = _peaks(found for dims in wanted if (found := state.latest(dims)) is not None)
    fit = extrapolate(peaks)[0] if peaks else None
    terms = {} if fit is None else dict(zip(fit.volumes, fit.variances, strict=True))
    located = {peak.dims for peak in peaks}
    return {dims: terms.get(dims, 0.0) if dims in located or dims not in wanted else float("inf") for dims in volumes}
