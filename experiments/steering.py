"""Experiment steering: the value of a prior for the peak, on live campaigns that each run chains of their own.

Five arms place the same updates, and everything else is the same:

    uniform     an even scan, which looks at nothing
    process     the Gaussian process alone (`steerer = "gaussian-process"`, `prior = "off"`)
    base        the process with the rule's prior: the transition curve, which knows N_t and N_s
    conductor   what a scan does by default: scouts, the head `beta_priority` with the curve, or the curve
    oracle      the process with a prior at the truth: what a head could be worth at most

A campaign goes on until its target error is established or its budget of work is spent, and looks after every round.
Two figures come from it: the work to the established target, and the error of the last look within a fixed work.
Work is updates times sites, in updates of the target volume, so that scouts are paid for.

The truth of a case is the mean of its established campaigns; each is held against the mean of the others. Campaigns
come in shards (`--shard 2/12`) that add their lines to one file, in an order in which every case and arm has its turn:
stopped at any time, the table (`--shard table`) is of all arms alike. They run on a GPU where there is one, two
chains at a time there as on cores, so that many processes share it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.campaign.findings import OTHERS, finding
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Estimated, Record, Rows
from metalforge.campaign.theory import System
from metalforge.conductor.scaling import VARIABLES, transition_curve
from metalforge.lattice.campaign import Lattice
from metalforge.substrates import discover

from .lines import Job, OutcomeFile
from .protocol import Progress, Result, Settings, experiment
from .steering_table import SteeringOutcome, result_of

FILE = "steering.jsonl"
FIRST_SEED = 700_000
"""Seeds of the experiment begin here: no other has them."""
CHAINS = 2
"""Chains at a time: few enough that steering has turns, and with twelve processes enough for a GPU."""
ORACLE = 0.003
"""Width of the oracle's prior: well below any reach here."""
SHARD_S = 3000.0
"""Longest time of a shard: no campaign is begun that might end after it."""
ARMS = ("uniform", "process", "base", "conductor", "oracle")


class SteeringCase(NamedTuple):
    """A lattice and a range of beta, with the target and the budgets that all arms share."""

    name: str
    dims: System
    beta: tuple[float, float]
    truth: float
    """Where the oracle is told that the peak is, by earlier campaigns."""
    fixed: int
    """Work at which errors are compared."""
    target: float
    most: int
    """Work at which a campaign ends that has not reached its target."""
    campaigns: int = 24
    """Of each arm."""
    scouts: tuple[System, ...] = ()
    """Smaller volumes that are asked for besides: their peaks are the conductor's prior on the larger one."""
    base: tuple[float, float] | None = None
    """The prior of the arm `base`, where it is not that of the shipped curve."""
    arms: tuple[str, ...] = ARMS
    sea: float = 0.0
    """Mass of four flavours of sea quarks; 0: none."""
    visit: int = 600


def left_out_prior(n_t: int, n_s: int) -> tuple[float, float]:
    """Return the peak by the shipped curve's form through all other N_t, with what such a curve is off by."""
    curve = transition_curve()
    others = tuple(one for one in curve.known if one.n_t != n_t)
    x, y = [VARIABLES[curve.variable](one.n_t) for one in others], [one.mean for one in others]
    powers = tuple(np.polynomial.polynomial.polyfit(x, y, min(len(curve.powers), len(others)) - 1).tolist())
    blind = msgspec.structs.replace(curve, powers=powers, known=others)(n_t, n_s)
    return blind.mean, blind.error


CASES = (
    SteeringCase("8^3x4, 5.6-5.8", (8, 8, 8, 4), (5.6, 5.8), 5.6900, 6_000, 0.0025, 40_000),
    SteeringCase("8^3x4, 5.0-6.5", (8, 8, 8, 4), (5.0, 6.5), 5.6900, 12_000, 0.0025, 60_000),
    SteeringCase("12^3x4, 5.4-6.0", (12, 12, 12, 4), (5.4, 6.0), 5.6910, 10_000, 0.0015, 50_000, campaigns=16),
    # The shipped head has seen chains of N_t = 2, so that there is no arm for it; the curve is one that has not.
    SteeringCase(
        "4^3x2, 4.7-5.5, N_t left out",
        (4, 4, 4, 2),
        (4.7, 5.5),
        5.0842,
        4_000,
        0.005,
        40_000,
        base=left_out_prior(2, 4),
        arms=("uniform", "process", "base", "oracle"),
    ),
    # Nobody knows where the peak is with sea quarks, and there is no smaller volume: the conductor is the process.
    SteeringCase(
        "4^3x2, four flavours of mass 1, 4.2-5.2",
        (4, 4, 4, 2),
        (4.2, 5.2),
        4.68,
        3_000,
        0.04,
        9_000,
        campaigns=8,
        arms=("uniform", "process", "oracle"),
        sea=1.0,
        visit=150,
    ),
    # Whoever asks for both volumes pays for both, in every arm.
    SteeringCase(
        "12^3x4 with 8^3x4, 5.4-6.0",
        (12, 12, 12, 4),
        (5.4, 6.0),
        5.6910,
        10_000,
        0.0015,
        50_000,
        campaigns=16,
        scouts=((8, 8, 8, 4),),
        arms=("process", "conductor"),
    ),
)
QUICK_CASES = (
    SteeringCase(
        "4^3x2, 4.9-5.3",
        (4, 4, 4, 2),
        (4.9, 5.3),
        5.084,
        1_000,
        0.012,
        2_000,
        campaigns=1,
        arms=("process", "conductor", "oracle"),
        visit=200,
    ),
)


