"""Conformance kits for plug-in authors, and faults for chains: what one runs over own code to know that it holds."""

from metalforge.lattice.faults import FAULTS, faults_at, inject
from metalforge.plasma.faults import PARTICLE_FAULTS, particle_faults_at

from .substrate import check_substrate

__all__ = ["FAULTS", "PARTICLE_FAULTS", "check_substrate", "faults_at", "inject", "particle_faults_at"]
