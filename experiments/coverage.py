"""Experiment coverage: how often the quoted error covers the truth, on campaigns that no rule was tuned on.

Every campaign draws its own chains. On exactly solved models the truth is known. On lattices a campaign is held against
the mean of the *other* established ones of its case, weighted by their errors, which is independent of it and about
n^(-1/2) as uncertain; that is taken into its pull. The rules that decide whether a number is established were chosen
on other seeds and are not touched here.

All of it takes about two core-hours, so it comes in shards (`--shard 2/8`), each at most forty minutes, which add
their lines to one file. A campaign that is in the file is not run again; the table is of all lines, and
`--shard table` runs nothing and prints it.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.campaign.analysis.evidence import Finding, PlannedPoints, finding_of
from metalforge.campaign.analysis.selection import PointSeries
from metalforge.campaign.findings import finding
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening
from metalforge.campaign.state import CampaignState
from metalforge.lattice import WILSON
from metalforge.lattice.campaign import Lattice
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import wilson
from metalforge.substrates import discover

from .campaigns import FAR, Doubles, Pulls, far_off, run_campaign, share_within
from .exact_model import DIMS, MODELS, ExactChains, ExactModel
from .lines import Job, OutcomeFile
from .protocol import Cell, Check, Figure, Progress, Result, Settings, experiment, read_cases, words
from .rehearsal import WARM_UP, rehearsal_spec, rehearse

FIRST_SEED = 50_000
"""Seeds of the experiment begin here: those below were used when the rules were chosen."""
BATCH = 20
"""Rehearsals that run together."""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of campaign. An exact model has a true beta_c; a lattice is held against its other campaigns."""

    name: str
    ends: Literal["target", "budget"]
    campaigns: int
    trajectories: int
    target: float | None = None
    model: str = ""
    """The name of an exact model."""
    step: float | None = None
    """Of the model's chains, where it is not its own."""
    dims: Dims = (8, 8, 8, 4)
    beta: tuple[float, float] = (5.6, 5.8)
    has_peak: bool = True
    first_seed: int | None = None
    """Of rehearsals; a real campaign is what a scan is by default."""
    chains: int = 0
    """Chains side by side over two half widths either way, with the updates shared among them: no steered campaign."""
    substrate: str = "cpu"
    """Where real campaigns run; those of a GPU are left out where there is none."""
    truth: tuple[float, float] | None = None
    """beta_c of a lattice and its error, from `metalforge scan` with 2 and 3 million updates on an H200, seed 77."""

    @property
    def exact(self) -> ExactModel | None:
        """The exact model, if it is of one."""
        model = MODELS.get(self.model)
        return model if model is None or self.step is None else model._replace(step=self.step)

    @property
    def known(self) -> tuple[float, float] | None:
        """beta_c and its error, where they are known without the campaigns of the case."""
        return (self.exact.peak()[0], 0.0) if self.exact is not None else self.truth


CASES, QUICK_CASES = read_cases("coverage", Case)


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
        size = BATCH if case.model else 1
        seeds = range(first, first + case.campaigns)
        jobs += [CoverageJob(case, tuple(seeds[i : i + size])) for i in range(0, case.campaigns, size)]
    return jobs


def run_job(job: CoverageJob, rules: str) -> list[CoverageOutcome]:
    """Return what the campaigns of a job said."""
    case, model = job.case, job.case.exact
    if model is None:
        return [_outcome(case, run_campaign(_real_spec(case, seed))[0], rules) for seed in job.seeds]
    if case.chains:
        return _side_by_side(case, model, job.seeds, rules)
    limits = {"trajectories": case.trajectories} | ({} if case.target is None else {"target_error": case.target})
    specs = [rehearsal_spec(model, seed, limits) for seed in job.seeds]
    return [_outcome(case, state, rules) for state in rehearse(model, specs, job.seeds[0])]


