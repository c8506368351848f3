r"""What is measured of heads, as records: scores on held-out chains, and what an early stop of warm-up costs.

Chains of one coupling share its physics: what a rule does at another coupling is learnt from other couplings, not from
more chains of the same. So intervals draw couplings again, with all their chains. A bootstrap over n = 5 draws is too
narrow by sqrt((n - 1) / n) and by the difference between Student's and the normal distribution; the percentiles

    Phi(-+ sqrt(n / (n - 1)) t_(0.975, n - 1))

put both back (T. Hesterberg, The American Statistician 69 (2015) 371, "expanded percentile interval"). With five
couplings they are nearly the least and the largest of the five.
"""

from collections.abc import Sequence
from math import ceil, sqrt

import msgspec
import numpy as np
from scipy.stats import norm, t

from metalforge.core.errors import SpecError

RESAMPLES = 20_000
SEEN = 3.29
"""Errors that a bias must be away from zero: 1.645 to be called one (5 %, one side) and 1.645 more to be seen in 95 %
of all studies."""


class CouplingInterval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} ({self.low:+.2f} .. {self.high:+.2f})"


def over_couplings(values: Sequence[float]) -> CouplingInterval:
    """Return the mean of one value per coupling, with the interval of drawing couplings again."""
    n = len(values)
    if n < 2:
        raise SpecError(f"an interval over couplings needs at least two. Got {n}")
    found = np.asarray(values, np.float64)
    drawn = found[np.random.default_rng(15).integers(n, size=(RESAMPLES, n))].mean(axis=1)
    beyond = float(norm.cdf(-sqrt(n / (n - 1)) * t.ppf(0.975, n - 1)))
    low, high = np.quantile(drawn, [beyond, 1 - beyond])
    return CouplingInterval(value=float(found.mean()), low=float(low), high=float(high))


def chains_to_see(bias: float) -> int:
    """Return how many chains are needed to see a bias, in errors of one measurement, in 95 % of all studies.

    The mean over n chains has the error 1 / sqrt(n) of a measurement's: n = (3.29 / bias)^2.
    """
    return ceil((SEEN / bias) ** 2)


def least_seen(variance: float) -> float:
    """Return the bias that is seen in 95 % of all studies, all in errors of a measurement: `variance` of the mean."""
    return SEEN * sqrt(variance)


class HeadScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One head on one route: its metric with a 95 % interval, and what it adds to the strongest baseline."""

    name: str
    metric: str
    value: float
    low: float
    high: float
    baseline: float
    baseline_name: str
    skill: float
    trusted: bool
    route: str


class StopRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: share of warm-up trajectories saved, share of chains stopped before their label, and bounds of bias.

    The bounds are the largest over couplings, in errors of a standard measurement; `worst` names where. `one_start` is
    the largest bias of hot or of cold chains alone, without a margin. `left_plaquette` and `left_polyakov` are what is
    left of the start, signed by it and averaged over couplings, with an interval that draws couplings again; records of
    earlier studies have none.
    """

    rule: str
    saved: float
    premature: float
    bias_plaquette: float
    bias_polyakov: float
    worst: str
    one_start: float
    unbiased: bool
    left_plaquette: CouplingInterval | None = None
    left_polyakov: CouplingInterval | None = None


class StopStudy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, and every rule."""

    betas: tuple[float, ...]
    dims: tuple[int, int, int, int]
    chains: int
    """At each coupling, half of them from hot."""
    fixed: int
    measured: int
    sure: float
    in_a_row: int
    factor: float
    """The head's rule: this many times the trajectories until it was sure; chosen on training chains."""
    rules: tuple[StopRule, ...]


class HeadsEvaluation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `conductor evaluate --json` prints."""

    heads: tuple[HeadScore, ...]
    thermalisation_stop: StopStudy
