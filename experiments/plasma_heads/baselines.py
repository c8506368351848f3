r"""Baselines for D* and eta* after a window: formulas, a curve through the labels, estimates from the window.

b1  published fits at the window's Gamma and the known kappa
b2  a Gaussian process over (ln Gamma / Gamma_m, kappa) through the labels of training runs
b3  the window's own estimate: displacements; the spectrum of its stress; as it is, and times a factor of the training
    labels
b4  eta* from b3's D* by Stokes and Einstein, D* eta* Gamma = C, with C of the training labels
b5  b2 and b3 (and b4, for eta*) weighed by what each was off on training runs; without b2 where kappa is hidden
b6  eta* from the decay of transverse currents at the smallest k, times a factor of the training labels

All are logarithms. b1 and b2 know kappa; the others need the window alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from metalforge.conductor.plasma import FRAME_TIME, LAGS, STRESS_COLUMNS, YEH_HUMMER, taught_diffusion
from metalforge.core.arrays import Doubles
from metalforge.core.threads import one_thread
from metalforge.plasma.observables import CURRENTS
from metalforge.plasma.references import (
    FORMULA_EDGE,
    diffusion_cbf,
    diffusion_scaled,
    einstein_frequency,
    melting_gamma,
    viscosity_scaled,
)
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


Rule: TypeAlias = Callable[[PlasmaRecord], float]
WEIGHED = ("b3 window, fitted", "b4 Stokes-Einstein")
"""What b5 takes, beside b2 where kappa is known."""


class StateCurve:
    """A Gaussian process over (ln Gamma / Gamma_m, kappa) with a quadratic mean, through logarithms with errors.

    The kernel is a^2 exp(-(dx / l)^2 / 2 - (dkappa / m)^2 / 2); a, l, m and a noise beside the known errors are those
    of the largest likelihood (C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, 2006).
    """

    def __init__(self, gamma: Doubles, kappa: Doubles, value: Doubles, error: Doubles) -> None:
        self._x = _coordinates(gamma, kappa)
        self._mean, *_ = np.linalg.lstsq(_quadratic(self._x), value, rcond=None)
        rest = value - _quadratic(self._x) @ self._mean
        known = np.nan_to_num(error, nan=0.03) ** 2

        def loss(at: Doubles) -> float:
            matrix = self._kernel(self._x, self._x, at) + np.diag(known + math.exp(2 * at[3]))
            try:
                factor = cho_factor(matrix)
            except np.linalg.LinAlgError:
                return 1e10
            solved = cho_solve(factor, rest)
            # A weak prior keeps amplitude and noise from leaving for infinity where there are few points.
            prior = float(((at - _TYPICAL) ** 2).sum()) / 8
            return float(rest @ solved) / 2 + float(np.log(np.diag(factor[0])).sum()) + prior

        with one_thread():
            self._at = minimize(loss, _TYPICAL, method="Nelder-Mead", options={"maxiter": 400}).x
            matrix = self._kernel(self._x, self._x, self._at) + np.diag(known + math.exp(2 * self._at[3]))
            self._solved = cho_solve(cho_factor(matrix), rest)

    @classmethod
    def through(cls, runs: Sequence[PlasmaRecord], head: int) -> "StateCurve":
        """Return the curve through the labels of runs, each at the coupling that it measured."""
        labels = [label_of_run(run) for run in runs]
        columns = (
            [run.found.gamma_measured.mean for run in runs],
            [run.entry.kappa for run in runs],
            [label.value[head] for label in labels],
            [label.error[head] for label in labels],
        )
        return cls(*(np.array(column) for column in columns))

    @staticmethod
    def _kernel(one: Doubles, two: Doubles, at: Doubles) -> Doubles:
        apart = (one[:, None, :] - two[None, :, :]) / np.exp(at[1:3])
        return np.asarray(math.exp(2 * at[0]) * np.exp(-(apart**2).sum(axis=2) / 2))

    def __call__(self, gamma: float, kappa: float) -> float:
        """Return the logarithm at a state point."""
        x = _coordinates(np.array([gamma]), np.array([kappa]))
        return float((_quadratic(x) @ self._mean + self._kernel(x, self._x, self._at) @ self._solved)[0])


_TYPICAL = np.array([math.log(0.2), 0.0, 0.0, math.log(0.01)])


def _coordinates(gamma: Doubles, kappa: Doubles) -> Doubles:
    melting = np.array([melting_gamma(float(k)) for k in kappa])
    return np.stack([np.log(gamma / melting), kappa], axis=1)


def _quadratic(x: Doubles) -> Doubles:
    u, k = x.T
    return np.stack([np.ones_like(u), u, u * u, k, k * u], axis=1)


def formula(run: PlasmaRecord, head: int) -> float:
    """Return what was published for the window's coupling (b1)."""
    gamma, kappa = window_numbers(run).gamma, run.entry.kappa
    if head == 1:
        return published_viscosity(gamma, kappa)
    at = min(gamma, melting_gamma(kappa))
    found = diffusion_cbf(at, kappa) or diffusion_scaled(at, kappa)
    assert found is not None, "fits cover every fluid"
    return math.log(found)


