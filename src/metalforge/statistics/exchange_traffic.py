"""How the replicas of an exchange moved between the couplings that they swap."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class Traffic(NamedTuple):
    """How replicas moved: the share of swaps accepted between neighbours, and round trips from end to end and back."""

    rates: Floats
    round_trips: float
    updates: int

    @property
    def per_work(self) -> float:
        """Round trips per update of all replicas together."""
        return self.round_trips / max(self.updates * (self.rates.size + 1), 1)


def traffic(replicas: ArrayLike) -> Traffic:
    """Return how replicas moved, from an array (updates, couplings) of which replica made the row of a coupling."""
    who: Whole = np.asarray(replicas, np.int64)
    updates, couplings = who.shape
    moved = (who[1:, :-1] == who[:-1, 1:]) & (who[1:, 1:] == who[:-1, :-1])
    # A pair is tested after every other update, and which ones is in the step: the most that can be seen is half.
    rates = 2 * moved.mean(axis=0) if updates > 1 else np.zeros(couplings - 1)
    place = np.argsort(who, axis=1)  # of each replica, by its number
    ends = [track[(track == 0) | (track == couplings - 1)] for track in place.T]
    legs = sum(int(np.count_nonzero(track[1:] != track[:-1])) for track in ends)
    return Traffic(np.minimum(rates, 1.0), legs / 2, updates)
