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
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.campaign.analysis.evidence import Finding, PlannedPoints, finding_of
from metalforge.campaign.analysis.series import PointSeries
from metalforge.campaign.findings import finding
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening
from metalforge.campaign.state import CampaignState
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.theory import energies
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import wilson
from metalforge.substrates import discover

from .exact_model import CROSSOVER, DIMS, FIRST_ORDER, LARGE, RARE, STUCK, ExactChains, ExactModel
from .lines import Job, OutcomeFile
from .protocol import Progress, Result, ResultRow, Settings, experiment, row_of, shown, words
from .rehearsal import WARM_UP, rehearsal_spec, rehearse

FIRST_SEED = 50_000
"""Seeds of the experiment begin here: those below were used when the rules were chosen."""
BATCH = 20
"""Rehearsals that run together."""


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
    exchange: Literal["auto", "on", "off"] = "off"
    """Of rehearsals; a real campaign is what a scan is by default."""
    chains: int = 0
    """Chains side by side over two half widths either way, with the updates shared among them: no steered campaign."""
    substrate: str = "cpu"
    """Where real campaigns run; those of a GPU are left out where there is none."""
    truth: tuple[float, float] | None = None
    """beta_c of a lattice and its error, from a run that is far longer than the campaigns."""

    @property
    def known(self) -> tuple[float, float] | None:
        """beta_c and its error, where they are known without the campaigns of the case."""
        return (self.model.peak()[0], 0.0) if self.model is not None else self.truth


LONG_4X2, LONG_8X4 = (5.08477, 0.00025), (5.69016, 0.00014)
"""beta_c of 4^3x2 and 8^3x4 with its error, from `metalforge scan` with 2 and 3 million updates on an H200, seed 77."""
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
    # Seeds of cases without a first one follow from their place: new cases come last.
    # Blocks of a ladder count by its replicas since first runs of these two: they are on seeds of their own again.
    Case("exact, exchange, to 0.001", "target", 100, 240_000, 0.001, FIRST_ORDER, first_seed=340_000, exchange="on"),
    Case(
        "exact, exchange, 60,000 updates", "budget", 150, 60_000, None, FIRST_ORDER, first_seed=350_000, exchange="on"
    ),
    Case("exact, rare crossings", "budget", 60, 120_000, None, RARE, first_seed=360_000, exchange="auto"),
    Case(
        "exact, large volume, 1.2 million updates", "budget", 60, 1_200_000, None, LARGE, first_seed=570_000, chains=32
    ),
    Case("exact, rare crossings, 320,000 updates", "budget", 60, 320_000, None, RARE, first_seed=580_000, chains=16),
    Case("exact, nobody crosses", "budget", 20, 160_000, None, STUCK, has_peak=False, first_seed=590_000, chains=16),
    Case("8^3x4 on a card, to 0.002", "target", 150, 300_000, 0.002, first_seed=400_000, substrate="cuda:0"),
    Case(
        "8^3x2 on a card, to 0.002",
        "target",
        150,
        300_000,
        0.002,
        dims=(8, 8, 8, 2),
        beta=(5.0, 5.2),
        first_seed=410_000,
        substrate="cuda:0",
    ),
    # Short campaigns: is beta_c biased by more than its error allows for?
    Case("exact, one phase, 20,000 updates", "budget", 300, 20_000, None, CROSSOVER, first_seed=600_000),
    Case(
        "4^3x2, 6,000 updates",
        "budget",
        50,
        6_000,
        None,
        None,
        (4, 4, 4, 2),
        (5.0, 5.2),
        first_seed=610_000,
        truth=LONG_4X2,
    ),
    Case("8^3x4, 20,000 updates", "budget", 30, 20_000, first_seed=620_000, truth=LONG_8X4),
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
    if case.model is not None and case.chains:
        return _side_by_side(case, case.model, job.seeds, rules)
    if case.model is not None:
        limits = {"trajectories": case.trajectories} | ({} if case.target is None else {"target_error": case.target})
        specs = [rehearsal_spec(case.model, seed, limits, exchange=case.exchange) for seed in job.seeds]
        states = rehearse(case.model, specs, job.seeds[0])
        return [_outcome(case, state, rules) for state in states]
    return [_real(case, seed, rules) for seed in job.seeds]


