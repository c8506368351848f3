"""The studies behind docs/tables: a name and settings go in, a table and its explanation come out.

They are not part of the wheel: `python -m experiments run NAME` runs them from a checkout of the repository.
"""

from . import (  # noqa: F401  # registers them
    coverage,
    faults,
    steering,
    thermodynamics,
)
from .protocol import EXPERIMENTS, Experiment, Result, Settings, find_experiment

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Settings", "find_experiment"]
