"""Experiment coverage: how often a quoted error holds the truth, on campaigns that nobody tuned to.

Every campaign draws its own chains. On exactly solved models the truth is known. On lattices a campaign is held against
the mean of the *other* established ones of its case, weighted by their errors, which is independent of it and about
n^(-1/2) as uncertain; that is taken into its pull. The rules that decide whether a number is established were chosen
on other seeds and are not touched here.

All of it takes about two core-hours, so it comes in shards (`--shard 2/8`), each at most forty minutes, which add
their lines to one file. A campaign that is in the file is not run again, whoever ran it; the table is of all lines, and
`--shard table` runs nothing and prints it.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from metalforge import __version__
from metalforge.core.errors import SpecError
from metalforge.core.files import naming, opened
from metalforge.reservoir.metrics import Proportion, wilson

from .cache import cache_folder
from .coverage_cases import CASES, QUICK_CASES, Case, CoverageJob, CoverageOutcome, jobs_of, run_job
from .protocol import Progress, Result, ResultRow, Settings, experiment, row_of, shown

__all__ = ["pulls_of", "read_outcomes", "run"]

FILE = "coverage.jsonl"
SHARD_S = 2400.0
"""Longest time of a shard: no campaign is begun that might end later."""
TABLE = "table"
"""The shard that runs nothing."""
FAR = 4.0
"""Pulls beyond this are called wrong: a Gaussian gives 1 in 16,000."""
ONE, TWO = (0.63, 0.73), 0.94
"""What the shares within one and two errors should be on exact models."""


@experiment("coverage", "How often does the error that a campaign quotes hold the truth?")
def run(settings: Settings, progress: Progress) -> Result:
    """Run the campaigns of this shard that are not in the file, and return the table of all that are."""
    cases = QUICK_CASES if settings.quick else CASES
    outcomes = [] if settings.quick else read_outcomes(_file(settings))
    known = {(outcome.case, outcome.seed) for outcome in outcomes}
    jobs = [job for job in _shard(jobs_of(cases, settings.seed), settings.shard) if not _done(job, known)]
    began, longest = time.monotonic(), 0.0
    for number, job in enumerate(jobs):
        if not settings.quick and time.monotonic() - began + longest > SHARD_S:
            break
        progress(number, len(jobs), f"{job.case.name}, seeds {job.seeds[0]} to {job.seeds[-1]}")
        before = time.monotonic()
        found = run_job(job, __version__)
        longest = max(longest, time.monotonic() - before)
        if not settings.quick:
            _append(_file(settings), found)
        outcomes += found
    # Others may have added theirs meanwhile.
    return _result(cases, outcomes if settings.quick else read_outcomes(_file(settings)))


def read_outcomes(path: Path) -> list[CoverageOutcome]:
    """Return the campaigns in a file, none if it is not there; lines that a kill cut off are left out."""
    if not path.exists():
        return []
    with opened(path):
        lines = [line for line in path.read_bytes().split(b"\n") if line]
    outcomes: dict[tuple[str, int], CoverageOutcome] = {}
    for line in lines:
        try:
            outcome = msgspec.json.decode(line, type=CoverageOutcome)
        except msgspec.MsgspecError:
            continue
        outcomes[outcome.case, outcome.seed] = outcome
    if lines and not outcomes:
        raise SpecError(f"{path} is not a file of this experiment: none of its {len(lines)} lines is a campaign")
    return list(outcomes.values())


def _append(path: Path, outcomes: Sequence[CoverageOutcome]) -> None:
    """Add lines in one write: two shards may add to one file, and what a killed one left begins no line of ours."""
    with naming(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, b"\n" + b"\n".join(msgspec.json.encode(outcome) for outcome in outcomes) + b"\n")
        finally:
            os.close(file)


def _file(settings: Settings) -> Path:
    return Path(settings.file) if settings.file else cache_folder() / FILE


def _shard(jobs: list[CoverageJob], shard: str) -> list[CoverageJob]:
    """Return the jobs of a shard `i/n`; all for an empty one. Neighbours go to different shards: cases cost alike."""
    if not shard:
        return jobs
    if shard == TABLE:
        return []
    number, _, count = shard.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise SpecError(
            f"`shard` must be i/n with 1 <= i <= n, or {TABLE}. Got {shard}\nhint: --shard 1/4, then 2/4, and so on"
        )
    return jobs[int(number) - 1 :: int(count)]


def _done(job: CoverageJob, known: set[tuple[str, int]]) -> bool:
    return all((job.case.name, seed) in known for seed in job.seeds)


def pulls_of(case: Case, outcomes: Sequence[CoverageOutcome]) -> tuple[np.ndarray, np.ndarray]:
    """Return (beta_c - truth) / error and beta_c - truth of the established campaigns of a case."""
    quoted = [(o.beta_c, o.error) for o in outcomes if o.established and o.beta_c is not None and o.error]
    value, error = (np.array(column, dtype=np.float64) for column in zip(*quoted, strict=True)) if quoted else ([], [])
    value, error = np.asarray(value), np.asarray(error)
    if case.model is not None:
        off = value - case.model.peak()[0]
        return off / error, off
    if value.size < 3:
        return np.empty(0), np.empty(0)
    weight = error**-2.0
    others = weight.sum() - weight
    off = value - ((weight * value).sum() - weight * value) / others
    return off / np.sqrt(error**2 + 1 / others), off


def _result(cases: Sequence[Case], outcomes: Sequence[CoverageOutcome]) -> Result:
    rows, checks = [], []
    head = "case, campaigns, established, within 1 error, within 2 errors, quoted / true error, beyond 4, updates"
    table: list[tuple[str, ...]] = [tuple(head.split(", "))]
    exact: list[np.ndarray] = []
    for case in cases:
        mine = [outcome for outcome in outcomes if outcome.case == case.name]
        if not mine:
            continue
        pulls, off = pulls_of(case, mine)
        table.append(_line(mine, pulls, off))
        rows += list(_rows(case, mine, pulls))
        if case.model is not None:
            exact.append(pulls)
        far = int(np.sum(np.abs(pulls) > FAR))
        if case.has_peak:
            checks.append((f"{case.name}: none established and wrong by more than {FAR:g} errors", str(far), far == 0))
        else:
            said = sum(outcome.established for outcome in mine)
            checks.append((f"{case.name}: none established", str(said), said == 0))
    if exact:
        pulls = np.abs(np.concatenate(exact))
        one, two = wilson(int((pulls < 1).sum()), pulls.size), wilson(int((pulls < 2).sum()), pulls.size)
        checks += [
            (f"exact models: {ONE[0]} to {ONE[1]} within one error", _share(one), ONE[0] <= one.value <= ONE[1]),
            (f"exact models: at least {TWO} within two errors", _share(two), two.value >= TWO),
        ]
    return Result.of(rows, table, _words(cases, outcomes), checks)


def _line(mine: Sequence[CoverageOutcome], pulls: np.ndarray, off: np.ndarray) -> tuple[str, ...]:
    established = [o for o in mine if o.established]
    quoted = np.array([o.error for o in established if o.error])
    true = float(np.sqrt(np.mean(off**2))) if off.size > 1 else float("nan")
    return (
        mine[0].case,
        str(len(mine)),
        _share(wilson(len(established), len(mine))),
        _share(wilson(int(np.sum(np.abs(pulls) < 1)), pulls.size)) if pulls.size else "-",
        _share(wilson(int(np.sum(np.abs(pulls) < 2)), pulls.size)) if pulls.size else "-",
        f"{np.sqrt(np.mean(quoted**2)) / true:.2f}" if off.size > 1 else "-",
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


def _words(cases: Sequence[Case], outcomes: Sequence[CoverageOutcome]) -> Iterator[str]:
    planned = sum(case.campaigns for case in cases)
    yield f"{len(outcomes)} of the {planned} campaigns of the plan have been run"
    yield "shares have Wilson's 95 % interval; within: established campaigns only, which is what a user would quote"
    yield "on lattices the truth is the weighted mean of the case's other established campaigns, its error in the pull"
    missing = [outcome for outcome in outcomes if not outcome.established]
    lacks = Counter(name for outcome in missing for name in outcome.lacking)
    said = ", ".join(f"{name} {count}" for name, count in lacks.most_common())
    yield f"{len(missing)} of {len(outcomes)} campaigns are not established; they lack: {said or 'nothing'}"
    yield "rules of version " + ", ".join(sorted({outcome.rules for outcome in outcomes}))


def _share(share: Proportion) -> str:
    return shown(share, ".2f")
