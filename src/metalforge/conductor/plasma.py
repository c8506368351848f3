r"""Transport coefficients from the beginning of a plasma's run: a short stream goes in, ln D* and ln eta* come out.

A network sees sums over particles and how they have moved, every 0.2 / omega_p. `Looks` makes the columns of a window
from what an engine sampled; `PlasmaFrames` makes features of columns. Both take blocks of any length, and how rows are
cut changes nothing but roundings of running means. A frame knows the run up to its own time. Features are in units of
the temperature that was measured so far and of the density: a stress in sqrt(N) kT / V, a current in sqrt(N kT / 2 m),
a displacement in a. Neither Gamma nor kappa is an input.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b),      y = W_out [s; x] + b_out,      reading = mean of y

over the frames from which all lags are known. The readout is linear, so the mean of what it says is what it says of
the mean: it is a ridge from means over windows to labels of whole runs. It is drawn not to zero but to what is known
without learning, up to a constant:

    ln D* = ln MSD(40) + const,      ln eta* = ln MSD(0.4) - ln MSD(40) + const

displacements after a long time, and Stokes-Einstein, D* eta* Gamma = const, since MSD(t) = t^2 / Gamma at short times.
So a head is at worst about what it must beat. The penalty of each is chosen by leaving out whole state points; what was
said of those gives the head's error. `experiments/plasma_heads` trains and judges the heads.

Runs may end by the rule of the jackknife (`plasma/replicas.py`) with the head's reading of the window weighed in, for
D* and for eta* apart: 1 / error^2 = 1 / jackknife^2 + 1 / noise^2. Numbers of the run itself stay what they are; what
the head adds is said beside them. Runs that heads were not tested on, or that were resumed within their window, end by
the jackknife's rule alone, and `why_not` says why.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.conductor.shipped import FOLDER, shipped_weights
from metalforge.core import Doubles, FeatureSchema
from metalforge.plasma import (
    CURRENTS,
    MASS,
    SAMPLE_TIME,
    STRESSES,
    PlasmaRun,
    PlasmaSpec,
    Transport,
    Watch,
    WaveVectors,
    at_border,
    found_together,
    length_of,
    melting_gamma,
    mode_powers,
    said_enough,
)
from metalforge.reservoir import EsnWeights, collect
from metalforge.statistics import Value

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


LAYOUT = "plasma-2"
HEADS = ("transport_D", "transport_eta")
ROUTE = "f32-software"
YEH_HUMMER = 0.2101
"""(D* - D_N*) Gamma eta* L of a cubic box (I.-C. Yeh, G. Hummer, 2004)."""


class TransportScore(msgspec.Struct, frozen=True, kw_only=True):
    """One head in one task on one route."""

    task: str
    head: str
    route: str
    trusted: bool = False


class TestedPlasma(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs that heads were tested on: they act on runs like these."""

    __test__ = False

    kappa: tuple[float, float]
    ratio: tuple[float, float]
    """Of Gamma / Gamma_m."""
    particles: tuple[int, ...]
    window: float

    def lacks(self, kappa: float, ratio: float, particles: int) -> str | None:
        """Return what a run is that none of these was; None where it is like them."""
        if particles not in self.particles:
            return f"{', '.join(map(str, self.particles))} particles, not {particles}"
        if not self.kappa[0] - 1e-9 <= kappa <= self.kappa[1] + 1e-9:
            return f"kappa from {self.kappa[0]:g} to {self.kappa[1]:g}, not {kappa:g}"
        if not 0.9 * self.ratio[0] <= ratio <= 1.1 * self.ratio[1]:
            return f"Gamma/Gamma_m from {self.ratio[0]:g} to {self.ratio[1]:g}, not {ratio:.3g}"
        return None


