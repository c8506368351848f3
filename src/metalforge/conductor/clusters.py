r"""Intervals for what was measured at a few couplings, and the number of chains that a bias of a given size needs.

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

__all__ = ["CouplingInterval", "chains_to_see", "least_seen", "over_couplings"]

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
