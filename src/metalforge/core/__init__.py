"""Shared definitions: errors, measured and modelled quantities, capabilities, plug-ins. Knows no device or physics."""

from typing import TYPE_CHECKING

from .on_demand import on_demand

if TYPE_CHECKING:
    from .benchmark import BenchRow, best_of, find_suites
    from .capabilities import QuantizedInference, Trait
    from .errors import (
        KernelError,
        MetalforgeError,
        MeterUnavailableError,
        PlacementError,
        PluginError,
        SpecError,
        UnknownNameError,
    )
    from .quantities import EnergyMeter, Measured, Modelled, Quantity
    from .schema import HeadLayout
    from .substrate import Cost, Discovery, Kind, NoEngine, SubstrateInfo

__all__ = [
    "BenchRow",
    "Cost",
    "Discovery",
    "EnergyMeter",
    "HeadLayout",
    "KernelError",
    "Kind",
    "Measured",
    "MetalforgeError",
    "MeterUnavailableError",
    "Modelled",
    "NoEngine",
    "PlacementError",
    "PluginError",
    "Quantity",
    "QuantizedInference",
    "SpecError",
    "SubstrateInfo",
    "Trait",
    "UnknownNameError",
    "best_of",
    "find_suites",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
