"""Experiment steering: the value of a prior for the peak, on live campaigns that each run chains of their own.

Five arms place the same updates, and everything else is the same:

    uniform     an even scan, which looks at nothing
    process     the Gaussian process alone (`steerer = "gaussian-process"`, `prior = "off"`)
    base        the process with the rule's prior: the transition curve, which knows N_t and N_s
    conductor   what a scan does by default: scouts, the head `beta_priority` with the curve, or the curve
    oracle      the process with a prior at the truth: what a head could be worth at most

A campaign goes on until its target error is established or its budget of work is spent, and looks after every round.
Two figures come from it: the work to the established target, and the error of the last look within a fixed work.
Work is updates times sites, in updates of the target volume, so that scouts are paid for. Work to the target of a
campaign that did not reach it is the work it ended with, so that means are lower bounds where some did not.

The truth of a case is the mean of its established campaigns; each is held against the mean of the others. Campaigns
come in shards (`--shard 2/12`) that add their lines to one file, in an order in which every case and arm has its turn:
stopped at any time, the table (`--shard table`) is of all arms alike. They run on a GPU where there is one, two
chains at a time there as on cores, so that many processes share it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.campaign.findings import OTHERS, finding
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.records import Estimated, Record, Rows
from metalforge.campaign.theory import System
from metalforge.conductor.curves import VARIABLES, transition_curve
from metalforge.lattice.campaign import Lattice
from metalforge.reservoir.metrics import Interval
from metalforge.substrates import discover

from .campaigns import FAR, Doubles, Pulls, far_off, run_campaign, share_within
from .lines import Job, OutcomeFile
from .protocol import Cell, Check, Figure, Progress, Result, Settings, experiment, read_cases, words

FIRST_SEED = 700_000
"""Seeds of the experiment begin here: no other has them."""
CHAINS = 2
"""Chains at a time: few enough that steering has turns, and with twelve processes enough for a GPU."""
ORACLE = 0.003
"""Width of the oracle's prior: well below any reach here."""
SHARD_S = 3000.0
"""Longest time of a shard: no campaign is begun that might end after it."""
REFERENCE, OURS = "process", "conductor"
GOAL, LARGEST = 0.8, 1.05
"""Of the process's work that the conductor should need on wide ranges and new volumes, and nowhere exceed."""
WIDE = ("5.0-6.5", "12^3x4")
"""Words in the names of cases that the goal is for."""
RESAMPLES = 2000
Prior: TypeAlias = Literal["auto"] | tuple[float, float]


class SteeringCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    left_out: bool = False
    """Whether the prior of the arm `base` is that of a curve which has not seen this N_t."""
    arms: tuple[str, ...] = ("uniform", "process", "base", "conductor", "oracle")
    sea: float = 0.0
    """Mass of four flavours of sea quarks; 0: none."""
    visit: int = 600


CASES, QUICK_CASES = read_cases("steering", SteeringCase)


def left_out_prior(n_t: int, n_s: int) -> tuple[float, float]:
    """Return the peak by the shipped curve's form through all other N_t, with what such a curve is off by."""
    curve = transition_curve()
    others = tuple(one for one in curve.known if one.n_t != n_t)
    x, y = [VARIABLES[curve.variable](one.n_t) for one in others], [one.mean for one in others]
    powers = tuple(np.polynomial.polynomial.polyfit(x, y, min(len(curve.powers), len(others)) - 1).tolist())
    blind = msgspec.structs.replace(curve, powers=powers, known=others)(n_t, n_s)
    return blind.mean, blind.error


class SteeringOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one campaign came to: a line of the experiment's file. `rules` names the version of the package.

    `fixed_beta_c` and `fixed_error` are those of its last look within the fixed work, `beta_c` and `error` those of its
    end, after `work`; `prior` is the last prior for the peak: its source, its mean and its width.
    """

    case: str
    arm: str
    seed: int
    fixed_beta_c: float | None
    fixed_error: float | None
    reached: bool
    work: float
    beta_c: float | None
    error: float | None
    established: bool
    chains: int
    prior: tuple[str, float, float] | None
    substrate: str
    rules: str


class SteeringJob(NamedTuple):
    """One campaign."""

    case: SteeringCase
    arm: str
    seed: int


def jobs_of(cases: Sequence[SteeringCase], seed: int) -> list[SteeringJob]:
    """Return all campaigns, in the order in which they are run: a seed of every case and arm, then the next."""
    return [
        SteeringJob(case, arm, FIRST_SEED + 100_000 * seed + 1000 * number + n)
        for n in range(max(case.campaigns for case in cases))
        for number, case in enumerate(cases)
        if n < case.campaigns
        for arm in case.arms
    ]


def spec_of(job: SteeringJob, substrate: str) -> CampaignSpec:
    """Return the campaign of an arm: `metalforge scan` with another steerer or prior, and nothing else."""
    case, arm = job.case, job.arm
    base: Prior = left_out_prior(case.dims[3], case.dims[0]) if case.left_out else "auto"
    steering = {
        "uniform": Steering(steerer="uniform", visit=case.visit),
        "process": Steering(steerer="gaussian-process", prior="off", visit=case.visit),
        "base": Steering(steerer="gaussian-process", prior=base, visit=case.visit),
        "conductor": Steering(steerer="conductor", visit=case.visit),
        "oracle": Steering(steerer="gaussian-process", prior=(case.truth, ORACLE), visit=case.visit),
    }[arm]
    # Every other volume has its share of the work of the first (`findings.gains`), in updates that are smaller work.
    small = [prod(case.dims) / prod(dims) for dims in case.scouts]
    updates = round(case.most * (1 + OTHERS * sum(small)) / (1 + OTHERS * len(small)))
    common = {"volumes": (case.dims, *case.scouts), "beta_min": case.beta[0], "beta_max": case.beta[1]}
    quarks = {"algorithm": "hmc", "integrator": "leapfrog", "n_steps": 6, "flavors": 4, "mass": case.sea}
    where = "cpu" if case.sea else substrate
    return CampaignSpec(
        name="steering",
        seed=job.seed,
        theory=msgspec.convert(common | (quarks if case.sea else {}), Lattice),
        budget=Budget(trajectories=updates, target_error=case.target),
        warmup=WarmUpPolicy(longest=120, shortest=60) if case.sea else WarmUpPolicy(),
        steering=steering,
        screening=Screening(device="software"),
        running=Running(deterministic=True, producers=CHAINS, checkpoint_s=1e9, substrate=where),
    )


def looks_of(records: Iterable[Record], state: CampaignState, dims: System) -> Iterator[tuple[float, Estimated]]:
    """Give the looks at a volume, each after how much work in its updates."""
    share = {chain.id: prod(chain.system) / prod(dims) for chain in state.chains.values()}
    work = 0.0
    for record in records:
        if isinstance(record, Rows):
            work += len(next(iter(record.columns.values()))) * share[record.chain]
        elif isinstance(record, Estimated) and record.system == dims:
            yield work, record


def run_job(job: SteeringJob, substrate: str) -> SteeringOutcome:
    """Run a campaign and return what it came to."""
    case, spec = job.case, spec_of(job, substrate)
    state, records = run_campaign(spec)
    looks = [look for work, look in looks_of(records, state, case.dims) if work <= case.fixed]
    work = sum(chain.rows * prod(chain.system) for chain in state.chains.values()) / prod(case.dims)
    found, said = finding(state, case.dims), state.expected(case.dims)
    peak = found.transition
    return SteeringOutcome(
        case=case.name,
        arm=job.arm,
        seed=job.seed,
        fixed_beta_c=looks[-1].result if looks else None,
        fixed_error=looks[-1].error if looks else None,
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
    file = OutcomeFile(settings, "steering.jsonl", SteeringOutcome, lambda one: (one.case, one.arm, one.seed))
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


class ArmFigures(NamedTuple):
    """One arm of a case: its campaigns, the work of each, and the pulls of what they established."""

    outcomes: Sequence[SteeringOutcome]
    work: Doubles
    off: Doubles
    """Of the look within the fixed work from the case's truth, where it had a peak."""
    pulls: Doubles


