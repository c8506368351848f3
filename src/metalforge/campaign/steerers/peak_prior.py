r"""What was known of the peak before a system was measured, as a density over the range of a scan.

    p(x) = 0.9 N(x; mean, width) + 0.1,     x = coordinate over the range

The flat part keeps every place possible: where the data contradict the bell, nothing of it is left. It says where to
look first; no estimate and no evidence reads it.
"""

from functools import cached_property
from math import isfinite
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError

Reals = NDArray[np.float64]
SHARE = 0.9
"""Of the bell. One prior in ten may be wrong, and costs some visits then."""
LEAST_INSIDE = 0.05
"""Part of the bell that must lie within the range for it to be followed."""
FINEST = 1e-6
"""Least width of the bell, in units of the range: far below any distance at which two runs differ."""
_NODES = np.linspace(0.0, 1.0, 4001)


class PeakPrior:
    """A bell of this mean and width in x, over a flat floor."""

    def __init__(self, mean: float, width: float) -> None:
        if not (isfinite(mean) and isfinite(width) and width > 0):
            raise SpecError(
                f"`prior` must be a finite mean and a width > 0, both in the coordinate. Got {mean} and {width}"
            )
        self.mean, self.width = mean, max(width, FINEST)

    def density(self, x: Reals) -> Reals:
        """Return p(x)."""
        bell = np.exp(-0.5 * ((x - self.mean) / self.width) ** 2) / (np.sqrt(2 * np.pi) * self.width)
        return np.asarray(SHARE * bell + 1 - SHARE)

    @property
    def is_followed(self) -> bool:
        """Whether enough of the bell lies within the range: a peak that is expected elsewhere is none to look for."""
        bell = NormalDist(self.mean, self.width)
        return bell.cdf(1.0) - bell.cdf(0.0) > LEAST_INSIDE

    def drawn(self, peaks: Reals) -> NDArray[np.intp]:
        """Return which of equally likely peaks to keep, as many as there are: each as often as its density deserves.

        Even steps through the sum of the densities rather than draws, so that the same peaks give the same choice.
        """
        total = np.cumsum(self.density(peaks))
        steps = (np.arange(len(peaks)) + 0.5) / len(peaks) * total[-1]
        return np.asarray(np.searchsorted(total, steps), dtype=np.intp)

    def widened(self, by: float) -> "PeakPrior":
        """Return the prior of a peak that is looked at from so far away, on either side."""
        return PeakPrior(self.mean, float(np.hypot(self.width, by)))

    def share(self, x: Reals | float) -> Reals:
        """Return the part of the prior that lies below x."""
        nodes, below = self._cumulated
        return np.asarray(np.interp(x, nodes, below))

    def at(self, share: float) -> float:
        """Return the x below which this part of the prior lies."""
        nodes, below = self._cumulated
        return float(np.interp(share, below, nodes))

    @cached_property
    def _cumulated(self) -> tuple[Reals, Reals]:
        # Nodes beside the bell, too: it may be much narrower than the range.
        inner = np.clip(self.mean + self.width * (12 * _NODES - 6), 0.0, 1.0)
        nodes = np.unique(np.concatenate([_NODES, inner]))
        density = self.density(nodes)
        below = np.concatenate([[0.0], np.cumsum(np.diff(nodes) * (density[1:] + density[:-1]) / 2)])
        return nodes, below / below[-1]
