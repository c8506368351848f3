"""Points by physics: who moves what a brief describes."""

from pathlib import Path

from .equipment import Tools
from .lattice_point import LatticePoint
from .orders import Brief
from .plasma_point import PlasmaPoint
from .point import PointChain


def point_of(brief: Brief, tools: Tools, checkpoint: Path | None = None) -> PointChain:
    """Return a chain or a trajectory, from its checkpoint or new."""
    kind = LatticePoint if tools.spec.plasma is None else PlasmaPoint
    return kind(brief, tools, checkpoint)
