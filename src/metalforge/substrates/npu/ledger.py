"""Virtual time and modelled energy: what a device profile says the calls made so far would have taken.

No wall clock is read: the same calls give the same seconds and joules on every machine.
"""

import threading
from collections import Counter

import numpy as np

from metalforge.core import Modelled

from .device import Spent, Statistics


class Ledger:
    """The books of one device."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
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

    def enter_calls(
        self,
        seconds: list[float],
        joules: list[float],
        calls: int,
        inferences: int,
        charged: list[tuple[str, float, float]],
        rounds: int,
    ) -> None:
        """Enter calls at these seconds and joules by turns, so many inputs in all: the sums of `enter`, one by one.

        `charged` are the slots with what a round costs each of them.
        """
        with self._lock:
            counts = self._counts
            counts["calls"] += calls
            counts["inferences"] += inferences
            self._seconds, self._joules = _added(self._seconds, seconds, calls), _added(self._joules, joules, calls)
            for slot, one_s, one_j in charged:
                self._charge(slot, rounds * one_s, rounds * one_j)

    def _charge(self, slot: str, seconds: float, joules: float) -> None:
        before_s, before_j = self._by_slot.get(slot, (0.0, 0.0))
        self._by_slot[slot] = before_s + seconds, before_j + joules

    def statistics(self) -> Statistics:
        """Return all counts with modelled seconds and joules."""
        with self._lock:
            busy, energy = self._modelled(self._seconds, self._joules)
            return Statistics(**self._counts, busy=busy, energy=energy)

    def spent(self) -> tuple[float, float]:
        """Return seconds and joules since the device was opened, as plain numbers."""
        with self._lock:
            return self._seconds, self._joules

    def spent_by(self, slot: str) -> Spent:
        """Return the seconds and joules of one slot since the device was opened."""
        with self._lock:
            return self._modelled(*self._by_slot.get(slot, (0.0, 0.0)))

    def _modelled(self, seconds: float, joules: float) -> Spent:
        return Spent(
            Modelled(value=seconds, unit="s", profile=self._profile),
            Modelled(value=joules, unit="J", profile=self._profile),
        )


def _added(start: float, terms: list[float], times: int) -> float:
    """Return start + so many terms, one after the other and again from the first: the bits of as many additions."""
    if times == len(terms):
        for term in terms:
            start += term
        return start
    return float(np.add.accumulate([start, *(terms * -(-times // len(terms)))[:times]])[-1])
