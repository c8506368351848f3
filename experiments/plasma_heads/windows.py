"""Estimates from a window alone: its temperature, diffusion, and the memory of stress and currents."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from metalforge.conductor.plasma.frames import FRAME_TIME, LAGS, STRESS_COLUMNS
from metalforge.conductor.plasma.heads import YEH_HUMMER, taught_diffusion
from metalforge.plasma.observables import CURRENTS
from metalforge.plasma.references import FORMULA_EDGE, einstein_frequency, melting_gamma, viscosity_scaled
from metalforge.plasma.spec import DENSITY, MASS, length_of
from metalforge.plasma.spectrum import plateau
from metalforge.plasma.transport import CUT, stress_bins, stress_power

from .corpus import PlasmaRecord

STOKES_EINSTEIN = 0.1165
"""D* eta* Gamma of strongly coupled fluids, the middle of what was published."""


class WindowNumbers(NamedTuple):
    """Estimates of a window alone: Gamma, ln D*, and ln eta* by stress and by currents, with the error of the fit."""

    gamma: float
    log_diffusion: float
    log_viscosity: float
    viscosity_error: float
    log_viscosity_currents: float


@cache
def window_numbers(run: PlasmaRecord) -> WindowNumbers:
    """Return what a window says by itself.

    D_N by displacements between the two longest lags, D = D_N / (1 - 0.2101 / (0.1165 L)): the correction of the box
    with the viscosity of Stokes and Einstein. eta by the spectrum of its stress, and from nu = C(0) / (k^2 int C dt)
    with the spectrum of transverse currents at the smallest k. Both spectra are fitted up to a frequency that knows
    kappa, which favours them where kappa is hidden.
    """
    n, length = run.entry.particles, length_of(run.entry.particles)
    temperature = 2 * run.column("kinetic").mean() / (3 * n - 3)
    near, far = (np.nanmean(run.column(f"msd_{lag:g}")) for lag in LAGS[-2:])
    diffusion = (far - near) / (6 * (LAGS[-1] - LAGS[-2])) / (1 - YEH_HUMMER / (STOKES_EINSTEIN * length))
    stress = np.array([run.column(name) for name in STRESS_COLUMNS])
    time = stress.shape[1] * FRAME_TIME
    bins = stress_bins(run.entry.kappa, time)
    spacing = 2 * math.pi / time
    flat = plateau(stress_power(stress, FRAME_TIME, length**3, bins), len(stress), spacing, time)
    currents = np.array([run.column(name) for name in CURRENTS])
    wide = max(4, round(CUT * einstein_frequency(run.entry.kappa) * time / (2 * math.pi))) + 1
    memory = plateau(stress_power(currents, FRAME_TIME, 1.0, wide), len(currents), spacing, time)
    k = 2 * math.pi / length
    start = n * temperature / (2 * MASS)
    return WindowNumbers(
        gamma=float(1 / temperature),
        log_diffusion=math.log(max(float(diffusion), 1e-6)),
        log_viscosity=flat.log - math.log(temperature * MASS * DENSITY),
        viscosity_error=flat.error,
        log_viscosity_currents=math.log(start / k**2) - memory.log,
    )


class TransportLabel(NamedTuple):
    """Logarithms of D* and eta* with their errors (not a number where there is too little for one)."""

    value: tuple[float, float]
    error: tuple[float, float]


def label_of_run(run: PlasmaRecord) -> TransportLabel:
    """Return what is to be said of a run, in the order of HEADS.

    D* is the whole run's own, as in a liquid. eta* of one run is noisy, so it is that of all runs of the state point
    together, moved to the Gamma of this one along the published fit: some percent of Gamma, less than that of eta*.
    """
    together, gamma = run.found_together, run.found.gamma_measured.mean
    moved = published_viscosity(gamma, run.entry.kappa) - published_viscosity(
        together.gamma_measured.mean, run.entry.kappa
    )
    diffusion = taught_diffusion(run.found, length_of(run.entry.particles))
    found = [run.found.diffusion_infinite, together.viscosity]
    errors = [math.nan if one.error is None else one.error / one.mean for one in found]
    return TransportLabel((math.log(diffusion), math.log(together.viscosity.mean) + moved), (errors[0], errors[1]))


def published_viscosity(gamma: float, kappa: float) -> float:
    """Return ln eta* of the published fit, at the nearest coupling that it has."""
    melting = melting_gamma(kappa)
    found = viscosity_scaled(min(max(gamma, FORMULA_EDGE * melting), melting), kappa)
    assert found is not None, "the fit covers every fluid above its edge"
    return math.log(found)
