"""Virtual time and modelled energy: what a device profile says the calls made so far would have taken.

The clock stands still between calls and never looks at the wall: the same calls give the same seconds and joules on
every machine.
"""

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from metalforge.core.arrays import Doubles
from metalforge.core.quantities import Modelled

from .device import Statistics


class VirtualClock:
    """Seconds that pass only when a device spends them. Several devices may share one: they then take turns."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    @property
    def now(self) -> float:
        """Seconds since the clock was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if not seconds >= 0:
            raise ValueError(f"time runs forward: `seconds` must be at least 0. Got {seconds}")
        with self._lock:
            self._now += seconds

    def advance_by_turns(self, seconds: Doubles) -> None:
        """Let time pass, piece by piece."""
        with self._lock:
            self._now = _added(self._now, seconds)


class Ledger:
    """The books of one device, which are an `EnergyMeter`, too."""

    def __init__(self, profile: str, clock: VirtualClock) -> None:
        self.name = f"ledger:{profile}"
        self._profile = profile
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds = self._joules = 0.0

    def enter(self, seconds: float = 0.0, joules: float = 0.0, **counts: int) -> None:
        """Enter what happened, by the names of `Statistics`. A failure costs nothing: no profile says what it would."""
        with self._lock:
            for name, count in counts.items():  # every call comes by here: `Counter.update` is five times slower
                self._counts[name] += count
            self._seconds += seconds
            self._joules += joules
            self._clock.advance(seconds)

    def enter_calls(self, prices: Sequence[tuple[float, float]], calls: int, rows: int) -> None:
        """Enter calls of `rows` inputs each, at these (seconds, joules) by turns: the sums of `enter`, call by call."""
        with self._lock:
            self._counts["calls"] += calls
            self._counts["inferences"] += calls * rows
            if calls == 1:
                seconds, joules = prices[0]
                self._seconds += seconds
                self._joules += joules
                self._clock.advance(seconds)
                return
            by_turns = np.resize(np.array(prices), (calls, 2))
            self._seconds, self._joules = _added(self._seconds, by_turns[:, 0]), _added(self._joules, by_turns[:, 1])
            self._clock.advance_by_turns(by_turns[:, 0])

    def statistics(self) -> Statistics:
        """Return all counts with modelled seconds and joules."""
        with self._lock:
            return Statistics(
                **self._counts,
                busy=Modelled(value=self._seconds, unit="s", profile=self._profile),
                energy=Modelled(value=self._joules, unit="J", profile=self._profile),
            )

    def unavailable(self) -> None:
        """A model can always be read."""
        return

    def total(self) -> Modelled:
        """Return joules since the device was opened."""
        with self._lock:
            return Modelled(value=self._joules, unit="J", profile=self._profile)


def _added(start: float, terms: Doubles) -> float:
    """Return start + the terms, one after the other: the bits of as many single additions."""
    return float(np.add.accumulate(np.concatenate([[start], terms]))[-1])
