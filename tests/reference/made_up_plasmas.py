"""Runs of a plasma that nobody ran: windows and segments with transport coefficients that are known."""

import math

import numpy as np

from experiments.plasma_heads.corpus import PlasmaCorpus, PlasmaEntry, PlasmaRecord, rounded
from metalforge.conductor.plasma import COLUMNS, LAGS
from metalforge.plasma.spec import DENSITY, MASS, length_of
from metalforge.plasma.transport import stress_bins

PARTICLES, FRAMES = 343, 300
SEGMENTS = 12


def state(gamma, kappa):
    """Return D_N* and eta* of a made-up fluid: Stokes-Einstein, but for a factor that depends on kappa."""
    diffusion = 0.8 * gamma**-0.9
    return diffusion, 0.12 * (1 + 0.3 * (kappa - 2.5)) / (diffusion * gamma)


def made_run(part, gamma, kappa, stream, *, noise=0.02, shuffled=False):
    """Return a record whose displacements are ballistic, then diffusive, and whose stress has a flat spectrum."""
    entry = PlasmaEntry(
        part=part,
        gamma=gamma,
        kappa=kappa,
        particles=PARTICLES,
        seed=1 if part == "train" else 2,
        stream=stream,
        warmup=10.0,
        window=FRAMES * 0.2,
        time=1200.0,
        shuffled=shuffled,
    )
    rng = np.random.default_rng([int(part == "test"), stream, int(10 * gamma), int(10 * kappa)])
    diffusion, eta = state(gamma, kappa)
    columns = rng.normal(size=(len(COLUMNS), FRAMES))
    n = PARTICLES
    names = {name: k for k, name in enumerate(COLUMNS)}
    columns[names["kinetic"]] = 1.5 * (n - 1) / gamma * (1 + 0.002 * columns[names["kinetic"]])
    columns[names["phi"]] = 0.1 * n * (1 + 1e-4 * columns[names["phi"]])
    columns[names["virial"]] = 0.3 * n * (1 + 1e-4 * columns[names["virial"]])
    power = eta * MASS * DENSITY / gamma  # S(0) of a white stress of this viscosity
    for name, row in names.items():
        if name.startswith("stress"):
            columns[row] *= math.sqrt(2 * power / (0.2 * length_of(n) ** 3))
        elif name.startswith("current"):
            columns[row] *= math.sqrt(n / (2 * MASS * gamma))
        elif name.startswith("s_"):
            columns[row] = (1 + 0.2 * (kappa - 2.5)) * np.abs(1 + 0.1 * columns[row])
    for lag in LAGS:
        first = round(lag / 0.2)
        free = 1 / (1 / (lag**2 / gamma) + 1 / (6 * diffusion * lag))
        wiggle = 1 + noise * rng.normal() * (lag > 10) + 0.01 * rng.normal(size=FRAMES)
        columns[names[f"msd_{lag:g}"]] = free * wiggle
        columns[names[f"vacf_{lag:g}"]] = math.exp(-lag / (3 + kappa)) / gamma * wiggle
        for what in ("msd", "vacf"):
            columns[names[f"{what}_{lag:g}"], :first] = np.nan
    spec = entry.spec
    bins = stress_bins(kappa, spec.segment_blocks * spec.block_time)
    drawn = rng.gamma(5, power / 5, size=(SEGMENTS, bins))
    drawn[:, 0] = rng.gamma(2.5, power / 2.5, size=SEGMENTS)
    thermal = 1 / gamma * (1 + 1e-3 * rng.normal(size=SEGMENTS))
    moved = diffusion * (1 + 0.01 * rng.normal(size=SEGMENTS))
    segments = np.column_stack([thermal, moved, drawn])
    mixed = None
    if shuffled:
        order = rng.permutation(FRAMES)
        mixed = columns[:, order].copy()
        for lag in LAGS:  # frames that were far apart are next to each other
            for what, value in (("msd", 6 * diffusion * FRAMES * 0.2 / 3), ("vacf", 0.0)):
                row = mixed[names[f"{what}_{lag:g}"]]
                row[:] = value * np.abs(1 + 0.1 * rng.normal(size=FRAMES))
                row[: round(lag / 0.2)] = np.nan
    return PlasmaRecord(
        entry=entry,
        window=rounded(columns),
        segments=segments,
        shuffled=None if mixed is None else rounded(mixed),
    )


def made_corpus(*, noise=0.02):
    """Return runs of nine state points to train and six to test, two of each."""
    runs, stream = [], 0
    for kappa in (2.0, 2.5, 3.0):
        for part, gammas in (("train", (40.0, 100.0, 300.0)), ("test", (60.0, 200.0))):
            for gamma in gammas:
                for replica in range(2):
                    kept = part == "test" and replica == 0
                    runs.append(made_run(part, gamma, kappa, stream, noise=noise, shuffled=kept))
                    stream += 1
    return PlasmaCorpus(grid="made", records=tuple(runs))
