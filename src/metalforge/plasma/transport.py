"""Diffusion and viscosity with errors, from what segments of trajectories leave behind.

A trajectory is cut into segments of equal time. Each leaves a few numbers (`TransportSegment`), of which every estimate
needs the means only: they can be written down one by one, put together in any order, and left out one by one for an
error.

- D_N, of N particles in a box, is the slope of the mean squared displacement, (1/6) dMSD/dt between two late lags; and
  the mean of (1/3) int_0^t <v(0) v(t')> dt' between the same lags, which is the same number from velocities.
- eta = (V/kT) int_0^infinity <P_xy(0) P_xy(t)> dt, the mean of five anisotropic components of the stress, whose own
  means are zero by symmetry: S(0) of their spectrum (`spectrum.py`).
- D = D_N + what borders and finite lags leave out, as viscous flow says (`left_out`): momentum takes about
  L^2 / (4 pi^2 (nu + D)) to go round a box, in a large one longer than the lags.

In units of a and omega_p, eta* = eta / (m n) with m n = 9/(4 pi).

Errors leave out one group of segments after another through everything that is computed of them (jackknife): whole runs
where there are many, since each has a temperature of its own. An error of the viscosity is at least that of the fit,
and goes on into D.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import SpecError
from metalforge.native import correlate
from metalforge.statistics import Value

from .observables import STRESSES
from .references import einstein_frequency
from .spec import DENSITY, MASS, PlasmaSpec
from .spectrum import plateau

Floats = NDArray[np.float64]
YEH_HUMMER = 2.837297
"""Of a cubic box: its Madelung constant."""
CUT = 3.0
"""Largest frequency of the stress that is fitted, in Einstein frequencies: beyond there is little of its spectrum."""
LATE, EARLY = 100.0, 0.4
"""The largest lag of displacements, or half a segment where that is less; the smallest as a part of it."""
MODES = np.delete(((np.indices((13, 13, 13)) - 6.0) ** 2).sum(axis=0).ravel(), 13**3 // 2)
"""n^2 of the modes of a box, without n = 0: those left out wait less than a lag."""
ORIGINS = 41
"""Frames that are kept to hold later ones against, unless told otherwise."""
MOST_GROUPS, FEWEST_GROUPS, MANY_RUNS = 40, 4, 8
"""Of a jackknife; and how many runs make groups of their own."""


class TransportSegment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a segment of a trajectory leaves for transport; or means over several of equal time, which suffice."""

    time: float
    segments: int = 1
    """That these are the means of."""
    temperature: float
    """kT."""
    diffusion_msd: float
    """(1/6) of the slope of displacements^2."""
    diffusion_vacf: float
    """(1/3) of the integral of the memory of velocities."""
    stress_power: tuple[float, ...]
    """V/2 |sum_t P(t) e^(i omega t)|^2 dt^2 / time, the mean of five components, at omega = 2 pi k / time."""


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """Transport coefficients at the coupling that was measured; errors are None where there are too few segments."""

    gamma_measured: Value
    diffusion: Value
    """D_N*, by displacements."""
    diffusion_vacf: Value
    """The same, by velocities."""
    diffusion_infinite: Value
    """D*, of an infinite box and after infinite time."""
    viscosity: Value
    """eta*."""
    runs: int
    segments: int
    segment_time: float
    terms: float
    """Terms of the series for the stress spectrum, on the mean over fits."""