def _side_by_side(case: Case, model: ExactModel, seeds: Sequence[int], rules: str) -> list[CoverageOutcome]:
    """Return what chains at fixed couplings say, as a GPU runs them, with every other one from a cold start."""
    betas = model.peak()[0] + model.half_width() * np.linspace(-2, 2, case.chains)
    starts = [("hot", "cold")[i % 2] for i in range(case.chains)]
    chains = ExactChains(model, np.random.default_rng([seeds[0], 16]))
    numbers = [chains.add(beta, start) for _ in seeds for beta, start in zip(betas, starts, strict=True)]
    chains.advance(numbers, WARM_UP)
    plaquette, loop = chains.advance(numbers, case.trajectories // case.chains)
    outcomes = []
    for i, seed in enumerate(seeds):
        mine = range(i * case.chains, (i + 1) * case.chains)
        points = [
            PointSeries(
                float(beta),
                DIMS,
                WILSON.energy_of(plaquette[:, k], prod(DIMS)),
                order=np.abs(loop[:, k]),
                order_name="|L|",
                volume=prod(DIMS[:3]),
                start=start,
            )
            for k, beta, start in zip(mine, betas, starts, strict=True)
        ]
        found = finding_of(points, PlannedPoints(), seed=seed, n_bootstrap=200)
        outcomes.append(_said(case, seed, found, "trajectories", case.trajectories, rules))
    return outcomes


def _real_spec(case: Case, seed: int) -> CampaignSpec:
    """Return a campaign of its own chains, as of `metalforge scan`, on one core or a GPU."""
    one = int(case.substrate == "cpu")  # a GPU runs as many chains at a time as keep it busy
    return CampaignSpec(
        name="coverage",
        seed=seed,
        theory=Lattice(volumes=(case.dims,), beta_min=case.beta[0], beta_max=case.beta[1]),
        budget=Budget(trajectories=case.trajectories, target_error=case.target),
        running=Running(deterministic=True, producers=one, checkpoint_s=1e9, substrate=case.substrate),
        # What the network says of a chain decides nothing here.
        screening=Screening(device="software"),
    )


def _outcome(case: Case, state: CampaignState, rules: str) -> CoverageOutcome:
    found = finding(state, state.spec.theory.systems[0])
    stopped_by = "" if state.finished is None else state.finished.stopped_by
    return _said(case, state.spec.seed, found, stopped_by, state.trajectories, rules)


def _said(case: Case, seed: int, found: Finding, stopped_by: str, updates: int, rules: str) -> CoverageOutcome:
    peak = found.transition
    return CoverageOutcome(
        case=case.name,
        seed=seed,
        beta_c=None if peak is None else peak.result,
        error=None if peak is None else peak.error,
        established=found.established,
        stopped_by=stopped_by,
        updates=updates,
        lacking=tuple(item.name for item in found.lacking),
        rules=rules,
    )


SHARD_S = 2400.0
"""Longest time of a shard: no campaign is begun that might end later."""
MOST_BIAS = 0.2
"""Mean pull, in quoted errors, below which a bias is negligible: it widens the scatter about the truth by 2 %."""
FEW = 10
"""Campaigns below which no bias can be seen."""
ONE, TWO = (0.63, 0.73), 0.94
"""What the shares within one and two errors should be on exact models."""


@experiment("coverage", "How often does the error that a campaign quotes hold the truth?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run the campaigns of this shard that are not in the file, and return the table of all that are."""
    cases = QUICK_CASES if settings.quick else CASES
    file = OutcomeFile(settings, "coverage.jsonl", CoverageOutcome, lambda one: (one.case, one.seed))
    here = {"cpu", *(substrate.info.name for substrate in discover().substrates)}
    jobs = [
        Job(
            f"{job.case.name}, seeds {job.seeds[0]} to {job.seeds[-1]}",
            [(job.case.name, seed) for seed in job.seeds],
            job,
        )
        for job in jobs_of(cases, settings.seed)
        if job.case.substrate in here
    ]
    outcomes = file.run(jobs, lambda job: run_job(job, __version__), progress, longest_s=SHARD_S)
    return _result(cases, list(outcomes.values()))


def pulls_of(case: Case, outcomes: Sequence[CoverageOutcome]) -> Pulls:
    """Return how far the established campaigns of a case are from the truth."""
    quoted = [(o.beta_c, o.error) for o in outcomes if o.established and o.beta_c is not None and o.error]
    value, error = np.array(quoted, dtype=np.float64).reshape(-1, 2).T
    if case.known is None:
        return Pulls.among(value, error)
    off = value - case.known[0]
    return Pulls(off / np.hypot(error, case.known[1]), off)


def _result(cases: Sequence[Case], outcomes: Sequence[CoverageOutcome]) -> Result:
    table: list[dict[str, Cell]] = []
    checks: list[Check] = []
    exact = [np.empty(0)]
    for case in cases:
        mine = [outcome for outcome in outcomes if outcome.case == case.name]
        if not mine:
            continue
        pulls, off = pulls_of(case, mine)
        table.append(_line(case, mine, pulls, off))
        exact += [pulls] if case.model else []
        if case.known is not None and pulls.size >= FEW:
            mean, error = _bias(pulls)
            asked = f"{case.name}: bias below {MOST_BIAS:g} of the error, within its own two errors"
            checks.append((asked, f"{mean:+.2f} +- {error:.2f}", abs(mean) < MOST_BIAS + 2 * error))
        asked, wrong = f"{case.name}: none established", sum(one.established for one in mine)
        if case.has_peak:
            asked, wrong = f"{asked} and wrong by more than {FAR:g} errors", far_off(pulls)
        checks.append((asked, str(wrong), wrong == 0))
    if len(exact) > 1:
        pulls = np.concatenate(exact)
        one, two = (float(np.mean(np.abs(pulls) < n)) if pulls.size else 0.0 for n in (1, 2))
        asked = f"exact models: {ONE[0]} to {ONE[1]} within one error"
        checks.append((asked, str(share_within(pulls, 1)), ONE[0] <= one <= ONE[1]))
        checks.append((f"exact models: at least {TWO} within two errors", str(share_within(pulls, 2)), two >= TWO))
    missing = [outcome for outcome in outcomes if not outcome.established]
    lacks = Counter(name for outcome in missing for name in outcome.lacking)
    said = words(
        "coverage.all",
        run=len(outcomes),
        planned=sum(case.campaigns for case in cases),
        missing=len(missing),
        lacks=", ".join(f"{name} {count}" for name, count in lacks.most_common()) or "nothing",
        versions=", ".join(sorted({outcome.rules for outcome in outcomes})),
    )
    return Result(table, said, checks)


def _bias(pulls: Doubles) -> tuple[float, float]:
    """Return the mean of pulls and its standard error."""
    return float(pulls.mean()), float(pulls.std(ddof=1) / np.sqrt(pulls.size))


def _line(case: Case, mine: Sequence[CoverageOutcome], pulls: Doubles, off: Doubles) -> dict[str, Cell]:
    established = [o for o in mine if o.established]
    quoted = np.array([o.error for o in established if o.error])
    true = float(np.sqrt(np.mean(off**2))) if off.size > 1 else float("nan")
    biased = case.known is not None and pulls.size > 1
    return {
        "case": case.name,
        "campaigns": len(mine),
        "established": Figure.of(wilson(len(established), len(mine)), ".2f"),
        "within 1 error": share_within(pulls, 1),
        "within 2 errors": share_within(pulls, 2),
        "quoted / true error": Figure(float(np.sqrt(np.mean(quoted**2))) / true, ".2f") if off.size > 1 else "-",
        "bias / error": "{:+.2f} +- {:.2f}".format(*_bias(pulls)) if biased else "-",
        "beyond 4": far_off(pulls),
        "updates": Figure(float(np.mean([o.updates for o in mine])), ".0f"),
    }
