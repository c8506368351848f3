"""Many heads from one reservoir pass: features of a running chain go in, decisions with trust come out."""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .adopting import TaughtChain, adopt
    from .advisor import ConductorAdvisor
    from .features import SCHEMA, ChainContext, FrameMaker
    from .layouts import CONDUCTOR_11, GPU_PREP_11
    from .plasma.heads import HeadStop
    from .program import ConductorProgram, untrained_network
    from .scaling import transition_curve, transition_on
    from .shipped import (
        Provenance,
        read_provenance,
        save_with_provenance,
        shipped_provenance,
        shipped_scores,
        shipped_weights,
    )
    from .standing import standings_of

__all__ = [
    "CONDUCTOR_11",
    "GPU_PREP_11",
    "ChainContext",
    "ConductorAdvisor",
    "ConductorProgram",
    "FrameMaker",
    "shipped_provenance",
    "shipped_scores",
    "shipped_weights",
    "untrained_network",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