class Correlations:
    """Mean squared displacement and velocity autocorrelation at multiples of the time between frames.

    Every `spacing` frames one is kept as an origin, the oldest of `origins` making room; each frame is held against all
    of them, so lags are 0 to origins * spacing. Sums are of `segment` frames each, so that they can be taken apart and
    put together for errors.
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


def stress_bins(kappa: float, time: float) -> int:
    """Return how many frequencies of the stress a segment keeps, zero included."""
    return max(4, round(CUT * einstein_frequency(kappa) * time / (2 * math.pi))) + 1


def stress_power(stress: Floats, spacing: float, volume: float, bins: int) -> Floats:
    """Return V/2 times the periodogram of stresses (components, samples), meant over components."""
    transform = np.fft.rfft(stress, axis=-1)[:, :bins]
    return np.asarray(volume / 2 * spacing / stress.shape[1] * (np.abs(transform) ** 2).mean(axis=0), np.float64)


def segment_of(
    spec: PlasmaSpec, series: dict[str, Floats], displacement: Floats, memory: Floats, counts: Floats
) -> TransportSegment:
    """Return what a segment leaves: its samples by name, and its sums of displacement^2 and v(0) v(t) at each lag."""
    frame, time = spec.frame_samples * spec.sample_time, len(series["kinetic"]) * spec.sample_time
    early, late = _lags(spec, time)
    if late >= len(counts) or counts[late] == 0:
        raise SpecError(f"a segment must be longer than its largest lag, {late * frame:g}/omega_p. Got {time:g}")
    gone, remembered = displacement[: late + 1] / counts[: late + 1], memory[: late + 1] / counts[: late + 1]
    integral = frame / 2 * np.concatenate([[0.0], np.cumsum(remembered[1:] + remembered[:-1])])
    over = integral[early : late + 1]
    stress = np.array([series[f"stress_{name}"] for name in STRESSES])
    power = stress_power(stress, spec.sample_time, spec.length**3, stress_bins(spec.kappa, time))
    return TransportSegment(
        time=time,
        temperature=float(2 * series["kinetic"].mean() / (3 * spec.particles - 3)),
        diffusion_msd=float((gone[late] - gone[early]) / (6 * frame * (late - early))),
        diffusion_vacf=float((over.sum() - (over[0] + over[-1]) / 2) / (late - early) / 3),
        stress_power=tuple(power.tolist()),
    )


def _lags(spec: PlasmaSpec, time: float) -> tuple[int, int]:
    """Return the lags between which a segment of this time takes the slope of its displacements, in frames."""
    frame = spec.frame_samples * spec.sample_time
    late = max(2, min(round(LATE / frame), round(time / 2 / frame)))
    return round(EARLY * late), late


def left_out(temperature: float, nu: float, diffusion: float, length: float, early: float, late: float) -> float:
    """Return D - D_N, where D_N is a slope of displacements between two lags in a periodic cube of side L.

    The momentum of a particle spreads by viscosity and pushes the particle on, which diffuses away from it: both count,
    g = nu + D with nu = eta / (m n). A box cuts the flow off, and at a lag t its modes k = 2 pi n / L have yet to push:

        D - D_N(t) = 2.837 kT / (6 pi m n g L) + (2/3) kT / (m n L^3) sum_k exp(-g k^2 t) / (g k^2)

    meant over the lags (M. H. Ernst, E. H. Hauge, J. M. J. van Leeuwen, Phys. Rev. Lett. 25 (1970) 1254). Where D << nu
    and after a long time that is I.-C. Yeh's and G. Hummer's (J. Phys. Chem. B 108 (2004) 15873). In plasmas D is as
    large as nu: at kappa 2, Gamma 31 boxes of 400 and 3,200 particles agree on D with g, and not with nu.
    """
    missing = 0.0
    for _ in range(4):  # D is in it
        g = nu + diffusion + missing
        decay = g * (2 * math.pi / length) ** 2 * MODES
        waits = (np.exp(-decay * early) - np.exp(-decay * late)) / (decay**2 * (late - early))
        border = YEH_HUMMER / (6 * math.pi * g * length)
        missing = temperature / (MASS * DENSITY) * (border + 2 / 3 / length**3 * float(waits.sum()))
    return missing


def merged(segments: Sequence[TransportSegment]) -> TransportSegment:
    """Return one record for several segments: that of a run, for a journal."""
    table, weight = _table(segments)
    temperature, by_msd, by_vacf, *power = (weight @ table / weight.sum()).tolist()
    return TransportSegment(
        time=segments[0].time,
        segments=int(weight.sum()),
        temperature=temperature,
        diffusion_msd=by_msd,
        diffusion_vacf=by_vacf,
        stress_power=tuple(power),
    )


def _table(segments: Sequence[TransportSegment]) -> tuple[Floats, Floats]:
    """Return a row of numbers for each record, and how many segments it is of."""
    if not segments:
        raise SpecError("transport needs a segment. Got none\nhint: a longer run")
    times = {(round(segment.time, 6), len(segment.stress_power)) for segment in segments}
    if len(times) > 1:
        raise SpecError(f"segments must have one length. Got {', '.join(f'{time:g}' for time, _ in sorted(times))}")
    rows = [(s.temperature, s.diffusion_msd, s.diffusion_vacf, *s.stress_power) for s in segments]
    return np.array(rows), np.array([s.segments for s in segments], np.float64)


def transport(spec: PlasmaSpec, runs: Sequence[Sequence[TransportSegment]]) -> Transport:
    """Return what the segments of one or more runs of a state point say, with errors."""
    runs = [run for run in runs if run]
    every = [segment for run in runs for segment in run]
    table, weight = _table(every)
    estimate = _Estimate(spec, every[0].time)
    value, fit_error, terms = estimate(table, weight)
    error = _jackknife(_groups(runs), lambda kept: estimate(table[kept], weight[kept])[0])
    errors = [None] * len(value) if error is None else error.tolist()
    gamma, by_msd, by_vacf, infinite, viscosity = (
        Value(mean=float(v), error=e) for v, e in zip(value, errors, strict=True)
    )
    eta_error = max(viscosity.error or 0.0, fit_error)
    if by_msd.error is not None and infinite.error is not None:
        # D - D_N goes as 1/(nu + D): the error of eta is in it, which a jackknife alone does not see.
        added = (infinite.mean - by_msd.mean) * eta_error / (viscosity.mean + infinite.mean)
        infinite = Value(mean=infinite.mean, error=max(infinite.error, math.hypot(by_msd.error, added)))
    return Transport(
        gamma_measured=gamma,
        diffusion=by_msd,
        diffusion_vacf=by_vacf,
        diffusion_infinite=infinite,
        viscosity=Value(mean=viscosity.mean, error=eta_error),
        runs=len(runs),
        segments=int(weight.sum()),
        segment_time=every[0].time,
        terms=terms,
    )


class _Estimate:
    """Everything that is computed of means over segments: (Gamma, D_N by MSD, D_N by VACF, D, eta)."""

    def __init__(self, spec: PlasmaSpec, time: float) -> None:
        self.length, self.time = spec.length, time
        self.early, self.late = (lag * spec.frame_samples * spec.sample_time for lag in _lags(spec, time))

    def __call__(self, table: Floats, weight: Floats) -> tuple[Floats, float, float]:
        temperature, by_msd, by_vacf, *power = (weight @ table / weight.sum()).tolist()
        found = plateau(np.array(power), len(STRESSES) * float(weight.sum()), 2 * math.pi / self.time, self.time)
        eta = math.exp(found.log) / temperature
        scaled = eta / (MASS * DENSITY)
        infinite = by_msd + left_out(temperature, scaled, by_msd, self.length, self.early, self.late)
        return np.array([1 / temperature, by_msd, by_vacf, infinite, scaled]), scaled * found.error, found.terms


def _groups(runs: Sequence[Sequence[TransportSegment]]) -> NDArray[np.int64]:
    """Return the group of each segment: its run, or a part of all time."""
    if len(runs) >= MANY_RUNS:
        return np.repeat(np.arange(len(runs)), [len(run) for run in runs])
    n = sum(len(run) for run in runs)
    return np.arange(n) * min(n, MOST_GROUPS) // n


def _jackknife(group: NDArray[np.int64], estimate: Callable[[NDArray[np.bool_]], Floats]) -> Floats | None:
    """Return the error of an estimate: of G groups, error^2 = (G - 1)/G sum (theta_i - mean theta)^2."""
    count = int(group[-1]) + 1
    if count < FEWEST_GROUPS:
        return None
    without = np.array([estimate(group != i) for i in range(count)])
    return np.asarray(np.sqrt((count - 1) / count * ((without - without.mean(axis=0)) ** 2).sum(axis=0)), np.float64)
