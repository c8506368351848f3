"""Many heads from one reservoir pass: features of a running chain go in, decisions with trust come out."""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .adopting import TaughtChain, adopt
    from .advisor import ConductorAdvisor
    from .curves import transition_curve, transition_on
    from .features import SCHEMA, ChainContext, FrameMaker
    from .plasma import HeadStop
    from .program import ConductorProgram, untrained_network
    from .shipped import (
        CONDUCTOR_11,
        GPU_PREP_11,
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
