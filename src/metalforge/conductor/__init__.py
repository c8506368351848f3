"""Many heads from one reservoir pass: features of a running chain go in, decisions with trust come out."""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .advisor import ConductorAdvisor
    from .features import ChainContext, FrameMaker
    from .layouts import CONDUCTOR_11, GPU_PREP_11
    from .program import ConductorProgram
    from .shipped import default_provenance, default_scores, default_weights

__all__ = [
    "CONDUCTOR_11",
    "GPU_PREP_11",
    "ChainContext",
    "ConductorAdvisor",
    "ConductorProgram",
    "FrameMaker",
    "default_provenance",
    "default_scores",
    "default_weights",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