def state_baselines(train: Sequence[PlasmaRecord], head: int, *, known: bool) -> Mapping[str, Rule]:
    """Return every baseline of a head, fitted to training runs; those that know kappa only where it is `known`."""
    truth = {run: label_of_run(run).value[head] for run in train}
    own: Rule = (
        (lambda run: window_numbers(run).log_diffusion)
        if head == 0
        else (lambda run: window_numbers(run).log_viscosity)
    )
    shift = float(np.mean([truth[run] - own(run) for run in train]))
    rules: dict[str, Rule] = {"b3 window": own, "b3 window, fitted": lambda run: shift + own(run)}
    if head == 1:
        constant = _constant(train)
        rules["b4 Stokes-Einstein"] = lambda run: (
            constant - math.log(window_numbers(run).gamma) - (window_numbers(run).log_diffusion)
        )
        factor = float(np.mean([truth[run] - window_numbers(run).log_viscosity_currents for run in train]))
        rules["b6 currents"] = lambda run: factor + window_numbers(run).log_viscosity_currents
    off = {name: [rule(run) - truth[run] for run in train] for name, rule in rules.items() if name in WEIGHED}
    if known:
        rules["b1 formula"] = lambda run: formula(run, head)
        curve = StateCurve.through(train, head)
        rules["b2 state curve"] = lambda run: curve(window_numbers(run).gamma, run.entry.kappa)
        off["b2 state curve"] = left_out_curve(train, head)[1].tolist()
    rules["b5 weighed"] = _weighed({name: rules[name] for name in off}, off)
    return rules


def two_numbers(train: Sequence[PlasmaRecord], head: int) -> Rule:
    """Return a label as a quadratic in two logarithms of the window, of its D* and its Gamma: the least that can learn.

    Two numbers name a state point, so this knows what Stokes-Einstein leaves out. It is no baseline of the protocol: it
    shows what of a head's skill needs neither its reservoir nor its other features.
    """

    def terms(run: PlasmaRecord) -> Doubles:
        d, g = window_numbers(run).log_diffusion, math.log(window_numbers(run).gamma)
        return np.array([1.0, d, g, d * d, d * g, g * g])

    rows = np.array([terms(run) for run in train])
    values = np.array([label_of_run(run).value[head] for run in train])
    found, *_ = np.linalg.lstsq(rows, values, rcond=1e-8)
    return lambda run: float(terms(run) @ found)


def left_out_curve(train: Sequence[PlasmaRecord], head: int, folds: int = 8) -> tuple[Doubles, Doubles]:
    """Return what b2 says of runs whose state point it was not fitted to, and how far that is off."""
    points = sorted({run.entry.place for run in train})
    fold = {place: i % folds for i, place in enumerate(points)}
    said = np.zeros(len(train))
    for part in range(min(folds, len(points))):
        curve = StateCurve.through([run for run in train if fold[run.entry.place] != part], head)
        for i, run in enumerate(train):
            if fold[run.entry.place] == part:
                said[i] = curve(window_numbers(run).gamma, run.entry.kappa)
    return said, said - np.array([label_of_run(run).value[head] for run in train])


def _constant(train: Sequence[PlasmaRecord]) -> float:
    """Return ln C of D* eta* Gamma = C, the mean over training labels; the published one without any."""
    found = [sum(label_of_run(run).value) + math.log(run.found.gamma_measured.mean) for run in train]
    return float(np.mean(found)) if found else math.log(STOKES_EINSTEIN)


def _weighed(rules: Mapping[str, Rule], off: Mapping[str, Sequence[float]]) -> Rule:
    """Return the mean of rules by the covariance of what they were off on training runs: weights that add to one."""
    errors = np.array([off[name] for name in rules])
    matrix = errors @ errors.T / errors.shape[1]
    matrix += 1e-3 * np.trace(matrix) * np.eye(len(matrix)) / len(matrix)
    weight = np.linalg.solve(matrix, np.ones(len(matrix)))
    weight /= weight.sum()
    return lambda run: float(sum(w * rule(run) for w, rule in zip(weight, rules.values(), strict=True)))
