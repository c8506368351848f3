"""Errors of transport coefficients cover the truth: exact currents, another program's estimate, and runs of one point.

Of the intervals of one error 68 in 100 should hold the truth, of two errors 95. Currents are sums of
Ornstein-Uhlenbeck processes, whose integrals are known exactly.
"""

import math

import msgspec
import numpy as np
import pytest
import stacie
from scipy.signal import lfilter

from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec, TransportSegment, transport
from metalforge.plasma.spectrum import plateau

SPEC = PlasmaSpec(gamma=158, kappa=2, particles=340)
TIME, SPACING, CASES = 220.0, 0.5, 200
BINS = 33
MIXTURES = [((4.0, 1.0),), ((8.0, 0.5), (1.7, 0.5)), ((1.5, 1.0),)]
"""(memory, part of the variance) of the processes in a current."""


def powers(mixture, segments, random):
    """Averaged periodograms of five currents, (cases, segments, bins), and the exact S(0) of the samples."""
    samples, exact = round(TIME / SPACING), 0.0
    series = np.zeros((CASES, 5, segments * samples))
    for tau, part in mixture:
        keep = math.exp(-SPACING / tau)
        noise = math.sqrt(1 - keep**2) * random.normal(size=series.shape)
        noise[..., 0] = random.normal(size=(CASES, 5))
        series += math.sqrt(part) * lfilter([1.0], [1.0, -keep], noise, axis=-1)
        exact += part * SPACING * (1 + keep) / (1 - keep)
    cut = series.reshape(CASES, 5, segments, samples)
    return (np.abs(np.fft.rfft(cut)[..., :BINS]) ** 2).mean(axis=1) * SPACING / samples, exact


def segment(power):
    """A record with this spectrum and nothing else of interest."""
    return TransportSegment(
        time=TIME, temperature=1.0, diffusion_msd=1.0, diffusion_vacf=1.0, stress_power=tuple(power.tolist())
    )


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("segments", [1, 5, 16])
def test_errors_of_exact_currents_cover(mixture, segments):
    found, exact = powers(mixture, segments, np.random.default_rng(segments))
    quoted = [transport(SPEC, [[segment(power) for power in case]]).viscosity for case in found]
    off = np.array([q.mean * 9 / (4 * math.pi) - exact for q in quoted])
    error = np.array([q.error * 9 / (4 * math.pi) for q in quoted])
    one, two = np.mean(np.abs(off) < error), np.mean(np.abs(off) < 2 * error)
    noise = 1 / math.sqrt(CASES)
    assert one > 0.68 - 3 * 0.47 * noise
    assert two > 0.954 - 3 * 0.21 * noise
    assert one < 0.9  # errors that are too large are no use either


def test_the_best_number_of_terms_alone_does_not_cover():
    """A negative control: the error of the single fit with the least AIC leaves the noise of the choice out."""
    found, exact = powers(MIXTURES[1], 5, np.random.default_rng(9))
    inside = 0
    for case in found:
        power, averaged = case.mean(axis=0), 25
        y = np.log(power) + 1 / (2 * averaged)
        fits = []
        for terms in range(1, 20):
            basis = np.cos(math.pi * np.outer(np.arange(BINS) / (BINS - 1), np.arange(terms)))
            coefficients, *_ = np.linalg.lstsq(basis, y, rcond=None)
            spread = averaged * ((y - basis @ coefficients) ** 2).sum() + 2 * terms
            variance = basis[0] @ np.linalg.inv(basis.T @ basis) @ basis[0] / averaged
            fits.append((spread, coefficients.sum(), math.sqrt(variance)))
        _, log, error = min(fits)
        inside += abs(log - math.log(exact)) < error
    assert inside / CASES < 0.6


def test_another_program_gives_the_same():
    random, keep, tau = np.random.default_rng(5), math.exp(-SPACING / 4.0), 4.0
    noise = math.sqrt(1 - keep**2) * random.normal(size=(5, 40 * 440))
    series = lfilter([1.0], [1.0, -keep], noise, axis=1).reshape(200, 440)
    spectrum = stacie.compute_spectrum(series, prefactors=1.0, timestep=SPACING, include_zero_freq=True)
    theirs = stacie.estimate_acint(spectrum, stacie.LorentzModel())
    power = (np.abs(np.fft.rfft(series)[:, :BINS]) ** 2).mean(axis=0) * SPACING / 440
    ours = plateau(power, 200, 2 * math.pi / TIME, TIME)
    value, error = math.exp(ours.log) / 2, math.exp(ours.log) / 2 * ours.error
    assert abs(value - theirs.acint) < 3 * math.hypot(error, theirs.acint_std)
    assert abs(theirs.acint - tau) < 4 * theirs.acint_std
    assert 0.3 < theirs.acint_std / error < 3


@pytest.mark.long
def test_runs_of_a_state_point_cover_what_all_of_them_say():
    """Each of twenty runs against the mean of the others, at its own measured coupling."""
    runs = []
    for stream in range(20):
        spec = PlasmaSpec(gamma=100, kappa=3, particles=170, seed=7, stream=stream)
        run = PlasmaRun(spec, PlasmaJob(warmup=60, time=8 * 380), threads=1)
        run.run()
        runs.append(run.segments())
    off = []
    for i, run in enumerate(runs):
        one, others = (transport(spec, group) for group in ([run], runs[:i] + runs[i + 1 :]))
        for name in ("viscosity", "diffusion", "diffusion_infinite"):
            mine, theirs = getattr(one, name), getattr(others, name)
            # D* goes as Gamma^-1.3 here: each run has an energy, and so a temperature, of its own.
            power = 0.0 if name == "viscosity" else 1.3
            scaled = mine.mean * (one.gamma_measured.mean / others.gamma_measured.mean) ** power
            off.append((name, abs(scaled - theirs.mean) / math.hypot(mine.error, theirs.error)))
    for name in ("viscosity", "diffusion", "diffusion_infinite"):
        apart = np.array([value for kind, value in off if kind == name])
        assert np.mean(apart < 1) > 0.68 - 3 * 0.47 / math.sqrt(len(runs)), name
        assert np.mean(apart < 2) > 0.8, name
    assert msgspec.json.decode(msgspec.json.encode(runs[0]), type=list[TransportSegment]) == runs[0]
