"""Virtual time and modelled energy: what a device profile says the calls made so far would have taken.

Time stands still between calls and never looks at the wall: the same calls give the same seconds and joules on every
machine.
"""

import threading
from collections import Counter

from metalforge.core.quantities import Modelled

from .device import Statistics

__all__ = ["Ledger"]


class Ledger:
    """The books of one device."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
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

    def statistics(self) -> Statistics:
        """Return all counts with modelled seconds and joules."""
        with self._lock:
            return Statistics(
                **self._counts,
                busy=Modelled(value=self._seconds, unit="s", profile=self._profile),
                energy=Modelled(value=self._joules, unit="J", profile=self._profile),
            )
