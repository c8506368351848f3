"""The campaigns of experiment 018: their specs, how one is run, and what is measured of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, sqrt
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.stats import t as student

from metalforge.campaign.physics.transition import NotLocated, Transition, locate
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.choosing import FEWEST, effective_samples
from metalforge.campaign.spec import (
    ORDERINGS,
    Budget,
    CampaignSpec,
    Dims,
    Lattice,
    Running,
    Screening,
    Steering,
    WarmUpPolicy,
)
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Record, Rows
from metalforge.statistics import gamma_method

from .protocol import Settings

__all__ = [
    "REPLICAS",
    "SEQUENTIAL",
    "SINGLE",
    "OrderingPlan",
    "StrategyOutcome",
    "plan_of",
    "pull",
    "run_strategy",
    "strategies",
]

SEQUENTIAL = "sequential"
SINGLE = "D in f32"
"""Ordering D with links in single precision, checked in double: the nearest there is to the design's DF64 and f64."""
WINDOWS = 6
"""Parts of a run over which its rate is averaged."""
REPLICAS = 100
SUBSTRATES = 2


class OrderingPlan(NamedTuple):
    """What quick and full differ in."""

    target: Dims
    scout: Dims
    range: tuple[float, float]
    seconds: float
    flags: float
    """chi from which a configuration of the target is flagged: three quarters of its peak."""
    scout_flags: float
    """The same for ordering B, which flags on the smaller lattice."""
    visit: int
    warmup: WarmUpPolicy


QUICK = OrderingPlan(
    (4, 4, 4, 2), (2, 2, 2, 2), (4.95, 5.25), 2.0, 0.7, 0.19, 150, WarmUpPolicy(longest=60, shortest=20)
)
FULL = OrderingPlan(
    (8, 8, 8, 4), (4, 4, 4, 4), (5.6, 5.8), 30.0, 1.0, 0.28, 300, WarmUpPolicy(longest=200, shortest=40)
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyOutcome:
    """One run: what its journal says, where beta_c is, and its rates with half widths of their intervals."""

    name: str
    state: CampaignState
    found: Transition | None
    reason: str
    """Why there is no beta_c."""
    rate: tuple[float, float]
    effective: tuple[float, float]

    @property
    def core_seconds(self) -> float:
        """Processor time of the producers, over all volumes."""
        return sum(chain.seconds for chain in self.state.chains.values())

    @property
    def core_rate(self) -> float:
        """Updates a second of that."""
        return self.state.trajectories / self.core_seconds if self.core_seconds else 0.0

    @property
    def cores(self) -> float:
        """Cores that the producers had, on average: on a busy machine fewer than they could use."""
        return self.core_seconds / self.state.seconds if self.state.seconds else 0.0

    @property
    def effective_core_rate(self) -> float:
        """Effective samples of |L| a second of the producers' processor time."""
        return self.effective[0] / self.cores if self.cores else 0.0

    @property
    def utilisation(self) -> dict[str, float]:
        """How busy each substrate was in the run's last segment."""
        use = self.state.utilisation
        found: dict[str, float] = {}
        for stage in use.stages if use is not None else ():
            if stage.substrate is not None:
                found[stage.substrate] = found.get(stage.substrate, 0.0) + stage.utilisation
        return found

    @property
    def drift(self) -> float | None:
        """The largest difference of P or |L| that a check found; None without checks."""
        drifts = [max(abs(c.drift_plaquette), abs(c.drift_polyakov)) for c in self.state.checks]
        return max(drifts) if drifts else None

    @property
    def chosen(self) -> str:
        """What `auto` chose, and by which figures."""
        return next((f"{d.by}: {d.reason}" for d in reversed(self.state.decisions) if d.what == "ordering"), "")


def plan_of(settings: Settings) -> OrderingPlan:
    """Return what is run."""
    return QUICK if settings.quick else FULL


def strategies(settings: Settings) -> dict[str, CampaignSpec]:
    """Return the spec of every strategy by name; they differ in ordering, producers, B's volumes, and one precision."""
    plan = plan_of(settings)
    base = CampaignSpec(
        name="018",
        seed=settings.seed,
        ordering="C",
        lattice=Lattice(volumes=(plan.target,), beta_min=plan.range[0], beta_max=plan.range[1]),
        budget=Budget(seconds=plan.seconds),
        warmup=plan.warmup,
        steering=Steering(initial=4, visit=plan.visit),
        screening=Screening(chi=plan.flags, every=20, device="npu"),
        running=Running(producers=SUBSTRATES, checkpoint_s=3600.0),
    )
    replace = msgspec.structs.replace
    found = {SEQUENTIAL: replace(base, running=replace(base.running, producers=1))}
    for ordering in ORDERINGS:
        lattice, screening = base.lattice, base.screening
        if ordering == "B":
            lattice = replace(lattice, volumes=(plan.target, plan.scout))
            screening = replace(screening, chi=plan.scout_flags)
        found[ordering] = replace(base, ordering=ordering, lattice=lattice, screening=screening)
    found[SINGLE] = replace(found["D"], lattice=replace(base.lattice, precision="f32"))
    found["auto"] = replace(base, ordering="auto")
    return found


def run_strategy(name: str, spec: CampaignSpec, directory: Path) -> StrategyOutcome:
    """Run one campaign to its end and measure it."""
    with Campaign.open(spec, directory, command=("metalforge", "experiment", "run", "018")) as campaign:
        state = campaign.run()
    found, reason = None, ""
    try:
        found = locate(state.points(spec.lattice.volumes[0]), seed=spec.seed, n_bootstrap=REPLICAS)
    except NotLocated as problem:
        reason = str(problem).splitlines()[0]
    return StrategyOutcome(
        name=name,
        state=state,
        found=found,
        reason=reason,
        rate=_rate(read_journal(directory / JOURNAL, Record).records, state),
        effective=_effective(state),
    )


def _rate(records: Sequence[Record], state: CampaignState) -> tuple[float, float]:
    """Return updates a second with the half width of Student's interval over `WINDOWS` equal parts of the run."""
    began, lasted = state.opened.at, state.seconds
    rows = [(record.at, len(next(iter(record.columns.values())))) for record in records if isinstance(record, Rows)]
    if not rows or lasted <= 0:
        return 0.0, inf
    at, counts = np.array(rows).T
    updates, _ = np.histogram(at, bins=WINDOWS, range=(began, began + lasted), weights=counts)
    half = student.ppf(0.975, WINDOWS - 1) * updates.std(ddof=1) / sqrt(WINDOWS) * WINDOWS / lasted
    return state.trajectories / lasted, float(half)


def _effective(state: CampaignState) -> tuple[float, float]:
    """Return effective samples of |L| a second with the half width that the errors of tau_int make."""
    variance = 0.0
    for point in state.points(state.spec.lattice.volumes[0]):
        if len(point.polyakov) >= FEWEST and np.ptp(point.order) > 0:
            tau = gamma_method(point.order)
            variance += (len(point.polyakov) / (2 * tau.tau_int) * tau.tau_int_error / tau.tau_int) ** 2
    if state.seconds <= 0:
        return 0.0, inf
    return effective_samples(state) / state.seconds, 1.96 * sqrt(variance) / state.seconds


def pull(outcome: StrategyOutcome, other: StrategyOutcome) -> float | None:
    """Return how many combined errors lie between the beta_c of two runs; None where one has none."""
    if outcome.found is None or other.found is None:
        return None
    return (outcome.found.beta_c - other.found.beta_c) / hypot(outcome.found.error, other.found.error)
