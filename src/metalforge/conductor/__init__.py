"""Many heads from one reservoir pass: features of a running chain go in, decisions with trust come out."""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .corpus_file import ChainEntry, load_corpus, save_corpus
    from .corpus_grids import CorpusSpec, corpus_spec
    from .corpus_runs import make_corpus, record
    from .features import ChainContext, FrameMaker
    from .heads_training import reservoir, train_heads
    from .labels import examples, frames_of
    from .layouts import CONDUCTOR_11, GPU_PREP_11
    from .program import ConductorProgram
    from .questions import ComingTrajectory, HeadQuestion
    from .reading import NetworkConductor
    from .shipped import default_provenance, default_scores, default_weights
    from .trust import Trust
    from .worker import Worker

__all__ = [
    "CONDUCTOR_11",
    "GPU_PREP_11",
    "ChainContext",
    "ChainEntry",
    "ComingTrajectory",
    "ConductorProgram",
    "CorpusSpec",
    "FrameMaker",
    "HeadQuestion",
    "NetworkConductor",
    "Trust",
    "Worker",
    "corpus_spec",
    "default_provenance",
    "default_scores",
    "default_weights",
    "examples",
    "frames_of",
    "load_corpus",
    "make_corpus",
    "record",
    "reservoir",
    "save_corpus",
    "train_heads",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
