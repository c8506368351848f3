r"""Whether a chain's warm-up may end.

The rule is MSER (K. P. White, Simulation 69 (1997) 323) on two series of the theory, such as the energy and the order
parameter: the cut that minimises the error of the mean of what is left. The warm-up ends at `safety` times the later of
the two cuts, never before `shortest`, and only when the last `IN_A_ROW` looks agree: a noisy series that is tested
often enough looks settled at some moment.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metalforge.campaign.spec import WarmUpPolicy
from metalforge.statistics import mser

LOOK_EVERY = 10
"""Updates between two looks."""
IN_A_ROW = 3
"""Looks that must agree."""
FEWEST = 20
"""Updates below which MSER says nothing."""


class WarmUpVerdict(NamedTuple):
    """Whether the warm-up ends here, by which rule and why; `rule` is 1 where MSER agrees."""

    ends: bool
    by: str
    reason: str
    rule: float | None = None


def is_due(policy: WarmUpPolicy, updates: int) -> bool:
    """Return whether a warm-up of so many updates (without cheap ones) is looked at."""
    beyond = updates - policy.shortest
    return policy.early and beyond >= 0 and beyond % LOOK_EVERY == 0


def verdict_on(policy: WarmUpPolicy, energy: Sequence[float], order: Sequence[float]) -> WarmUpVerdict:
    """Return the verdict on the series of a warm-up so far."""
    n = len(energy)
    cuts = [_cut(energy[:m], order[:m]) for m in range(n, n - IN_A_ROW * LOOK_EVERY, -LOOK_EVERY)]
    reason = f"no MSER cut within {n} updates" if cuts[0] is None else f"MSER cuts at {cuts[0]} of {n} updates"
    agree = all(cut is not None and n - k * LOOK_EVERY >= policy.safety * max(cut, 1) for k, cut in enumerate(cuts))
    return WarmUpVerdict(agree, "rule:MSER", reason, float(agree))


def _cut(energy: Sequence[float], order: Sequence[float]) -> int | None:
    """Return the later of the two cuts; None where MSER finds none."""
    if len(energy) < FEWEST:
        return None
    cuts = [mser(np.asarray(series, np.float64)) for series in (energy, order)]
    return max(cut.start for cut in cuts) if all(cut.found for cut in cuts) else None
