"""Chains of a corpus that no lattice made: series whose equilibrium, memory and transient are known."""

import msgspec
import numpy as np

from experiments.heads.corpus import ChainEntry, ChainRecord, Corpus
from metalforge.conductor.curves import transition_of

MEMORY = 0.6
"""Correlation of neighbouring updates: tau_int is (1 + MEMORY) / (2 (1 - MEMORY)) = 2."""
TAU = 2.0
MADE = {"algorithm": "heatbath", "part": "train", "seed": 2026, "length": 1.0, "mass": 0.0}


def noise(rng, n, size, memory=MEMORY):
    """Return n steps of a process with this memory and deviation, in equilibrium from the first."""
    x = np.empty(n)
    x[0] = rng.normal()
    kicks = rng.normal(0, np.sqrt(1 - memory**2), n)
    for t in range(1, n):
        x[t] = memory * x[t - 1] + kicks[t]
    return size * x


def order(beta, dims):
    """Return <|L|> that a made-up chain has at a coupling: it rises through the transition."""
    at = transition_of(dims[3], dims[0])
    return 0.05 + 0.3 / (1 + np.exp(-(beta - at.mean) / at.width))


def chain(beta, start="hot", stream=0, *, dims=(4, 4, 4, 2), updates=320, relaxes=6.0, **more):
    """Return a chain that relaxes as exp(-t / relaxes) to its equilibrium."""
    entry = ChainEntry(beta=beta, dims=dims, start=start, stream=stream, updates=updates, **{**MADE, **more})
    rng = np.random.default_rng([entry.seed, stream, round(1000 * beta)])
    away = (1 if start == "cold" else -1) * np.exp(-np.arange(1, updates + 1) / relaxes)
    plaquette = 0.1 * beta - 0.1 + 0.3 * away + noise(rng, updates, 0.01)
    loop = np.abs(order(beta, dims) + 0.2 * np.maximum(away, -0.1) + noise(rng, updates, 0.02))
    angle = rng.uniform(0, 2 * np.pi, updates)
    columns = {
        "plaquette": plaquette,
        "plaquette_spatial": plaquette - 0.001,
        "polyakov_re": loop * np.cos(angle),
        "polyakov_im": loop * np.sin(angle),
        "delta_h": rng.normal(0.1, 0.4, updates),
        "accepted": (rng.random(updates) < 0.8).astype(float),
        "delta_h_quarter": rng.normal(0, 0.3, updates),
        "n_steps": np.full(updates, 8.0),
        "cg_iterations": rng.normal(60, 5, updates),
    }
    series = np.array([columns[name] for name in entry.columns], np.float32)
    return ChainRecord(entry=entry, series=series)


def scan(betas, part="train", *, each=2, first=0, **more):
    """Return chains of every coupling, hot and cold in turn."""
    return [
        chain(beta, ("hot", "cold")[k % 2], first + each * i + k, part=part, **more)
        for i, beta in enumerate(betas)
        for k in range(each)
    ]


def corpus(*chains):
    """Return chains as a corpus."""
    return Corpus(grid="made-up", spec=msgspec.Raw(b"{}"), records=tuple(chains))
