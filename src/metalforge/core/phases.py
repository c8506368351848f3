"""What an update of a chain belongs to, in one spelling for rows, journals, checkpoints, traces and features."""

from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["quench", "warmup", "measure"]
PHASES: tuple[Phase, ...] = ("quench", "warmup", "measure")
"""Sweeps without sea quarks; updates that may be tuned and are not measured; updates with frozen parameters."""