class SteeringJob(NamedTuple):
    """One campaign."""

    case: SteeringCase
    arm: str
    seed: int


def jobs_of(cases: Sequence[SteeringCase], seed: int) -> list[SteeringJob]:
    """Return all campaigns, in the order in which they are run: a seed of every case and arm, then the next."""
    jobs = [
        (n, number, SteeringJob(case, arm, FIRST_SEED + 100_000 * seed + 1000 * number + n))
        for number, case in enumerate(cases)
        for n in range(case.campaigns)
        for arm in case.arms
    ]
    return [job for _, _, job in sorted(jobs, key=lambda one: one[:2])]


def spec_of(job: SteeringJob, substrate: str) -> CampaignSpec:
    """Return the campaign of an arm: `metalforge scan` with another steerer or prior, and nothing else."""
    case, arm = job.case, job.arm
    steering = {
        "uniform": Steering(steerer="uniform", visit=case.visit),
        "process": Steering(steerer="gaussian-process", prior="off", visit=case.visit),
        "base": Steering(steerer="gaussian-process", prior=case.base or "auto", visit=case.visit),
        "conductor": Steering(steerer="conductor", visit=case.visit),
        "oracle": Steering(steerer="gaussian-process", prior=(case.truth, ORACLE), visit=case.visit),
    }[arm]
    # Every other volume has its share of the work of the first (`findings.gains`), in updates that are smaller work.
    small = [prod(case.dims) / prod(dims) for dims in case.scouts]
    updates = round(case.most * (1 + OTHERS * sum(small)) / (1 + OTHERS * len(small)))
    common = {"volumes": (case.dims, *case.scouts), "beta_min": case.beta[0], "beta_max": case.beta[1]}
    quarks = {"algorithm": "hmc", "integrator": "leapfrog", "n_steps": 6, "flavors": 4, "mass": case.sea}
    return CampaignSpec(
        name="steering",
        seed=job.seed,
        theory=msgspec.convert(common | (quarks if case.sea else {}), Lattice),
        budget=Budget(trajectories=updates, target_error=case.target),
        warmup=WarmUpPolicy(longest=120, shortest=60) if case.sea else WarmUpPolicy(),
        steering=steering,
        screening=Screening(device="software"),
        running=Running(
            deterministic=True, producers=CHAINS, checkpoint_s=1e9, substrate="cpu" if case.sea else substrate
        ),
    )


class SteeringLook(NamedTuple):
    """What a look at the target volume found after how much work."""

    work: float
    beta_c: float | None
    error: float | None


def looks_of(records: Iterable[Record], state: CampaignState, dims: System) -> Iterator[SteeringLook]:
    """Give the looks at a volume; work is in its updates."""
    share = {chain.id: prod(chain.system) / prod(dims) for chain in state.chains.values()}
    work = 0.0
    for record in records:
        if isinstance(record, Rows):
            work += len(next(iter(record.columns.values()))) * share[record.chain]
        elif isinstance(record, Estimated) and record.system == dims:
            yield SteeringLook(work, record.result, record.error)


def run_job(job: SteeringJob, substrate: str) -> SteeringOutcome:
    """Run a campaign and return what it came to."""
    case, spec = job.case, spec_of(job, substrate)
    with TemporaryDirectory() as folder:
        with Campaign.open(spec, Path(folder)) as campaign:
            state = campaign.run()
        looks = list(looks_of(read_journal(Path(folder) / JOURNAL, Record).records, state, case.dims))
        found = finding(state, case.dims)
    fixed = next((look for look in reversed(looks) if look.work <= case.fixed), SteeringLook(0.0, None, None))
    work = sum(chain.rows * prod(chain.system) for chain in state.chains.values()) / prod(case.dims)
    peak, said = found.transition, state.expected(case.dims)
    return SteeringOutcome(
        case=case.name,
        arm=job.arm,
        seed=job.seed,
        fixed_beta_c=fixed.beta_c,
        fixed_error=fixed.error,
        reached=state.stopped_by == "target",
        work=work,
        beta_c=None if peak is None else peak.result,
        error=None if peak is None else peak.error,
        established=found.established,
        chains=len(state.chains),
        prior=None if said is None else (said.by, said.value or 0.0, said.width or 0.0),
        substrate=spec.running.substrate,
        rules=__version__,
    )


@experiment("steering", "What is it worth to know where to look: work to an established target, error at a fixed work?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run the campaigns of this shard that are not in the file, and return the table of all that are."""
    cases = QUICK_CASES if settings.quick else CASES
    file = OutcomeFile(settings, FILE, SteeringOutcome, lambda one: (one.case, one.arm, one.seed))
    jobs = [
        Job(f"{job.case.name}, {job.arm}, seed {job.seed}", [(job.case.name, job.arm, job.seed)], job)
        for job in jobs_of(cases, settings.seed)
    ]
    outcomes = file.run(jobs, lambda job: [run_job(job, _gpu())], progress, longest_s=SHARD_S)
    return result_of({case.name: case.arms for case in cases}, list(outcomes.values()))


@cache
def _gpu() -> str:
    """Return where campaigns run: on the first GPU, or on cores."""
    gpus = (one.info.name for one in discover().substrates if one.info.name.startswith("cuda"))
    return next(gpus, "cpu")
