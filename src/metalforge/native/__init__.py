"""Kernels on any silicon: engines that lattice fields live on, and NumPy arrays in and out, the GIL released meanwhile.

The same C++ headers are built for several levels of the CPU's instruction set; `kernels()` imports the best one this
CPU can run, or the one that the environment variable ``METALFORGE_ISA`` names (``v2``, ``v3``, ``v4``; ``portable``
where the CPU is not x86-64). ``METALFORGE_THREADS`` sets the default number of threads.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

from ._level import available_levels, default_threads, kernels, level, openmp, supported_levels, thread_count
from .cpu_engine import cpu_engine
from .engine import Engine

if TYPE_CHECKING:
    from ._level import MAX_THREADS
    from .cpu_engine import CpuEngine
    from .cuda.engine import cuda_engine
    from .cuda.grid import CudaEngine
    from .engine import (
        PARTICLE_SUMS,
        ActionKernel,
        Batch,
        BatchEngine,
        Buffer,
        ChainPlace,
        Dims,
        Grid,
        Iterations,
        Motion,
        ParticleBoxes,
        ParticleEngine,
        ParticleSamples,
        ParticleState,
        Precision,
        Solver,
        Sweeps,
        Trajectory,
        check_dims,
        continues,
        rounds_to_doubles,
    )
    from .frames import correlate, density_powers
    from .random import Stream
    from .reduce import from_df64, ordered_dot, ordered_sum, to_df64
    from .self_checks import SelfCheck, selftest

__all__ = [
    "Engine",
    "SelfCheck",
    "Stream",
    "available_levels",
    "cpu_engine",
    "default_threads",
    "from_df64",
    "kernels",
    "level",
    "openmp",
    "ordered_dot",
    "ordered_sum",
    "selftest",
    "supported_levels",
    "thread_count",
    "to_df64",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
