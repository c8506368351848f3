r"""What the steering experiment found: outcomes of many campaigns as rows, a table, words, and what was asked.

    rmse^2 = mean over seeds of (beta_c - reference)^2 + sigma_ref^2

The reference comes from the whole tape, of which every draw is a part: the difference of the two then lacks the
reference's own variance (an efficient estimator's covariance with its subsample is its variance), which is put back.
For the same reason a draw is covered when (beta_c - reference)^2 <= sigma^2 - sigma_ref^2. A campaign in which `locate`
could not say gives the beta of its largest measured susceptibility, without an error: it counts in the rmse and is
counted apart.

Campaigns of different seeds share a tape of finite length: those that draw m rows near the peak of a tape that holds M
there are worth M / m independent ones, however many seeds are run, and the interval of the rmse is that of so many.

    trajectory_ratio = n / n_uniform(rmse),     rmse_uniform ~ a n^(-b) through uniform's levels, in logarithms

The interval of a ratio draws so many campaigns again of the cell and of every level of uniform. The levels of a range
read the same tape, so the interval of their mean averages the ends instead of combining them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from metalforge.conductor.trust import Standing

from .protocol import Check, Result, words
from .virtual_campaign import Tape, VirtualOutcome

GOAL = 0.6
"""Trajectories for equal error over those of an even scan that steering was asked to stay below."""
RESAMPLES = 2000
INTERVAL = (2.5, 97.5)


class Range(NamedTuple):
    """A range of beta to scan, its name, and the budgets it is scanned with, in updates."""

    name: str
    low: float
    high: float
    levels: tuple[int, ...]


class TapeReference(NamedTuple):
    """beta_c of the whole tape and its error, and how many rows the tape holds near it."""

    beta_c: float
    error: float
    near: float = float("inf")


class SteeringRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One steerer in one range at one budget; `low` .. `high` is the 95 % interval of the rmse over seeds.

    `trajectories` is the mean number of updates spent, warm-up included; `coverage` the share of located runs within
    one quoted error (a Gaussian error has 0.68).
    """

    steerer: str
    range: str
    level: int
    seeds: int
    trajectories: float
    rmse: float
    low: float
    high: float
    quoted_error: float
    coverage: float
    trajectory_ratio: float


class CellSummary(NamedTuple):
    """The figures of one cell before it is compared with uniform."""

    seeds: int
    trajectories: float
    rmse: float
    low: float
    high: float
    quoted_error: float
    within_one: float
    within_two: float
    unlocated: int
    chains: float
    bias: float
    independent: int
    drawn: NDArray[np.float64]
    """The rmse of `independent` campaigns, drawn again and again."""


def summarise(outcomes: Sequence[VirtualOutcome], reference: TapeReference, seed: int) -> CellSummary:
    """Return the figures of campaigns that differ in their seed only."""
    errors = np.array([outcome.beta_c - reference.beta_c for outcome in outcomes])
    quoted = np.array([np.nan if outcome.error is None else outcome.error for outcome in outcomes])
    located = np.isfinite(quoted)
    rng = np.random.default_rng([seed, len(outcomes)])
    drawn = max(float(np.mean([outcome.near for outcome in outcomes])), 1.0)
    independent = int(min(max(reference.near / drawn, 2.0), len(errors)))
    draws = rng.integers(len(errors), size=(RESAMPLES, independent))
    again = _rms(errors[draws], reference.error)
    low, high = np.percentile(again, INTERVAL)
    own = np.sqrt(np.maximum(quoted[located] ** 2 - reference.error**2, 0.0))
    return CellSummary(
        seeds=len(errors),
        trajectories=float(np.mean([outcome.spent for outcome in outcomes])),
        rmse=float(_rms(errors, reference.error)),
        low=float(low),
        high=float(high),
        quoted_error=float(np.sqrt(np.mean(quoted[located] ** 2))) if located.any() else float("nan"),
        within_one=float(np.mean(np.abs(errors[located]) <= own)) if located.any() else float("nan"),
        within_two=float(np.mean(np.abs(errors[located]) <= 2 * own)) if located.any() else float("nan"),
        unlocated=int(np.sum(~located)),
        chains=float(np.mean([outcome.chains for outcome in outcomes])),
        bias=float(np.mean(errors)),
        independent=independent,
        drawn=again,
    )


def _rms(errors: NDArray[np.float64], reference_error: float) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.mean(errors**2, axis=-1) + reference_error**2), dtype=np.float64)


def power_law(levels: Sequence[CellSummary]) -> tuple[float, float]:
    """Return (a, b) of rmse = a n^(-b) through the levels; b is 1/2 with one level only."""
    a, b = _laws(levels, np.array([[summary.rmse] for summary in levels]))
    return float(a[0]), float(b[0])


