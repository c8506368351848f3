"""The table of the steering experiment: outcomes of live campaigns -> work, errors and coverage of every arm.

Work to the target of a campaign that did not reach it is the work it ended with, so that means are lower bounds where
some did not; how many did is beside them. Ratios are of mean works, to the process alone; intervals draw campaigns
again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.reservoir.metrics import Interval, wilson

from .coverage import FAR, pulls_among, share_within
from .protocol import Check, Result, ResultRow, row_of, shown, words

Reals = NDArray[np.float64]
REFERENCE = "process"
OURS = "conductor"
GOAL, LARGEST = 0.8, 1.05
"""Of the process's work that the conductor should need on wide ranges and new volumes, and nowhere exceed."""
WIDE = ("5.0-6.5", "12^3x4")
"""Words in the names of cases that the goal is for."""
RESAMPLES = 2000


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


class ArmFigures(NamedTuple):
    """One arm of a case: its campaigns, their work and errors, and the pulls of what they established."""

    outcomes: Sequence[SteeringOutcome]
    off: Reals
    """Of the look within the fixed work from the case's truth, where it had a peak."""
    pulls: Reals

    @property
    def work(self) -> Reals:
        """Work of each campaign."""
        return np.array([one.work for one in self.outcomes])

    @property
    def quoted(self) -> Reals:
        """Errors quoted within the fixed work."""
        return np.array([one.fixed_error for one in self.outcomes if one.fixed_error is not None])


def result_of(cases: Mapping[str, Sequence[str]], outcomes: Sequence[SteeringOutcome]) -> Result:
    """Return rows, table, words and checks of the campaigns that there are; `cases` has the arms of each."""
    rows: list[ResultRow] = []
    checks: list[Check] = []
    head = "case, arm, campaigns, not located, rmse at fixed work, quoted there, work to the target, reached"
    table = [(*head.split(", "), f"work / {REFERENCE}", "within 1 error", "within 2 errors", f"beyond {FAR:g}")]
    for case, arms in cases.items():
        figures = arms_of([one for one in outcomes if one.case == case], arms)
        for arm, found in figures.items():
            ratio = ratio_of(found, figures.get(REFERENCE))
            table.append(_line(case, arm, found, ratio))
            rows += _rows(case, arm, found, ratio)
        checks += _checks(case, figures) if figures else ()
    return Result.of(rows, table, _words(outcomes), checks)


def arms_of(outcomes: Sequence[SteeringOutcome], arms: Sequence[str]) -> dict[str, ArmFigures]:
    """Return the figures of the arms of a case that have campaigns; its truth is the mean of what was established."""
    sure = [one for one in outcomes if one.established and one.beta_c is not None and one.error]
    value, error = np.array([(one.beta_c, one.error) for one in sure], dtype=np.float64).reshape(-1, 2).T
    located = [one.beta_c for one in outcomes if one.beta_c is not None]
    truth = float(np.average(value, weights=error**-2.0)) if sure else float(np.mean(located or [np.nan]))
    pulls = pulls_among(value, error)[0]
    by = {(one.arm, one.seed): pull for one, pull in zip(sure, pulls, strict=False)}
    found = {}
    for arm in arms:
        if mine := [one for one in outcomes if one.arm == arm]:
            off = np.array([one.fixed_beta_c - truth for one in mine if one.fixed_beta_c is not None])
            found[arm] = ArmFigures(mine, off, np.array([by[key] for one in mine if (key := (arm, one.seed)) in by]))
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


def _line(case: str, arm: str, found: ArmFigures, ratio: Interval | None) -> tuple[str, ...]:
    count = len(found.outcomes)
    reached = sum(one.reached for one in found.outcomes)
    return (
        case,
        arm,
        str(count),
        str(count - len(found.off)),
        f"{_rms(found.off):.5f}",
        f"{_rms(found.quoted):.5f}",
        f"{found.work.mean():.0f}",
        f"{reached} of {count}",
        "1" if arm == REFERENCE else "-" if ratio is None else shown(ratio, ".2f"),
        share_within(found.pulls, 1),
        share_within(found.pulls, 2),
        str(int(np.sum(np.abs(found.pulls) > FAR))),
    )


def _rows(case: str, arm: str, found: ArmFigures, ratio: Interval | None) -> Iterator[ResultRow]:
    if ratio is not None:
        yield row_of(case, arm, "work to the target", ratio, 1.0, precision="f64")
    yield row_of(case, arm, "reached", wilson(sum(o.reached for o in found.outcomes), len(found.outcomes)), 1.0)
    if found.pulls.size:
        for sigma, gaussian in ((1, 0.6827), (2, 0.9545)):
            share = wilson(int(np.sum(np.abs(found.pulls) < sigma)), found.pulls.size)
            yield row_of(case, arm, f"within {sigma}", share, gaussian, precision="f64", less=False)


def _checks(case: str, figures: Mapping[str, ArmFigures]) -> Iterator[Check]:
    far = sum(int(np.sum(np.abs(found.pulls) > FAR)) for found in figures.values())
    yield f"{case}: none established and wrong by more than {FAR:g} errors", str(far), far == 0
    if OURS not in figures or (ratio := ratio_of(figures[OURS], figures.get(REFERENCE))) is None:
        return
    if any(word in case for word in WIDE):
        yield f"{case}: {OURS} <= {GOAL} of the {REFERENCE}", shown(ratio, ".2f"), ratio.value <= GOAL
    yield f"{case}: {OURS} <= {LARGEST} of the {REFERENCE}", shown(ratio, ".2f"), ratio.value <= LARGEST


def _words(outcomes: Sequence[SteeringOutcome]) -> list[str]:
    said: dict[tuple[str, str, str], list[float]] = {}
    for one in outcomes:
        if one.prior is not None and one.arm in ("base", OURS):
            said.setdefault((one.case, one.arm, one.prior[0]), []).append(one.prior[2])
    return words(
        "steering.all",
        campaigns=len(outcomes),
        priors="; ".join(
            f"{case}, {arm}: {by} in {len(widths)}, width {np.mean(widths):.3g}"
            for (case, arm, by), widths in sorted(said.items())
        )
        or "none",
        where=", ".join(sorted({one.substrate for one in outcomes})) or "nowhere",
        versions=", ".join(sorted({one.rules for one in outcomes})) or "none",
    )


def _rms(values: Reals) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")