class TransportStudy(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the heads, and on which runs they were measured."""

    scores: tuple[TransportScore, ...]
    left_out: tuple[float, float]
    """What heads were off on training state points that were left out."""
    tested_on: TestedPlasma


class TransportScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the two heads on held-out runs."""

    study: TransportStudy

    def trusted(self, head: str, route: str = ROUTE) -> bool:
        """Return whether a head has skill with its parameters hidden, on a route."""
        scores = self.study.scores
        return any(s.trusted for s in scores if (s.task, s.head, s.route) == ("T1", head, route))


@cache
def shipped_transport() -> TransportScores:
    """Return the scores of the heads that come with the package."""
    return msgspec.json.decode((FOLDER / f"{LAYOUT}.json").read_bytes(), type=TransportScores)


@cache
def taught_diffusion(found: Transport, length: float) -> float:
    """Return D* as heads are taught it: D_N* + 0.2101 / (Gamma eta* L), what a liquid would have without borders.

    It is a few percent above the D* that is quoted (`plasma.transport.left_out`), which is to be had of it.
    """
    return found.diffusion.mean + YEH_HUMMER / (found.gamma_measured.mean * found.viscosity.mean * length)


def mean_states(weights: EsnWeights, inputs: Sequence[Doubles]) -> Doubles:
    """Return the mean of [s; x] over the settled frames of each window, (windows, units + features)."""
    given = [np.asarray(one, weights.dtype) for one in inputs]
    pairs = collect(weights, given, washout=SETTLED, passthrough=True)
    return np.array([np.asarray(x, np.float64).mean(axis=0) for x, _ in pairs])


def said_of(weights: EsnWeights, inputs: Sequence[Doubles]) -> Doubles:
    """Return ln D* and ln eta* of windows, (windows, 2), in software."""
    _, w_out, out_bias = weights.head_readout()
    return np.asarray(mean_states(weights, inputs) @ w_out.T + out_bias, np.float64)


class WindowReader:
    """Reads the window of one run as it goes; `said` is what the heads say of it, once it is over."""

    def __init__(self, run: PlasmaRun, weights: EsnWeights, window: float) -> None:
        self._run, self._weights = run, weights
        self._frames = round(window / FRAME_TIME)
        self._looks, self._maker = Looks(run.spec), PlasmaFrames(run.spec.particles)
        self._inputs: list[Doubles] = []
        self.said: Doubles | None = None
        run.watch = Watch(window, self._take)

    def _take(self, samples: dict[str, Doubles], positions: Doubles, velocities: Doubles) -> None:
        # A frame is the last of the samples that it is the mean of.
        every = round(FRAME_TIME / self._run.spec.sample_time)
        columns = self._looks.take(samples, positions[every - 1 :: every], velocities[every - 1 :: every])
        self._inputs.append(self._maker.push(columns))
        if sum(map(len, self._inputs)) >= self._frames:
            self.said = said_of(self._weights, [np.concatenate(self._inputs)])[0]


class HeadStop:
    """Whether runs of one state point may end, by the jackknife with the heads' readings weighed in."""

    def __init__(
        self,
        runs: Sequence[PlasmaRun],
        target: float,
        weights: EsnWeights | None = None,
        scores: TransportScores | None = None,
    ) -> None:
        weights, scores = weights or shipped_weights(LAYOUT), scores or shipped_transport()
        self.target = target
        self._noise, window = scores.study.left_out, scores.study.tested_on.window
        self.why_not = _why_not(runs, scores)
        self._readers = [] if self.why_not else [WindowReader(run, weights, window) for run in runs]

    @property
    def readings(self) -> Doubles | None:
        """The mean of what heads say of all windows, ln D* and ln eta*; None while one of them is not over."""
        said = [reader.said for reader in self._readers]
        known = [one for one in said if one is not None]
        return np.mean(known, axis=0) if known and len(known) == len(said) else None

    def weighed(self, runs: Sequence[PlasmaRun]) -> tuple[Value, Value] | None:
        """Return D* and eta* with the readings weighed in; None without any."""
        readings = self.readings
        if readings is None:
            return None
        found = found_together(runs)
        made = []
        whole = found.diffusion_infinite
        said_of_both = readings[0] + math.log(whole.mean / taught_diffusion(found, runs[0].spec.length)), readings[1]
        for own, said, noise in zip((whole, found.viscosity), said_of_both, self._noise, strict=True):
            # Before there is a jackknife the viscosity has the error of its fit, and diffusion has none.
            error = math.inf if own.error is None or not math.isfinite(own.error) else own.error / own.mean
            weight = 1 / noise**2 + (0.0 if math.isinf(error) else 1 / error**2)
            log = (said / noise**2 + (0.0 if math.isinf(error) else math.log(own.mean) / error**2)) / weight
            made.append(Value(mean=math.exp(log), error=math.exp(log) / math.sqrt(weight)))
        return made[0], made[1]

    def __call__(self, runs: Sequence[PlasmaRun]) -> bool:
        """Return whether they may end: at the border of a segment."""
        if not at_border(runs):
            return False
        weighed = self.weighed(runs)
        if weighed is None:
            return said_enough(runs, self.target)
        return all((one.error or math.inf) <= self.target * one.mean for one in weighed)


def _why_not(runs: Sequence[PlasmaRun], scores: TransportScores) -> str | None:
    """Return why heads do not end these runs; None where they may."""
    if without := [head for head in HEADS if not scores.trusted(head, ROUTE)]:
        return f"{without[0]} has no skill that is sure on held-out state points"
    tested = scores.study.tested_on
    for run in runs:
        spec: PlasmaSpec = run.spec
        if lacks := tested.lacks(spec.kappa, spec.gamma / melting_gamma(spec.kappa), spec.particles):
            return f"heads were tested with {lacks}"
        if not math.isclose(spec.sample_time, SAMPLE_TIME):
            return f"heads were tested with samples every {SAMPLE_TIME:g}/omega_p, not {spec.sample_time:g}"
        if run.measured > 0:
            return "this run is under way: its window was not read"
    if tested.window <= SETTLED * FRAME_TIME:
        return f"a window of {tested.window:g}/omega_p is shorter than the longest lag"
    return None
