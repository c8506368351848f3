"""SU(3) on a lattice as the physics of a campaign: the table `[lattice]` of a spec."""

from .theory import Lattice

__all__ = ["Lattice"]
