"""The way into equilibrium: a bath of Langevin dynamics, which ends by a rule that is written down.

The warm-up lasts at least as long as it was asked for. Then the mean potential energy of its third quarter is held
against that of its last: where they differ by more than three errors, another quarter follows, to at most four times
the length that was asked for. What follows is NVE with nothing tuned.
"""

import math
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.statistics import gamma_method

FRICTION = 1.0
"""Of the bath, in omega_p."""
AGREEMENT = 3.0
"""Errors that two quarters may differ by."""
LONGEST = 4
"""Times the length that was asked for."""


class WarmupEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a warm-up ended: after which time, why, and by how many errors its last two quarters differed."""

    time: float
    reason: Literal["steady", "longest", "none asked for"]
    deviation: float | None


def judge(potential: NDArray[np.float64], time: float, asked: float) -> WarmupEnd | None:
    """Return how a warm-up ends that has these energies so far, or None where it goes on."""
    if asked == 0:
        return WarmupEnd(time=0.0, reason="none asked for", deviation=None)
    if time < asked * (1 - 1e-9):
        return None
    quarter = len(potential) // 4
    deviation = None
    if quarter >= 20:
        deviation = restlessness(potential)
        if deviation <= AGREEMENT:
            return WarmupEnd(time=time, reason="steady", deviation=deviation)
    if time >= LONGEST * asked * (1 - 1e-9) or quarter < 20:
        return WarmupEnd(time=time, reason="longest", deviation=deviation)
    return None


def restlessness(potential: NDArray[np.float64]) -> float:
    """Return by how many errors the mean energies of the third and the last quarter differ."""
    quarter = len(potential) // 4
    one, two = (gamma_method(part) for part in (potential[-2 * quarter : -quarter], potential[-quarter:]))
    return abs(one.mean - two.mean) / max(math.hypot(one.error, two.error), 1e-300)


def looks_at(time: float, asked: float, border: float) -> bool:
    """Return whether the warm-up is judged at this border: when it is as long as asked, and each quarter later."""
    quarters = 4 * (time - asked) / asked + 1e-9
    return quarters >= 0 and math.floor(quarters) > math.floor(quarters - 4 * border / asked)