def _side_by_side(case: Case, model: ExactModel, seeds: Sequence[int], rules: str) -> list[CoverageOutcome]:
    """Return what chains at fixed couplings say, as a GPU runs them, with every other one from a cold start."""
    betas = model.peak()[0] + model.half_width() * np.linspace(-2, 2, case.chains)
    starts = [("hot", "cold")[i % 2] for i in range(case.chains)]
    chains = ExactChains(model, np.random.default_rng([seeds[0], 16]))
    numbers = [chains.add(beta, start) for _ in seeds for beta, start in zip(betas, starts, strict=True)]
    chains.advance(numbers, WARM_UP)
    plaquette, loop, _ = chains.advance(numbers, case.trajectories // case.chains)
    outcomes = []
    for i, seed in enumerate(seeds):
        mine = range(i * case.chains, (i + 1) * case.chains)
        points = [
            PointSeries(
                float(beta),
                DIMS,
                energies(DIMS, "plaquette", plaquette[:, k]),
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


def _real(case: Case, seed: int, rules: str) -> CoverageOutcome:
    """Run a campaign of its own chains, as `metalforge scan` would, on one core or a GPU."""
    one = int(case.substrate == "cpu")  # a GPU runs as many chains at a time as keep it busy
    spec = CampaignSpec(
        name="coverage",
        seed=seed,
        theory=Lattice(volumes=(case.dims,), beta_min=case.beta[0], beta_max=case.beta[1]),
        budget=Budget(trajectories=case.trajectories, target_error=case.target),
        running=Running(deterministic=True, producers=one, checkpoint_s=1e9, substrate=case.substrate),
        # What the network says of a chain decides nothing here.
        screening=Screening(device="software", every=1000),
    )
    with TemporaryDirectory() as folder, Campaign.open(spec, Path(folder)) as campaign:
        state = campaign.run()
    return _outcome(case, state, rules)


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


FILE = "coverage.jsonl"
SHARD_S = 2400.0
"""Longest time of a shard: no campaign is begun that might end later."""
FAR = 4.0
"""Pulls beyond this are called wrong: a Gaussian gives 1 in 16,000."""
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
    file = OutcomeFile(settings, FILE, CoverageOutcome, lambda one: (one.case, one.seed))
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


def pulls_of(case: Case, outcomes: Sequence[CoverageOutcome]) -> tuple[np.ndarray, np.ndarray]:
    """Return (beta_c - truth) / error and beta_c - truth of the established campaigns of a case."""
    quoted = [(o.beta_c, o.error) for o in outcomes if o.established and o.beta_c is not None and o.error]
    value, error = np.array(quoted, dtype=np.float64).reshape(-1, 2).T
    if case.known is not None:
        off = value - case.known[0]
        return off / np.hypot(error, case.known[1]), off
    return pulls_among(value, error)


def pulls_among(value: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far each value is from the mean of the others, in errors of both and as it is; none for too few."""
    if value.size < 3:
        return np.empty(0), np.empty(0)
    weight = error**-2.0
    others = weight.sum() - weight
    off = value - ((weight * value).sum() - weight * value) / others
    return off / np.sqrt(error**2 + 1 / others), off


def _result(cases: Sequence[Case], outcomes: Sequence[CoverageOutcome]) -> Result:
    rows, checks = [], []
    head = (
        "case, campaigns, established, within 1 error, within 2 errors, quoted / true error, bias / error, beyond 4, "
        "updates"
    )
    table: list[tuple[str, ...]] = [tuple(head.split(", "))]
    exact: list[np.ndarray] = []
    for case in cases:
        mine = [outcome for outcome in outcomes if outcome.case == case.name]
        if not mine:
            continue
        pulls, off = pulls_of(case, mine)
        table.append(_line(case, mine, pulls, off))
        rows += list(_rows(case, mine, pulls))
        if case.model is not None:
            exact.append(pulls)
        far = int(np.sum(np.abs(pulls) > FAR))
        if case.known is not None and pulls.size >= FEW:
            mean, error = _bias(pulls)
            asked = f"{case.name}: bias below {MOST_BIAS:g} of the error, within its own two errors"
            checks.append((asked, f"{mean:+.2f} +- {error:.2f}", abs(mean) < MOST_BIAS + 2 * error))
        if case.has_peak:
            checks.append((f"{case.name}: none established and wrong by more than {FAR:g} errors", str(far), far == 0))
        else:
            said = sum(outcome.established for outcome in mine)
            checks.append((f"{case.name}: none established", str(said), said == 0))
    if exact:
        pulls = np.concatenate(exact)
        one, two = (float(np.mean(np.abs(pulls) < n)) for n in (1, 2))
        asked = f"exact models: {ONE[0]} to {ONE[1]} within one error"
        checks.append((asked, share_within(pulls, 1), ONE[0] <= one <= ONE[1]))
        checks.append((f"exact models: at least {TWO} within two errors", share_within(pulls, 2), two >= TWO))
    return Result.of(rows, table, _words(cases, outcomes), checks)


def _bias(pulls: np.ndarray) -> tuple[float, float]:
    """Return the mean of pulls and its standard error."""
    return float(pulls.mean()), float(pulls.std(ddof=1) / np.sqrt(pulls.size))


def _line(case: Case, mine: Sequence[CoverageOutcome], pulls: np.ndarray, off: np.ndarray) -> tuple[str, ...]:
    established = [o for o in mine if o.established]
    quoted = np.array([o.error for o in established if o.error])
    true = float(np.sqrt(np.mean(off**2))) if off.size > 1 else float("nan")
    return (
        mine[0].case,
        str(len(mine)),
        _share(len(established), len(mine)),
        share_within(pulls, 1),
        share_within(pulls, 2),
        f"{np.sqrt(np.mean(quoted**2)) / true:.2f}" if off.size > 1 else "-",
        "{:+.2f} +- {:.2f}".format(*_bias(pulls)) if case.known is not None and pulls.size > 1 else "-",
        str(int(np.sum(np.abs(pulls) > FAR))),
        f"{np.mean([o.updates for o in mine]):.0f}",
    )


def _rows(case: Case, mine: Sequence[CoverageOutcome], pulls: np.ndarray) -> Iterator[ResultRow]:
    shares = [("established", sum(o.established for o in mine), len(mine), 1.0 if case.has_peak else 0.0)]
    if pulls.size:
        for sigma, gaussian in ((1, 0.6827), (2, 0.9545)):
            shares.append((f"within {sigma}", int(np.sum(np.abs(pulls) < sigma)), pulls.size, gaussian))
    for metric, count, n, reference in shares:
        yield row_of(case.name, case.ends, metric, wilson(count, n), reference, precision="f64")


def _words(cases: Sequence[Case], outcomes: Sequence[CoverageOutcome]) -> list[str]:
    missing = [outcome for outcome in outcomes if not outcome.established]
    lacks = Counter(name for outcome in missing for name in outcome.lacking)
    return words(
        "coverage.all",
        run=len(outcomes),
        planned=sum(case.campaigns for case in cases),
        missing=len(missing),
        lacks=", ".join(f"{name} {count}" for name, count in lacks.most_common()) or "nothing",
        versions=", ".join(sorted({outcome.rules for outcome in outcomes})),
    )


def share_within(pulls: np.ndarray, errors: float) -> str:
    """Return the share of pulls below so many errors."""
    return _share(int(np.sum(np.abs(pulls) < errors)), pulls.size) if pulls.size else "-"


def _share(count: int, n: int) -> str:
    return shown(wilson(count, n), ".2f")
