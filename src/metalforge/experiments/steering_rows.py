r"""Outcomes of many campaigns as rows: RMS error with its interval, the quoted error, its coverage, and the ratio.

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

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from .virtual_campaign import VirtualOutcome

__all__ = ["CellSummary", "SteeringRow", "TapeReference", "power_law", "ratio_interval", "row_of", "summarise"]

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)


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