def _laws(levels: Sequence[CellSummary], rmse: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b for every column of rmse (levels, columns)."""
    n, y = np.log([summary.trajectories for summary in levels]), np.log(rmse)
    b = -np.polyfit(n, y, 1)[0] if len(levels) > 1 else np.full(y.shape[1], 0.5)
    # Statistics cannot do worse than stand still; a flat law would make every ratio nothing or infinite.
    b = np.maximum(b, 0.1)
    return np.exp(np.mean(y + b * n[:, None], axis=0)), b


def ratio_interval(found: CellSummary, uniform: Sequence[CellSummary]) -> tuple[float, float]:
    """Return the 95 % interval of a cell's trajectory ratio; `uniform` are the levels of the even scan in its range."""
    a, b = _laws(uniform, np.stack([level.drawn for level in uniform]))
    low, high = np.percentile(found.trajectories / (a / found.drawn) ** (1 / b), INTERVAL)
    return float(low), float(high)


def row_of(steerer: str, where: str, level: int, found: CellSummary, uniform: tuple[float, float]) -> SteeringRow:
    """Return the row of a cell, with uniform's law (a, b) to compare with."""
    a, b = uniform
    ratio = found.trajectories / (a / found.rmse) ** (1 / b)
    shared = {name: value for name, value in found._asdict().items() if name in SteeringRow.__struct_fields__}
    return SteeringRow(
        steerer=steerer, range=where, level=level, coverage=found.within_one, trajectory_ratio=ratio, **shared
    )


def mean_ratio(rows: Sequence[SteeringRow], steerer: str, where: str) -> float:
    """Return the geometric mean of a steerer's ratio over the levels of a range."""
    ratios = [row.trajectory_ratio for row in rows if row.steerer == steerer and row.range == where]
    return float(np.exp(np.mean(np.log(ratios))))


@dataclass(frozen=True, slots=True, eq=False)
class SteeringFindings:
    """The figures of every steerer (the first is what the conductor does), range and level, and of live campaigns."""

    names: Sequence[str]
    ranges: Sequence[Range]
    cells: dict[tuple[str, str, int], CellSummary]
    live: CellSummary
    references: dict[str, TapeReference]
    tape: Tape
    standing: Standing
    rows: list[SteeringRow] = field(default_factory=list)

    def result(self) -> Result:
        """Return rows, table, words and what was asked."""
        table = list(self._table())
        # This experiment's own rows: promised field by field.
        return Result.of(self.rows, table, self._words(), self._checks())  # type: ignore[arg-type]

    def _even(self, where: Range) -> list[CellSummary]:
        """Return the even scan's levels in a range."""
        return [self.cells["uniform", where.name, level] for level in where.levels]

    def _table(self) -> Iterator[tuple[str, ...]]:
        """Give the lines of the table, and keep their rows."""
        head = "range, budget, steerer, rmse, 95 %, quoted, in 1 and 2 sigma, not located, chains, independent, ratio"
        yield (*head.split(", "), "95 %")
        for where in self.ranges:
            for level in where.levels:
                for steerer in self.names:
                    yield self._line(steerer, where, level, self.cells[steerer, where.name, level])
            if where is self.ranges[0]:
                yield self._line(f"live: {self.names[0]}", where, where.levels[0], self.live)

    def _line(self, steerer: str, where: Range, level: int, cell: CellSummary) -> tuple[str, ...]:
        even = self._even(where)
        row = row_of(steerer, where.name, level, cell, power_law(even))
        self.rows.append(row)
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
            "{:.2f} .. {:.2f}".format(*ratio_interval(cell, even)),
        )

    def _mean_interval(self, steerer: str, where: Range) -> tuple[float, float]:
        """Return the interval of the mean ratio: levels read the same tape, so their ends are averaged."""
        even = self._even(where)
        ends = [ratio_interval(self.cells[steerer, where.name, level], even) for level in where.levels]
        low, high = np.exp(np.mean(np.log(ends), axis=0))
        return float(low), float(high)

    def _ratio(self, steerer: str, where: Range) -> str:
        low, high = self._mean_interval(steerer, where)
        return f"{steerer} {mean_ratio(self.rows, steerer, where.name):.2f} ({low:.2f} .. {high:.2f})"

    def _quoted_ratio(self, steerer: str, where: Range) -> str:
        """Return the geometric mean over levels of (quoted error / uniform's)^2: the ratio if errors fall as n^-1/2."""
        own, even = ([self.cells[s, where.name, n].quoted_error for n in where.levels] for s in (steerer, "uniform"))
        return f"{steerer} {np.exp(np.mean(2 * np.log(np.divide(own, even)))):.2f}"

    def _words(self) -> Iterator[str]:
        spec, updates = self.tape.spec, sum(len(rows) for rows in self.tape.rows)
        yield from words("steering.tape", dims="x".join(map(str, spec.dims)), betas=len(spec.betas), updates=updates)
        yield from words(f"steering.{'' if self.standing.trusted else 'un'}trusted", why=self.standing.why)
        others = [name for name in self.names if name != "uniform"]
        for where in self.ranges:
            yield from words(
                "steering.range",
                where=where,
                reference=self.references[where.name],
                ratios=", ".join(self._ratio(s, where) for s in others),
                quoted=", ".join(self._quoted_ratio(s, where) for s in others),
                b=power_law(self._even(where))[1],
            )
        cells = self.cells.values()
        yield from words(
            "steering.end",
            seeds=max(cell.seeds for cell in cells),
            least=min(cell.independent for cell in cells),
            unlocated=sum(cell.unlocated for cell in cells),
            campaigns=sum(cell.seeds for cell in cells),
        )

    def _checks(self) -> Iterator[Check]:
        ours, first = self.names[0], self.ranges[0]
        for where in self.ranges:
            ratio, (low, high) = mean_ratio(self.rows, ours, where.name), self._mean_interval(ours, where)
            yield f"conductor, {where.name}: ratio <= {GOAL}", f"{ratio:.2f}", ratio <= GOAL
            yield f"conductor, {where.name}: the whole interval <= {GOAL}", f"{low:.2f} .. {high:.2f}", high <= GOAL
        # n squared errors over the rmse^2 of the tape sum up to chi^2 with n degrees of freedom, 99 % of the time here.
        seeds = self.live.seeds
        low, high = np.sqrt(chi2.ppf([0.005, 0.995], seeds) / seeds)
        share = self.live.rmse / self.cells[ours, first.name, first.levels[0]].rmse
        asked = f"live rmse over that on tape within {low:.2f} .. {high:.2f}, 99 % for {seeds} seeds"
        yield asked, f"{share:.2f}", bool(low <= share <= high)
