"""Heads at work on a run: they read its window as it goes, and may end it where they are trusted.

The rule is the jackknife's (`plasma/replicas.py`) with the head's reading of the window weighed in, for D* and for eta*
apart: 1 / error^2 = 1 / jackknife^2 + 1 / noise^2. Numbers of the run itself stay what they are; what the head adds is
said beside them. Runs that heads were not tested on, or that were resumed within their window, end by the jackknife's
rule alone, and `why_not` says why.
"""

import math
from collections.abc import Sequence

import numpy as np

from metalforge.conductor.shipped import shipped_weights
from metalforge.core import Doubles
from metalforge.plasma import (
    SAMPLE_TIME,
    MeanWithError,
    PlasmaRun,
    PlasmaSpec,
    Watch,
    at_border,
    found_together,
    melting_gamma,
    said_enough,
)
from metalforge.reservoir import EsnWeights

from .frames import FRAME_TIME, SETTLED, Looks, PlasmaFrames
from .heads import HEADS, LAYOUT, said_of, taught_diffusion
from .scores import TransportScores, shipped_transport

ROUTE = "f32-software"


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
