"""What the steering experiment found: a line for every steerer, range and budget, in words, and what was asked."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from scipy.stats import chi2

from .protocol import Check, Result
from .steering_plan import Range, SteeringPlan, standing
from .steering_rows import CellSummary, SteeringRow, TapeReference, power_law, ratio_interval, row_of
from .tape import Tape

__all__ = ["GOAL", "Cells", "mean_ratio", "result_of"]

GOAL = 0.6
"""Trajectories for equal error over those of an even scan that steering was asked to stay below."""
Cells: TypeAlias = dict[tuple[str, str, int], CellSummary]
"""Figures by steerer, range and level."""


def result_of(
    plan: SteeringPlan,
    names: Sequence[str],
    found: Cells,
    live: CellSummary,
    references: dict[str, TapeReference],
    tape: Tape,
) -> Result:
    """Return rows, table, words and what was asked; the first of `names` is what the conductor does."""
    rows: list[SteeringRow] = []
    head = "range, budget, steerer, rmse, 95 %, quoted, in 1 and 2 sigma, not located, chains, independent, ratio, 95 %"
    table: list[tuple[str, ...]] = [tuple(head.split(", "))]

    def add(steerer: str, where: Range, level: int, cell: CellSummary) -> None:
        even = _even(found, where)
        row = row_of(steerer, where.name, level, cell, power_law(even))
        rows.append(row)
        table.append(_line(row, cell, ratio_interval(cell, even)))

    for where in plan.ranges:
        for level in where.levels:
            for steerer in names:
                add(steerer, where, level, found[steerer, where.name, level])
        if where is plan.ranges[0]:
            add(f"live: {names[0]}", where, where.levels[0], live)
    return Result.of(
        rows,  # type: ignore[arg-type]  # this experiment's own rows: promised field by field
        table,
        _words(plan, names, rows, found, references, tape),
        _checks(plan, names, rows, found, live),
    )


def _even(found: Cells, where: Range) -> list[CellSummary]:
    """Return the even scan's levels in a range."""
    return [found["uniform", where.name, level] for level in where.levels]


def _line(row: SteeringRow, cell: CellSummary, ratio: tuple[float, float]) -> tuple[str, ...]:
    return (
        row.range,
        str(row.level),
        row.steerer,
        f"{row.rmse:.5f}",
        f"{row.low:.5f} .. {row.high:.5f}",
        f"{row.quoted_error:.5f}",
        f"{cell.within_one:.2f}, {cell.within_two:.2f}",
        f"{cell.unlocated} of {cell.seeds}",
        f"{cell.chains:.1f}",
        str(cell.independent),
        f"{row.trajectory_ratio:.2f}",
        "{:.2f} .. {:.2f}".format(*ratio),
    )


def mean_ratio(rows: Sequence[SteeringRow], steerer: str, where: str) -> float:
    """Return the geometric mean of a steerer's ratio over the levels of a range."""
    ratios = [row.trajectory_ratio for row in rows if row.steerer == steerer and row.range == where]
    return float(np.exp(np.mean(np.log(ratios))))


def _mean_interval(found: Cells, steerer: str, where: Range) -> tuple[float, float]:
    """Return the interval of that mean: levels read the same tape, so their ends are averaged."""
    even = _even(found, where)
    ends = [ratio_interval(found[steerer, where.name, level], even) for level in where.levels]
    low, high = np.exp(np.mean(np.log(ends), axis=0))
    return float(low), float(high)


def _quoted_ratio(rows: Sequence[SteeringRow], steerer: str, where: str) -> float:
    """Return the geometric mean over levels of (quoted error / uniform's)^2: the ratio if errors fall as n^-1/2."""
    quoted = {(row.steerer, row.level): row.quoted_error for row in rows if row.range == where}
    levels = sorted({level for name, level in quoted if name == "uniform"})
    return float(np.exp(np.mean([2 * np.log(quoted[steerer, n] / quoted["uniform", n]) for n in levels])))


def _words(
    plan: SteeringPlan,
    names: Sequence[str],
    rows: Sequence[SteeringRow],
    found: Cells,
    references: dict[str, TapeReference],
    tape: Tape,
) -> Iterator[str]:
    dims = "x".join(map(str, tape.spec.dims))
    yield f"tape: {dims}, {len(tape.rows)} beta, {tape.total} measured updates of 1 heat bath + 4 overrelaxation sweeps"
    yield _who()
    for where in plan.ranges:
        reference = references[where.name]
        ratios = ", ".join(_ratio(rows, found, s, where) for s in names if s != "uniform")
        yield (
            f"{where.name}: reference beta_c = {reference.beta_c:.5f} +- {reference.error:.5f}; trajectories for equal "
            f"rmse over uniform's, mean over levels: {ratios}"
        )
        quoted = ", ".join(f"{s} {_quoted_ratio(rows, s, where.name):.2f}" for s in names if s != "uniform")
        yield f"{where.name}: the same from quoted errors, (quoted / uniform's)^2 at equal budget: {quoted}"
        b = power_law(_even(found, where))[1]
        yield f"{where.name}: uniform's rmse falls as n^-{b:.2f}; beyond its levels the ratio extrapolates"
    least = min(cell.independent for cell in found.values())
    yield (
        f"independent: how many independent campaigns the {plan.seeds} seeds of a cell are worth, since all of them "
        f"read the same tape (its rows near the peak over those that one campaign draws there); {least} at the fewest. "
        "Intervals are those of so many campaigns, not of all seeds; levels of a range share the tape too, so the "
        "interval of their mean averages the ends"
    )
    unlocated = sum(cell.unlocated for cell in found.values())
    yield (
        f"{unlocated} of {sum(cell.seeds for cell in found.values())} campaigns could not locate a peak; their beta_c "
        "is that of the largest measured susceptibility, in the rmse but not in the coverage"
    )


def _ratio(rows: Sequence[SteeringRow], found: Cells, steerer: str, where: Range) -> str:
    low, high = _mean_interval(found, steerer, where)
    return f"{steerer} {mean_ratio(rows, steerer, where.name):.2f} ({low:.2f} .. {high:.2f})"


def _who() -> str:
    """Return who steers when the conductor is asked to."""
    said = standing()
    if said.trusted:
        return f"the conductor's priority head is trusted ({said.why}) and steers"
    return (
        f"the conductor's priority head is not trusted ({said.why}): the Gaussian process decides in its place. The "
        "two are one algorithm, the same bits for the same rows, and stand in one row"
    )


def _checks(
    plan: SteeringPlan, names: Sequence[str], rows: Sequence[SteeringRow], found: Cells, live: CellSummary
) -> Iterator[Check]:
    for where in plan.ranges:
        ratio, (low, high) = mean_ratio(rows, names[0], where.name), _mean_interval(found, names[0], where)
        yield f"conductor, {where.name}: ratio <= {GOAL}", f"{ratio:.2f}", ratio <= GOAL
        yield f"conductor, {where.name}: the whole interval <= {GOAL}", f"{low:.2f} .. {high:.2f}", high <= GOAL
    where = plan.ranges[0]
    tape = found[names[0], where.name, where.levels[0]]
    # The sum of n squared errors over the rmse^2 of the tape is chi^2 with n degrees of freedom, 99 % of the time here.
    low, high = np.sqrt(chi2.ppf([0.005, 0.995], live.seeds) / live.seeds)
    share = live.rmse / tape.rmse
    yield (
        f"live rmse over that on tape within {low:.2f} .. {high:.2f}, 99 % for {live.seeds} seeds",
        f"{share:.2f}",
        bool(low <= share <= high),
    )
