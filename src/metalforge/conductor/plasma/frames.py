"""What a network sees of a plasma: sums over particles and how they have moved, every 0.2 / omega_p.

`Looks` makes the columns of a window from what an engine sampled; `PlasmaFrames` makes features of columns. Both take
blocks of any length, and how rows are cut changes nothing but roundings of running means. A frame knows the run up to
its own time. Features are in units of the temperature that was measured so far and of the density: a stress in
sqrt(N) kT / V, a current in sqrt(N kT / 2 m), a displacement in a. Neither Gamma nor kappa is an input.
"""

import math
from collections.abc import Mapping
from importlib.resources import files

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Doubles, FeatureSchema
from metalforge.plasma import CURRENTS, MASS, STRESSES, PlasmaSpec, WaveVectors, length_of, mode_powers

SCHEMA = msgspec.toml.decode(
    files("metalforge.conductor").joinpath("data/plasma_features.toml").read_bytes(), type=FeatureSchema
)
FRAME_TIME = 0.2
"""Between two frames, in 1 / omega_p."""
LAGS = (0.4, 1.6, 5.0, 14.0, 40.0)
WAVES = (1.0, 2.0, 3.2, 4.3)
"""Wave numbers a k at which the structure factor is looked at, as near as the box has them."""
OF_EACH, WAVE_EVERY = 4, 5
"""Wave vectors of a wave number, at most; and frames between two looks, in between the last one stands."""
ENERGIES = ("kinetic", "phi", "virial")
STRESS_COLUMNS = tuple(f"stress_{name}" for name in STRESSES)
LAG_COLUMNS = tuple(f"{what}_{lag:g}" for what in ("vacf", "msd") for lag in LAGS)
WAVE_COLUMNS = tuple(f"s_{k:g}" for k in WAVES)
COLUMNS = (*ENERGIES, *STRESS_COLUMNS, *CURRENTS, *LAG_COLUMNS, *WAVE_COLUMNS)
"""What a frame leaves in a corpus, in the plasma's own units; lags that are not known yet are not numbers."""
_STEPS = tuple(round(lag / FRAME_TIME) for lag in LAGS)
SETTLED = max(_STEPS)
"""Frames until all lags are known: heads are read from there on."""


class Looks:
    """The columns of frames, from samples and from each particle's place and speed; keeps the last `SETTLED` frames."""

    def __init__(self, spec: PlasmaSpec) -> None:
        self._length = spec.length
        self._waves = _waves(spec.length)
        self._shells = [self._waves.lengths == k for k in np.unique(self._waves.lengths)]
        self._places, self._speeds = (np.empty((0, spec.particles, 3)) for _ in range(2))
        self._frames, self._last = 0, np.zeros(len(WAVES))

    def take(self, samples: Mapping[str, Doubles], positions: Doubles, velocities: Doubles) -> Doubles:
        """Return the columns (COLUMNS, frames) of the next frames; samples are means over those of a frame."""
        frames = len(positions)
        found = np.full((len(COLUMNS), frames), np.nan)
        sums = (*ENERGIES, *STRESS_COLUMNS, *CURRENTS)
        for row, name in enumerate(sums):
            found[row] = samples[name].reshape(frames, -1).mean(axis=1)
        kept = len(self._places)
        places, speeds = np.concatenate([self._places, positions]), np.concatenate([self._speeds, velocities])
        particles = positions.shape[1]
        for i, lag in enumerate(_STEPS):
            first = max(kept, lag)
            if first < len(places):
                now, then = slice(first, len(places)), slice(first - lag, len(places) - lag)
                gone = places[now] - places[then]
                memory = np.einsum("tij,tij->t", speeds[now], speeds[then]) / particles
                found[len(sums) + i, first - kept :] = memory
                found[len(sums) + len(LAGS) + i, first - kept :] = np.einsum("tij,tij->t", gone, gone) / particles
        found[-len(WAVES) :] = self._structure(positions)
        self._places, self._speeds = places[-SETTLED:].copy(), speeds[-SETTLED:].copy()
        return found

    def _structure(self, positions: Doubles) -> Doubles:
        """Return S(k) of frames (WAVES, frames), looked at every few of them."""
        number = self._frames + np.arange(len(positions))
        self._frames += len(positions)
        looked = np.flatnonzero(number % WAVE_EVERY == 0)
        powers = mode_powers(positions[looked], self._length, self._waves)
        seen = np.array([self._last, *np.array([powers[:, shell].mean(axis=1) for shell in self._shells]).T])
        self._last = seen[-1]
        return seen[np.searchsorted(looked, np.arange(len(positions)), side="right")].T


def _waves(length: float) -> WaveVectors:
    """Return the wave vectors whose lengths are nearest to WAVES, in their order."""
    every = WaveVectors.up_to(WAVES[-1] + 2 * math.pi / length, length, of_each=OF_EACH)
    shells = np.unique(every.lengths)
    chosen = [shells[np.argmin(np.abs(shells - k))] for k in WAVES]
    if len(set(chosen)) < len(WAVES):  # a box of a few dozen particles
        chosen = list(shells[: len(WAVES)])
    keep = np.isin(every.lengths, chosen)
    return WaveVectors(every.integers[keep], every.lengths[keep])


class PlasmaFrames:
    """Features of frames as the network sees them; one for each run."""

    def __init__(self, particles: int) -> None:
        self._particles = particles
        self._frames, self._sums = 0, np.zeros(len(ENERGIES))

    def push(self, columns: NDArray[np.floating]) -> Doubles:
        """Return inputs (frames, features) of the next columns (COLUMNS, frames)."""
        given = dict(zip(COLUMNS, np.asarray(columns, np.float64), strict=True))
        energies = np.array([given[name] for name in ENERGIES])
        sums = self._sums[:, None] + np.cumsum(energies, axis=1)
        count = self._frames + np.arange(1, energies.shape[1] + 1)
        self._frames, self._sums = int(count[-1]), sums[:, -1]
        n, (kinetic, phi, virial) = self._particles, sums / count
        temperature = 2 * kinetic / (3 * n - 3)
        volume = length_of(n) ** 3
        root = math.sqrt(n)
        rows = [np.arcsinh(volume * given[name] / (temperature * root)) for name in STRESS_COLUMNS]
        rows += [
            (energies[0] - kinetic) / (root * temperature),
            (energies[1] - phi) / (root * temperature),
            (energies[2] - virial) / (3 * root * temperature),
        ]
        rows += [given[name] / np.sqrt(n * temperature / (2 * MASS)) for name in CURRENTS]
        rows += [given[name] * MASS / (3 * temperature) for name in LAG_COLUMNS[: len(LAGS)]]
        with np.errstate(divide="ignore"):
            rows += [np.log(given[name]) for name in LAG_COLUMNS[len(LAGS) :]]
        rows += [np.log1p(given[name]) for name in WAVE_COLUMNS]
        known = np.isfinite(given[LAG_COLUMNS[-1]])
        rows += [np.full(len(count), 2 * math.pi / length_of(n)), known.astype(np.float64)]
        seen = SCHEMA.scaled(np.array(rows).T)
        # A lag that is not known yet looks like the middle of its range; the flag says so.
        return np.where(np.isfinite(seen), seen, 0.0)
