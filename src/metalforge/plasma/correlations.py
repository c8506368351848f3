"""How far particles go and how long they remember: MSD and VACF over many origins, in a state of bounded size.

Every few frames one is kept as an origin, the oldest making room; each frame is held against all of them. Sums are kept
in bins of time, of which two become one when there are too many, so that a jackknife over bins tells the error.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 32


class Correlations:
    """Mean squared displacement and velocity autocorrelation at multiples of the time between frames.

    `origins` frames are kept, one of `spacing`, so lags are 0 to origins * spacing - 1.
    """

    def __init__(self, particles: int, *, origins: int = 40, spacing: int = 5) -> None:
        self.spacing, self.lags = spacing, origins * spacing
        self.frames = 0
        self.bin_frames = spacing * 4
        """Frames of a bin."""
        self._origin = np.zeros((2, origins, particles, 3))
        self._sums = np.zeros((2, 2 * BINS, self.lags))
        self._counts = np.zeros((2 * BINS, self.lags))

    def add(self, position: Floats, velocity: Floats) -> None:
        """Take the next frame: positions as if the box had no borders."""
        frame, origins = self.frames, self._origin.shape[1]
        if frame % self.spacing == 0:
            self._origin[:, frame // self.spacing % origins] = position, velocity
        if frame // self.bin_frames == 2 * BINS:
            self._merge()
        at = frame // self.bin_frames
        latest = frame // self.spacing
        first = max(0, latest - origins + 1)
        for origin in range(first, latest + 1):
            lag = frame - origin * self.spacing
            if lag < self.lags:
                was, speed = self._origin[:, origin % origins]
                gone = (position - was).ravel()
                self._sums[0, at, lag] += gone @ gone
                self._sums[1, at, lag] += velocity.ravel() @ speed.ravel()
                self._counts[at, lag] += len(position)
        self.frames += 1

    def _merge(self) -> None:
        for array in (self._sums[0], self._sums[1], self._counts):
            array[:BINS] = array[0::2] + array[1::2]
            array[BINS:] = 0
        self.bin_frames *= 2

    @property
    def used(self) -> int:
        """Bins that hold something, whole or not."""
        return -(-self.frames // self.bin_frames)

    def binned(self) -> tuple[Floats, Floats, Floats]:
        """Return sums of displacement^2 and of v(0) v(t), and how many terms each has: (bins, lags) each."""
        n = self.used
        return self._sums[0, :n].copy(), self._sums[1, :n].copy(), self._counts[:n].copy()

    def means(self) -> tuple[Floats, Floats]:
        """Return MSD and VACF at every lag, not a number where there is none yet."""
        displacement, memory, counts = (array.sum(axis=0) for array in self.binned())
        with np.errstate(invalid="ignore"):
            return displacement / counts, memory / counts

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "origins": self._origin,
            "correlation_sums": self._sums,
            "correlation_counts": self._counts,
            "correlation_frames": np.array([self.frames, self.bin_frames, self.spacing], np.float64),
        }

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Correlations":
        """Return what a checkpoint kept."""
        origins, (frames, bin_frames, spacing) = state["origins"], state["correlation_frames"].astype(int).tolist()
        made = cls(origins.shape[2], origins=origins.shape[1], spacing=spacing)
        made.frames, made.bin_frames = frames, bin_frames
        made._origin[...], made._sums[...] = origins, state["correlation_sums"]
        made._counts[...] = state["correlation_counts"]
        return made
