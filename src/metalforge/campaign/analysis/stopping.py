r"""When a target error is reached: from all looks at a campaign, not from the luckiest.

A bootstrap error scatters by some percent from look to look. Whoever stops at the first look whose error is below the
target selects one that came out too small; on an exact model quoted errors were then 0.66 to 0.82 of the true ones. The
error that decides is therefore a fit through all looks i,

    sigma = a n^(-1/2),     ln a = sum_i w_i (ln sigma_i + ln(n_i) / 2) / sum_i w_i,     w_i = n_i,

n_i the effective samples that carried the peak then: later looks hold what earlier ones held, and more. The error of
the last look, which is the one that is quoted, must be below the target as well, and all evidence must hold at two
looks in a row.
"""

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

IN_A_ROW = 2
"""Looks in a row at which all evidence must hold."""


class PrecisionLook(NamedTuple):
    """What was known of a number at one moment, after so many updates of all chains; without a peak no error."""

    error: float | None
    effective: float
    established: bool
    trajectories: int = 0


def fitted_error(looks: Sequence[PrecisionLook]) -> float | None:
    """Return the error at the last look by the fit through all looks that located the peak; None without any."""
    located = [(look.error, look.effective) for look in looks if look.error and look.effective > 0]
    if not located or looks[-1].error is None:
        return None
    weight = sum(n for _, n in located)
    log_a = sum(n * (log(error) + log(n) / 2) for error, n in located) / weight
    return exp(log_a) / sqrt(located[-1][1])


def target_reached(looks: Sequence[PrecisionLook], target: float) -> bool:
    """Return whether the campaign may end: evidence at the last looks, and fitted and last error below the target."""
    if len(looks) < IN_A_ROW or not all(look.established for look in looks[-IN_A_ROW:]):
        return False
    fitted, last = fitted_error(looks), looks[-1].error
    return fitted is not None and last is not None and max(fitted, last) <= target
