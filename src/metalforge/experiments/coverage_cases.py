"""The campaigns of the coverage experiment: which lattices and models, by which end, how many, and how each is run."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import msgspec

from metalforge.campaign.findings import finding
from metalforge.campaign.physics.evidence import Finding
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Dims, Lattice, Running, Screening
from metalforge.campaign.state import CampaignState

from .exact_model import CROSSOVER, FIRST_ORDER, ExactModel
from .rehearsal import found_by, rehearsal_spec, rehearse

__all__ = ["CASES", "QUICK_CASES", "Case", "CoverageOutcome", "jobs_of", "run_job"]

FIRST_SEED = 50_000
"""Seeds of the experiment begin here: those below were used when the rules were chosen."""
BATCH = 20
"""Rehearsals that run together."""
N_BOOTSTRAP = 200


class Case(NamedTuple):
    """One kind of campaign. An exact model has a true beta_c; a lattice is held against its other campaigns."""

    name: str
    ends: Literal["target", "budget"]
    campaigns: int
    trajectories: int
    target: float | None = None
    model: ExactModel | None = None
    dims: Dims = (8, 8, 8, 4)
    beta: tuple[float, float] = (5.6, 5.8)
    has_peak: bool = True
    first_seed: int | None = None


CASES = (
    Case("exact, one phase, to 0.0025", "target", 100, 120_000, 0.0025, CROSSOVER),
    Case("exact, one phase, to 0.004", "target", 100, 120_000, 0.004, CROSSOVER),
    # tau_int is taken from crossings since first runs of these two cases: they are on seeds of their own again.
    Case("exact, two phases, to 0.001", "target", 100, 120_000, 0.001, FIRST_ORDER, first_seed=300_000),
    Case("exact, one phase, 24,000 updates", "budget", 150, 24_000, None, CROSSOVER),
    Case("exact, two phases, 60,000 updates", "budget", 150, 60_000, None, FIRST_ORDER, first_seed=310_000),
    Case("4^3x2, to 0.006", "target", 100, 40_000, 0.006, dims=(4, 4, 4, 2), beta=(5.0, 5.2)),
    Case("8^3x2 above its transition", "budget", 10, 12_000, dims=(8, 8, 8, 2), beta=(5.2, 5.4), has_peak=False),
    Case("8^3x4, to 0.0025", "target", 10, 60_000, 0.0025),
    # Seeds 11 to 20 of this spec once ended 4, 10 and 20 errors from the truth; they are the first ten here.
    Case("8^3x2, to 0.004", "target", 30, 100_000, 0.004, dims=(8, 8, 8, 2), beta=(5.0, 5.2), first_seed=11),
)
QUICK_CASES = (
    Case("exact, one phase, to 0.006", "target", 20, 40_000, 0.006, CROSSOVER._replace(step=0.03)),
    Case("exact, one phase, 8,000 updates", "budget", 20, 8_000, None, CROSSOVER._replace(step=0.03)),
)


class CoverageOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one campaign said: a line of the experiment's file. `rules` names the version of the package."""

    case: str
    seed: int
    beta_c: float | None
    error: float | None
    established: bool
    stopped_by: str
    updates: int
    lacking: tuple[str, ...]
    rules: str


class CoverageJob(NamedTuple):
    """Campaigns of one case that are run together."""

    case: Case
    seeds: tuple[int, ...]


def jobs_of(cases: Sequence[Case], seed: int) -> list[CoverageJob]:
    """Return the work of the experiment in parts; `seed` shifts every campaign's own."""
    jobs = []
    for number, case in enumerate(cases):
        first = FIRST_SEED + 10_000 * seed + 1000 * number if case.first_seed is None else case.first_seed
        size = BATCH if case.model is not None else 1
        seeds = range(first, first + case.campaigns)
        jobs += [CoverageJob(case, tuple(seeds[i : i + size])) for i in range(0, case.campaigns, size)]
    return jobs


def run_job(job: CoverageJob, rules: str) -> list[CoverageOutcome]:
    """Return what the campaigns of a job said."""
    case = job.case
    if case.model is not None:
        limits = {"trajectories": case.trajectories} | ({} if case.target is None else {"target_error": case.target})
        specs = [rehearsal_spec(case.model, seed, **limits) for seed in job.seeds]
        states = rehearse(case.model, specs, job.seeds[0])
        return [_outcome(case, state, found_by(state, N_BOOTSTRAP), rules) for state in states]
    return [_real(case, seed, rules) for seed in job.seeds]


def _real(case: Case, seed: int, rules: str) -> CoverageOutcome:
    """Run a campaign of its own chains, as `metalforge scan` would, on one core."""
    spec = CampaignSpec(
        name="coverage",
        seed=seed,
        lattice=Lattice(volumes=(case.dims,), beta_min=case.beta[0], beta_max=case.beta[1]),
        budget=Budget(trajectories=case.trajectories, target_error=case.target),
        running=Running(deterministic=True, producers=1, checkpoint_s=1e9),
        # What the network says of a chain decides nothing here.
        screening=Screening(device="software", every=1000),
    )
    with TemporaryDirectory() as folder, Campaign.open(spec, Path(folder)) as campaign:
        state = campaign.run()
    return _outcome(case, state, finding(state, case.dims, n_bootstrap=N_BOOTSTRAP), rules)


def _outcome(case: Case, state: CampaignState, found: Finding, rules: str) -> CoverageOutcome:
    peak = found.transition
    return CoverageOutcome(
        case=case.name,
        seed=state.spec.seed,
        beta_c=None if peak is None else peak.beta_c,
        error=None if peak is None else peak.error,
        established=found.established,
        stopped_by="" if state.finished is None else state.finished.stopped_by,
        updates=state.trajectories,
        lacking=tuple(item.name for item in found.lacking),
        rules=rules,
    )
