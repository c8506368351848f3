"""`PointSeries`, what one chain measured at one value of the coordinate, the input of reweighting."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

System = tuple[int, ...]
Floats = NDArray[np.float64]


class PointSeries(NamedTuple):
    """The measured rows of one chain, after its warm-up: E, and the order parameter whose fluctuations are looked at.

    A configuration has the weight exp(-coordinate E) times what does not depend on the coordinate; chi is `volume`
    times the variance of the order parameter.
    """

    coordinate: float
    system: System
    energy: Floats
    order: Floats
    volume: int
    start: str = ""
    """Where the chain began, where that is known."""
    chain: str = ""
    """What the chain is called, where it has a name."""
    order_name: str = "the order parameter"
    """How `order` is called in sentences."""

    def up_to(self, rows: int | None) -> "PointSeries":
        """Return the first rows of it; None is all."""
        return self._replace(energy=self.energy[:rows], order=self.order[:rows])
