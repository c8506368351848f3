"""How far particles go and how long they remember: MSD and VACF over many origins.

Every few frames one is kept as an origin, the oldest making room; each frame is held against all of them. Sums are kept
for each segment of time, so that they can be taken apart and put together for errors.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.native import correlate

Floats = NDArray[np.float64]
ORIGINS = 41
"""Frames that are kept, unless told otherwise."""


class Correlations:
    """Mean squared displacement and velocity autocorrelation at multiples of the time between frames.

    `origins` frames are kept, one of `spacing`, so lags are 0 to origins * spacing. Sums are of `segment` frames each.
    """

    def __init__(self, particles: int, *, segment: int = 400, origins: int = ORIGINS, spacing: int = 5) -> None:
        self.segment, self.spacing, self.lags = segment, spacing, (origins - 1) * spacing + 1
        self.frames = 0
        self._origin = np.zeros((2, origins, 3 * particles))
        self._sums = np.zeros((1, 2, self.lags))
        self._counts = np.zeros((1, self.lags))

    def add(self, positions: Floats, velocities: Floats) -> None:
        """Take the next frames (frames, n, 3): positions as if the box had no borders."""
        begin = 0
        while begin < len(positions):
            if self.frames and self.frames % self.segment == 0:
                self._sums = np.concatenate([self._sums, np.zeros((1, 2, self.lags))])
                self._counts = np.concatenate([self._counts, np.zeros((1, self.lags))])
            end = min(len(positions), begin + self.segment - self.frames % self.segment)
            correlate(
                self._origin,
                self._sums[-1],
                self._counts[-1],
                positions[begin:end],
                velocities[begin:end],
                first=self.frames,
                spacing=self.spacing,
            )
            self.frames += end - begin
            begin = end

    def segments(self) -> tuple[Floats, Floats, Floats]:
        """Return sums of displacement^2 and of v(0) v(t), and how many terms each has: (segments, lags) each.

        The last segment may be a part of one.
        """
        return self._sums[:, 0].copy(), self._sums[:, 1].copy(), self._counts.copy()

    def means(self) -> tuple[Floats, Floats]:
        """Return MSD and VACF at every lag, not a number where there is none yet."""
        displacement, memory, counts = (array.sum(axis=0) for array in self.segments())
        with np.errstate(invalid="ignore"):
            return displacement / counts, memory / counts

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        clock = np.array([self.frames, self.segment, self.spacing], np.float64)
        return {"origins": self._origin, "sums": self._sums, "counts": self._counts, "frames": clock}

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Correlations":
        """Return what a checkpoint kept."""
        frames, segment, spacing = state["frames"].astype(int).tolist()
        origins = state["origins"]
        made = cls(origins.shape[2] // 3, segment=segment, origins=origins.shape[1], spacing=spacing)
        made.frames, made._origin = frames, origins.copy()
        made._sums, made._counts = state["sums"].copy(), state["counts"].copy()
        return made
