"""The definition of the plasma's forces and sums: all pairs, nearest images, NumPy."""

import numpy as np


def forces_and_sums(positions, length, kappa, cutoff):
    """Return forces, sum of phi, the number of pairs and sum r_a F_b over pairs within the cut-off."""
    forces, phi, pairs, virial = np.zeros_like(positions), 0.0, 0, np.zeros((3, 3))
    for i in range(len(positions) - 1):
        apart = positions[i] - positions[i + 1 :]
        apart -= length * np.round(apart / length)
        r = np.sqrt((apart**2).sum(axis=1))
        near = np.flatnonzero(r < cutoff)
        apart, r = apart[near], r[near]
        energy = np.exp(-kappa * r) / r
        force = (energy * (1 + kappa * r) / r**2)[:, None] * apart
        forces[i] += force.sum(axis=0)
        forces[i + 1 + near] -= force
        phi, pairs, virial = phi + energy.sum(), pairs + len(near), virial + apart.T @ force
    return forces, phi, pairs, virial
