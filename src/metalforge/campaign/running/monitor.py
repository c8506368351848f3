r"""Whether a chain's warm-up may end: a classical criterion always, and the thermalisation head beside it.

The rule is MSER (K. P. White, Simulation 69 (1997) 323) on two series of the theory, such as the energy and the order
parameter: the cut that minimises the error of the mean of what is left. The warm-up ends at `safety` times the later of
the two cuts, never before `shortest`, and only when the last `IN_A_ROW` looks agree: whoever looks at a noisy series
often enough finds a moment at which it looks settled. Where the head is trusted and was trained on chains of this kind,
its word counts: it must have been sure for some updates in a row. Both are recorded, so that the head can be judged by
the rule and the rule by the head.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from metalforge.campaign.spec import WarmUpPolicy
from metalforge.campaign.store.records import BY_HEAD
from metalforge.statistics import mser

from .watch import THERMALISED

LOOK_EVERY = 10
"""Updates between two looks."""
IN_A_ROW = 3
"""Looks that must agree."""
FEWEST = 20
"""Updates below which MSER says nothing."""

HeadSays = Callable[[], tuple[bool, float] | None]
"""Whether the head has been sure for long enough, and its last probability; None where it has no word."""


class WarmUpVerdict(NamedTuple):
    """Whether the warm-up ends here, who says so and why; what the head and the rule said."""

    ends: bool
    by: str
    reason: str
    head: float | None = None
    rule: float | None = None
    trusted: bool | None = None


class Monitor:
    """Looks at warm-ups by one policy."""

    def __init__(self, policy: WarmUpPolicy, *, early: bool = True, head_trusted: bool = False) -> None:
        self.policy, self.early, self.head_trusted = policy, early, head_trusted

    def due(self, updates: int) -> bool:
        """Return whether a warm-up of so many updates (without cheap ones) is looked at."""
        beyond = updates - self.policy.shortest
        return self.early and beyond >= 0 and beyond % LOOK_EVERY == 0

    def look(self, energy: Sequence[float], order: Sequence[float], head: HeadSays | None = None) -> WarmUpVerdict:
        """Return the verdict on the series of a warm-up so far."""
        n = len(energy)
        cut = self._cut(energy, order)
        earlier = [n - k * LOOK_EVERY for k in range(IN_A_ROW)]
        rule = all(self._settled(self._cut(energy[:m], order[:m]), m) for m in earlier)
        said = None if head is None else head()
        sure, probability = (False, None) if said is None else said
        if said is not None and self.head_trusted:
            reason = f"probability {probability:.2f}; the rule beside it says {'yes' if rule else 'not yet'}"
            return WarmUpVerdict(sure, f"{BY_HEAD}{THERMALISED}", reason, probability, float(rule), True)
        reason = f"no MSER cut within {n} updates" if cut is None else f"MSER cuts at {cut} of {n} updates"
        trusted = None if said is None else False
        return WarmUpVerdict(rule, "rule:MSER", reason, probability, float(rule), trusted)

    def _cut(self, energy: Sequence[float], order: Sequence[float]) -> int | None:
        """Return the later of the two cuts; None where MSER finds none."""
        if len(energy) < FEWEST:
            return None
        cuts = [mser(np.asarray(series, np.float64)) for series in (energy, order)]
        return max(cut.start for cut in cuts) if all(cut.found for cut in cuts) else None

    def _settled(self, cut: int | None, updates: int) -> bool:
        return cut is not None and updates >= self.policy.safety * max(cut, 1)
