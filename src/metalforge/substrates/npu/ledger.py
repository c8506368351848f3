"""Virtual time and modelled energy: what a device profile says the calls made so far would have taken.

The clock stands still between calls and never looks at the wall: the same calls give the same seconds and joules on
every machine.
"""

import threading
from collections import Counter

import numpy as np

from metalforge.core import Modelled

from .device import Spent, Statistics


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

    def advance_by_turns(self, seconds: list[float], times: int) -> None:
        """Let time pass so many times, by these pieces in turn."""
        with self._lock:
            self._now = _added(self._now, seconds, times)


class Ledger:
    """The books of one device, which are an `EnergyMeter`, too."""

    def __init__(self, profile: str, clock: VirtualClock) -> None:
        self.name = f"ledger:{profile}"
        self._profile = profile
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds = self._joules = 0.0
        self._by_slot: dict[str, tuple[float, float]] = {}

    def enter(self, seconds: float = 0.0, joules: float = 0.0, slot: str = "", **counts: int) -> None:
        """Enter what happened, by the names of `Statistics`. A failure costs nothing: no profile says what it would."""
        with self._lock:
            for name, count in counts.items():  # every call comes by here: `Counter.update` is five times slower
                self._counts[name] += count
            self._seconds += seconds
            self._joules += joules
            self._charge(slot, seconds, joules)
            self._clock.advance(seconds)

    def enter_calls(
        self,
        seconds: list[float],
        joules: list[float],
        calls: int,
        inferences: int,
        charged: "list[tuple[str, float, float]]",
        rounds: int,
    ) -> None:
        """Enter calls at these seconds and joules by turns, so many inputs in all: the sums of `enter`, one by one.

        `charged` are the slots with what a round costs each of them.
        """
        with self._lock:
            counts = self._counts
            counts["calls"] += calls
            counts["inferences"] += inferences
            self._clock.advance_by_turns(seconds, calls)
            self._seconds, self._joules = _added(self._seconds, seconds, calls), _added(self._joules, joules, calls)
            for slot, one_s, one_j in charged:
                self._charge(slot, rounds * one_s, rounds * one_j)

    def _charge(self, slot: str, seconds: float, joules: float) -> None:
        before_s, before_j = self._by_slot.get(slot, (0.0, 0.0))
        self._by_slot[slot] = before_s + seconds, before_j + joules

    def statistics(self) -> Statistics:
        """Return all counts with modelled seconds and joules."""
        with self._lock:
            return Statistics(
                **self._counts,
                busy=Modelled(value=self._seconds, unit="s", profile=self._profile),
                energy=Modelled(value=self._joules, unit="J", profile=self._profile),
            )

    def spent(self) -> tuple[float, float]:
        """Return seconds and joules since the device was opened, as plain numbers."""
        with self._lock:
            return self._seconds, self._joules

    def spent_by(self, slot: str) -> Spent:
        """Return the seconds and joules of one slot since the device was opened."""
        with self._lock:
            seconds, joules = self._by_slot.get(slot, (0.0, 0.0))
        return Spent(
            Modelled(value=seconds, unit="s", profile=self._profile),
            Modelled(value=joules, unit="J", profile=self._profile),
        )

    def unavailable(self) -> None:
        """A model can always be read."""
        return

    def total(self) -> Modelled:
        """Return joules since the device was opened."""
        with self._lock:
            return Modelled(value=self._joules, unit="J", profile=self._profile)


def _added(start: float, terms: list[float], times: int) -> float:
    """Return start + so many terms, one after the other and again from the first: the bits of as many additions."""
    if times == len(terms):
        for term in terms:
            start += term
        return start
    return float(np.add.accumulate([start, *(terms * -(-times // len(terms)))[:times]])[-1])
