"""The physics that a campaign can be of, each a table of its spec: `[lattice]` or `[plasma]`."""

from .lattice import Lattice
from .plasma import Plasma
from .theory import Dims, Start, Target, Theory, TheoryWords, WideWork

__all__ = ["Dims", "Lattice", "Plasma", "Start", "Target", "Theory", "TheoryWords", "WideWork"]
