"""Shared definitions: errors, measured and modelled quantities, capabilities, plug-ins. Knows no device or physics."""

from typing import TYPE_CHECKING

from .on_demand import on_demand

if TYPE_CHECKING:
    from .advice import (
        NOT_ACTED_ON,
        Advice,
        Advisor,
        ChainPlace,
        CheapLength,
        ExpectedPeak,
        HeadStanding,
        PeakPlace,
        Question,
        Reading,
    )
    from .array_files import load_array, load_arrays
    from .arrays import Array, BriefRepr, Doubles, Reals
    from .capabilities import (
        GENERAL_PURPOSE,
        BatchInference,
        Capability,
        QuantizedInference,
        Trait,
        capability_from_label,
        missing_capabilities,
    )
    from .closing import Closing
    from .errors import (
        ClusterLostError,
        DeviceLostError,
        InternalError,
        KernelError,
        MetalforgeError,
        MeterUnavailableError,
        PlacementError,
        PluginError,
        SpecError,
        UnknownNameError,
        find,
        require_at_least,
        require_known,
        require_not_negative,
        require_one_of,
        require_positive,
        require_shares,
    )
    from .files import (
        PathLike,
        allowance,
        cache_folder,
        escaped,
        half_written,
        naming,
        new_scratch,
        opened,
        read_bytes,
        remove_half_written,
        replacing,
    )
    from .installation import checked_out_commit, extras
    from .observables import Measurements, Observable, find_observables, observables_of, register_observable
    from .pages import Paragraphs, TextTable, aligned
    from .plugins import (
        FILES,
        PluginWarning,
        load_files,
        load_named_files,
        load_plugin,
        loaded_files,
        plugin_folder,
        plugin_names,
        strangers_code,
        with_plugins,
    )
    from .quantities import EnergyMeter, Measured, Modelled, Quantity, RecentMeter
    from .rows import (
        PHASES,
        ChainFaultError,
        CountedWarmUp,
        IrreproducibleError,
        LoggedRun,
        Phase,
        Row,
        Rowed,
        RowLog,
        RunNotes,
        Segment,
        segments_of,
    )
    from .schema import PEAK_HEAD, Feature, FeatureSchema, HeadActivation, HeadLayout, HeadSpec
    from .sealed_files import HDF5_SIGNATURE, Form, Sealed, read_sealed, write_sealed
    from .steering import (
        SAME_POINT,
        ExpectsPeak,
        HistorySteerer,
        Observation,
        Steerer,
        Suggestion,
        distinct,
        find_largest_gaps,
    )
    from .substrate import (
        Cost,
        Discovery,
        Kind,
        Missing,
        NoEngine,
        Property,
        Substrate,
        SubstrateInfo,
        Workload,
        check_memory,
        discover,
        memory_bytes,
        spelled,
    )
    from .threads import cores_for, one_thread

__all__ = [
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
]
__getattr__, __dir__ = on_demand(__name__, __all__)
