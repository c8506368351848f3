r"""Two heads on one reservoir: a window goes in frame by frame, ln D* and ln eta* come out, as means over its frames.

    s' = (1 - a) s + a tanh(W_in x + W_res s + b),      y = W_out [s; x] + b_out,      reading = mean of y

over the frames from which all lags are known. The readout is linear, so the mean of what it says is what it says of
the mean: it is a ridge from means over windows to labels of whole runs. It is drawn not to zero but to what is known
without learning, up to a constant:

    ln D* = ln MSD(40) + const,      ln eta* = ln MSD(0.4) - ln MSD(40) + const

displacements after a long time, and Stokes-Einstein, D* eta* Gamma = const, since MSD(t) = t^2 / Gamma at short times.
So a head is at worst about what it must beat. The penalty of each is chosen by leaving out whole state points; what was
said of those gives the head's error.

Runs may end by the rule of the jackknife (`plasma/replicas.py`) with the head's reading of the window weighed in, for
D* and for eta* apart: 1 / error^2 = 1 / jackknife^2 + 1 / noise^2. Numbers of the run itself stay what they are; what
the head adds is said beside them. Runs that heads were not tested on, or that were resumed within their window, end by
the jackknife's rule alone, and `why_not` says why.
"""

import math
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from metalforge.conductor.shipped import FOLDER, shipped_weights
from metalforge.core import Doubles
from metalforge.plasma import (
    SAMPLE_TIME,
    MeanWithError,
    PlasmaRun,
    PlasmaSpec,
    Transport,
    Watch,
    at_border,
    found_together,
    melting_gamma,
    said_enough,
)
from metalforge.reservoir import EsnWeights, collect

from .frames import FRAME_TIME, SETTLED, Looks, PlasmaFrames

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

    def weighed(self, runs: Sequence[PlasmaRun]) -> tuple[MeanWithError, MeanWithError] | None:
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
            made.append(MeanWithError(mean=math.exp(log), error=math.exp(log) / math.sqrt(weight)))
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
