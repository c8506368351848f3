"""What the trajectories of a box say: its transport along the coupling, or where it freezes."""

from collections.abc import Callable, Sequence
from functools import partial

from metalforge.campaign import Analysis, CampaignSpec, CampaignState, ChainLog, PlannedPoints, System
from metalforge.core import Observation, SpecError

from .freezing import FreezingFinding, find_freezing, observed_growth
from .theory import Plasma
from .transport import SegmentRows, TransportFinding, find_transport, observed_transport


def plasma_of(spec: CampaignSpec) -> Plasma:
    """Return the table of a campaign that is known to be of a plasma."""
    if not isinstance(spec.theory, Plasma):
        raise SpecError(f"this is for plasmas, and the campaign is of `{spec.theory.table()}`")
    return spec.theory


def segments_of(spec: CampaignSpec, chain: ChainLog, *, complete: bool = False) -> SegmentRows:
    """Return the measured segments of a trajectory; `complete` leaves out what a visit under way has added."""
    plasma = plasma_of(spec)
    wanted = plasma.trajectory(chain.system, chain.coordinate, seed=spec.seed, stream=chain.stream, start=chain.start)
    end = max(chain.complete - chain.warmup, 0) if complete else None
    time = plasma.update_time
    return SegmentRows(
        chain=chain.id,
        at=chain.coordinate,
        spec=wanted,
        segment=time,
        columns={name: chain.column(name)[:end] for name in chain.columns},
        cost=float(chain.complete if complete else chain.rows) * time / wanted.step_time * wanted.particles,
    )


class PlasmaAnalysis(Analysis):
    """Makes a curve or a crossing of segments."""

    def observer(self, spec: CampaignSpec, chain: ChainLog) -> Callable[[], Observation | None]:
        """Return what tells the rate of growth, or the transport, of one trajectory."""
        rows = segments_of(spec, chain, complete=True)
        return partial(observed_growth if spec.theory.target == "crossing" else observed_transport, rows)

    def rows(self, state: CampaignState, system: System) -> list[SegmentRows]:
        """Return the trajectories of a box, in order of where they aimed, that have segments."""
        complete = state.spec.running.deterministic
        chosen = [c for c in state.chains.values() if c.system == system and c.measured and not c.abandoned]
        chosen.sort(key=lambda c: (c.coordinate, c.id))
        found = [segments_of(state.spec, c, complete=complete) for c in chosen]
        return [rows for rows in found if rows.segments]

    def judged(
        self, spec: CampaignSpec, rows: Sequence[SegmentRows], plan: PlannedPoints
    ) -> TransportFinding | FreezingFinding:
        """Return what trajectories of one box say, of what the campaign is for."""
        if spec.theory.target == "crossing":
            return find_freezing(rows, plan)
        return find_transport(rows, plan, spec.theory.low, spec.theory.high, spec.budget.target_error)

    def more(self, found: TransportFinding | FreezingFinding, rows: Sequence[SegmentRows]) -> dict[str, float]:
        """Return how many segments a curve rests on, or trajectories a crossing."""
        crossing = isinstance(found, FreezingFinding)
        return {"effective": float(len(rows) if crossing else sum(one.segments for one in rows))}
