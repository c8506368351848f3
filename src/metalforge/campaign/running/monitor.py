r"""Whether a chain's warm-up may end.

The rule is MSER (K. P. White, Simulation 69 (1997) 323) on two series of the theory, such as the energy and the order
parameter: the cut that minimises the error of the mean of what is left. The warm-up ends at `safety` times the later of
the two cuts, never before `shortest`, and only when the last `IN_A_ROW` looks agree: whoever looks at a noisy series
often enough finds a moment at which it looks settled.
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


class Monitor:
    """Looks at warm-ups by one policy."""

    def __init__(self, policy: WarmUpPolicy) -> None:
        self.policy = policy

    def due(self, updates: int) -> bool:
        """Return whether a warm-up of so many updates (without cheap ones) is looked at."""
        beyond = updates - self.policy.shortest
        return self.policy.early and beyond >= 0 and beyond % LOOK_EVERY == 0

    def look(self, energy: Sequence[float], order: Sequence[float]) -> WarmUpVerdict:
        """Return the verdict on the series of a warm-up so far."""
        n = len(energy)
        cut = self._cut(energy, order)
        earlier = [n - k * LOOK_EVERY for k in range(IN_A_ROW)]
        rule = all(self._settled(self._cut(energy[:m], order[:m]), m) for m in earlier)
        reason = f"no MSER cut within {n} updates" if cut is None else f"MSER cuts at {cut} of {n} updates"
        return WarmUpVerdict(rule, "rule:MSER", reason, float(rule))

    def _cut(self, energy: Sequence[float], order: Sequence[float]) -> int | None:
        """Return the later of the two cuts; None where MSER finds none."""
        if len(energy) < FEWEST:
            return None
        cuts = [mser(np.asarray(series, np.float64)) for series in (energy, order)]
        return max(cut.start for cut in cuts) if all(cut.found for cut in cuts) else None

    def _settled(self, cut: int | None, updates: int) -> bool:
        return cut is not None and updates >= self.policy.safety * max(cut, 1)
