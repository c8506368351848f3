"""The NPU: programs as data, exact arithmetic, the emulated AKD1000 that is always there, and the road to a real board.

Modules by what one does with them: `quantize`, `ladder`, `certificate`, `compile` make programs of matrices; `wire`
writes and reads them; `emulator` and `akida_` run them behind the protocol of `device`; `mesh` and `costs` say where
they fit and what they cost; `sequence` runs a reservoir without returning to Python.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .compile import CompiledLinear, compile_linear
    from .device import NpuDevice, NpuError, ResourceError
    from .discovery import discover
    from .emulator import EmulatedDevice
    from .program import Activation, Encoding, FullyConnected, Head, Program, ProgramError
    from .sequence import SequenceLoop

__all__ = [
    "Activation",
    "CompiledLinear",
    "EmulatedDevice",
    "Encoding",
    "FullyConnected",
    "Head",
    "NpuDevice",
    "NpuError",
    "Program",
    "ProgramError",
    "ResourceError",
    "SequenceLoop",
    "compile_linear",
    "discover",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
