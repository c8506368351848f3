"""A model with an exactly known susceptibility peak, and Markov chains of it that remember like lattice chains.

    p_beta(O, E) ~ O exp(-(c - beta A) O^2 - D O^4) N(E; E0 - A O^2 - beta S^2, S^2),

which is exp(-beta E) times a density that does not know beta, so that reweighting in beta is exact. O moves by a
random walk with an accept test (tau_int of tens of steps), the Gaussian part of E by an autoregression.
"""

import numpy as np

A, D, S, BETA_0, E_0 = 4500.0, 2500.0, 55.0, 5.672, 5600.0
C = A * BETA_0
VOLUME = (8, 8, 8, 4)


def log_density(loop, beta):
    """Return ln p_beta(O) up to a constant."""
    return np.log(loop) - (C - beta * A) * loop**2 - D * loop**4


def exact_chi(betas):
    """Return N_s^3 var(O) at each beta, by quadrature."""
    grid = np.linspace(1e-6, 0.5, 4001)
    found = []
    for beta in np.atleast_1d(betas):
        weight = log_density(grid, beta)
        weight = np.exp(weight - weight.max())
        weight /= weight.sum()
        mean = weight @ grid
        found.append(512 * (weight @ (grid - mean) ** 2))
    return np.array(found)


def exact_peak():
    """Return beta_c and the height of the peak."""
    betas = np.linspace(5.65, 5.75, 401)
    chi = exact_chi(betas)
    return betas[chi.argmax()], chi.max()


def run_chains(betas, rows, rng, *, step=0.014, memory=5.0, warm=300):
    """Return (plaquette, loop), each of shape (rows, chains), one chain for each beta, in equilibrium."""
    betas = np.asarray(betas, dtype=float)
    loop = np.full(betas.shape, 0.1) * rng.uniform(0.5, 1.5, betas.shape)
    now = log_density(loop, betas)
    kick = np.exp(-1 / memory)
    noise = rng.normal(size=betas.shape)
    plaquette, loops = np.empty((rows, *betas.shape)), np.empty((rows, *betas.shape))
    for t in range(-warm, rows):
        proposal = np.abs(loop + step * rng.normal(size=betas.shape))
        then = log_density(proposal, betas)
        accept = np.log(rng.uniform(size=betas.shape)) < then - now
        loop, now = np.where(accept, proposal, loop), np.where(accept, then, now)
        noise = kick * noise + np.sqrt(1 - kick**2) * rng.normal(size=betas.shape)
        if t >= 0:
            energy = E_0 - A * loop**2 - (betas - BETA_0) * S**2 + S * noise
            plaquette[t], loops[t] = 1 - energy / (6 * 2048), loop
    return plaquette, loops
