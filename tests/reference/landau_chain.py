"""The exactly solved model of the experiments, as tests want it: its peak, its chi, chains in equilibrium."""

import numpy as np

from experiments.exact_model import CROSSOVER, DIMS, ExactChains

VOLUME = DIMS
exact_chi = CROSSOVER.chi
exact_peak = CROSSOVER.peak


def run_chains(betas, rows, rng, *, warm=300):
    """Return (plaquette, loop), each of shape (rows, chains), one chain for each beta, in equilibrium."""
    chains = ExactChains(CROSSOVER, rng)
    chains.betas = np.asarray(betas, dtype=float)
    chains.loop = np.full(chains.betas.shape, 0.1) * rng.uniform(0.5, 1.5, chains.betas.shape)
    chains.noise = rng.normal(size=chains.betas.shape)
    numbers = range(chains.betas.size)
    chains.advance(numbers, warm)
    return chains.advance(numbers, rows)