def arms_of(outcomes: Sequence[SteeringOutcome], arms: Sequence[str]) -> dict[str, ArmFigures]:
    """Return the figures of the arms of a case that have campaigns; its truth is the mean of what was established."""
    sure = [one for one in outcomes if one.established and one.beta_c is not None and one.error]
    value, error = np.array([(one.beta_c, one.error) for one in sure], dtype=np.float64).reshape(-1, 2).T
    located = [one.beta_c for one in outcomes if one.beta_c is not None]
    truth = float(np.average(value, weights=error**-2.0)) if sure else float(np.mean(located or [np.nan]))
    pulls = Pulls.among(value, error).in_errors
    by = {(one.arm, one.seed): pull for one, pull in zip(sure, pulls, strict=False)}
    found = {}
    for arm in arms:
        if mine := [one for one in outcomes if one.arm == arm]:
            off = np.array([one.fixed_beta_c - truth for one in mine if one.fixed_beta_c is not None])
            own = np.array([by[key] for one in mine if (key := (arm, one.seed)) in by])
            found[arm] = ArmFigures(mine, np.array([one.work for one in mine]), off, own)
    return found


def ratio_of(found: ArmFigures, reference: ArmFigures | None) -> Interval | None:
    """Return the mean work over that of the process, with an interval that draws campaigns of both again."""
    if reference is None or found is reference or min(len(found.work), len(reference.work)) < 2:
        return None
    rng = np.random.default_rng([len(found.work), len(reference.work)])
    drawn = [
        work[rng.integers(len(work), size=(RESAMPLES, len(work)))].mean(axis=1) for work in (found.work, reference.work)
    ]
    low, high = np.percentile(drawn[0] / drawn[1], [2.5, 97.5])
    return Interval(float(found.work.mean() / reference.work.mean()), float(low), float(high))


def result_of(cases: Mapping[str, Sequence[str]], outcomes: Sequence[SteeringOutcome]) -> Result:
    """Return table, words and checks of the campaigns that there are; `cases` has the arms of each."""
    checks: list[Check] = []
    table: list[dict[str, Cell]] = []
    for case, arms in cases.items():
        figures = arms_of([one for one in outcomes if one.case == case], arms)
        ratios = {arm: ratio_of(found, figures.get(REFERENCE)) for arm, found in figures.items()}
        table += [_line(case, arm, found, ratios[arm]) for arm, found in figures.items()]
        checks += _checks(case, figures, ratios.get(OURS)) if figures else ()
    return Result(table, _words(outcomes), checks)


def _line(case: str, arm: str, found: ArmFigures, ratio: Interval | None) -> dict[str, Cell]:
    count = len(found.outcomes)
    quoted = np.array([one.fixed_error for one in found.outcomes if one.fixed_error is not None])
    return {
        "case": case,
        "arm": arm,
        "campaigns": count,
        "not located": count - len(found.off),
        "rmse at fixed work": Figure(_rms(found.off), ".5f"),
        "quoted there": Figure(_rms(quoted), ".5f"),
        "work to the target": Figure(float(found.work.mean()), ".0f"),
        "reached": f"{sum(one.reached for one in found.outcomes)} of {count}",
        f"work / {REFERENCE}": "1" if arm == REFERENCE else "-" if ratio is None else Figure.of(ratio, ".2f"),
        "within 1 error": share_within(found.pulls, 1),
        "within 2 errors": share_within(found.pulls, 2),
        f"beyond {FAR:g}": far_off(found.pulls),
    }


def _checks(case: str, figures: Mapping[str, ArmFigures], ratio: Interval | None) -> Iterator[Check]:
    far = sum(far_off(found.pulls) for found in figures.values())
    yield f"{case}: none established and wrong by more than {FAR:g} errors", str(far), far == 0
    if ratio is not None:
        for most in (GOAL, LARGEST) if any(word in case for word in WIDE) else (LARGEST,):
            asked = f"{case}: {OURS} <= {most} of the {REFERENCE}"
            yield asked, str(Figure.of(ratio, ".2f")), ratio.value <= most


def _words(outcomes: Sequence[SteeringOutcome]) -> list[str]:
    said: dict[tuple[str, str, str], list[float]] = {}
    for one in outcomes:
        if one.prior is not None and one.arm in ("base", OURS):
            said.setdefault((one.case, one.arm, one.prior[0]), []).append(one.prior[2])
    priors = [
        f"{case}, {arm}: {by} in {len(widths)}, width {np.mean(widths):.3g}"
        for (case, arm, by), widths in sorted(said.items())
    ]
    return words(
        "steering.all",
        campaigns=len(outcomes),
        priors="; ".join(priors) or "none",
        where=", ".join(sorted({one.substrate for one in outcomes})) or "nowhere",
        versions=", ".join(sorted({one.rules for one in outcomes})) or "none",
    )


def _rms(values: Doubles) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")
