"""Words everybody uses: errors, quantities with a source, capabilities, plug-ins. Knows no device and no physics."""

from .benchmark import BenchRow, Suite, best_of, find_suites
from .capabilities import (
    BatchInference,
    Capability,
    QuantizedInference,
    Trait,
    capability_from_label,
    missing_capabilities,
)
from .energy import EnergyMeter, EnergySpan
from .errors import (
    KernelError,
    MetalforgeError,
    MeterUnavailableError,
    PlacementError,
    PluginError,
    SpecError,
    UnknownNameError,
)
from .extras import extras
from .quantities import Measured, Modelled, Quantity
from .schema import Feature, FeatureSchema, HeadLayout, HeadSpec
from .substrate import Cost, Discovery, Kind, Missing, NoEngine, Property, Substrate, SubstrateInfo
from .workload import Workload

__all__ = [
    "BatchInference",
    "BenchRow",
    "Capability",
    "Cost",
    "Discovery",
    "EnergyMeter",
    "EnergySpan",
    "Feature",
    "FeatureSchema",
    "HeadLayout",
    "HeadSpec",
    "KernelError",
    "Kind",
    "Measured",
    "MetalforgeError",
    "MeterUnavailableError",
    "Missing",
    "Modelled",
    "NoEngine",
    "PlacementError",
    "PluginError",
    "Property",
    "Quantity",
    "QuantizedInference",
    "SpecError",
    "Substrate",
    "SubstrateInfo",
    "Suite",
    "Trait",
    "UnknownNameError",
    "Workload",
    "best_of",
    "capability_from_label",
    "extras",
    "find_suites",
    "missing_capabilities",
]
