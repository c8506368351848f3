"""Trajectories whose D_N*, eta* and noise are known: segments with an exponential memory of the stress."""

import math

import numpy as np

from metalforge.plasma.campaign.transport import SegmentRows
from metalforge.plasma.spec import DENSITY, MASS, PlasmaSpec, length_of
from metalforge.plasma.transport import left_out, stress_bins

PARTICLES, KAPPA, TIME = 170, 3.0, 380.0
MEMORY = 2.0


def truth(at):
    """Return D_N*, D* and eta* at ln Gamma."""
    gamma = math.exp(at)
    box, eta = 2.5 * gamma**-1.05, 0.035 + 4e-5 * gamma
    return box, box + left_out(1 / gamma, eta, box, length_of(PARTICLES), 40, 100), eta


def drawn(chain, at, segments, rng, *, bragg=2.0):
    """Return a trajectory of so many segments."""
    box, _, eta = truth(at)
    spec = PlasmaSpec(gamma=math.exp(at), kappa=KAPPA, particles=PARTICLES)
    bins = stress_bins(KAPPA, TIME)
    spectrum = eta * MASS * DENSITY / spec.gamma / (1 + (2 * math.pi * np.arange(bins) / TIME * MEMORY) ** 2)
    shape = np.full(bins, 5.0)
    shape[0] = 2.5
    power = spectrum * rng.gamma(shape, 1 / shape, (segments, bins))
    temperature = (1 + 0.003 * rng.normal(size=segments)) / spec.gamma
    kinetic = 1.5 * (PARTICLES - 1) * temperature
    moved = box * (1 + 0.03 * rng.normal(size=segments))
    columns = {
        "kinetic": kinetic,
        "potential": 30.0 - kinetic,
        "phi": np.full(segments, 3.0),
        "bragg": np.full(segments, bragg),
        "temperature": temperature,
        "diffusion_msd": moved,
        "diffusion_vacf": moved,
    }
    columns |= {f"stress_{i}": column for i, column in enumerate(power.T)}
    steps = TIME / spec.step_time * PARTICLES
    return SegmentRows(chain, at, spec, TIME, columns, steps * (segments + 1))
