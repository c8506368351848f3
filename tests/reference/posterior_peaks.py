"""Where a Gaussian-process steerer takes the peak to be: the place and its error, from the paths of its posterior."""

from typing import NamedTuple

import numpy as np


class PosteriorPeak(NamedTuple):
    """Median and half of the central 68 %."""

    coordinate: float
    error: float


def peak_of(steerer):
    """Return the posterior of the peak."""
    low, middle, high = np.quantile(steerer._at(steerer._curves([]).peaks()), [0.16, 0.5, 0.84])
    return PosteriorPeak(float(middle), float(high - low) / 2)
