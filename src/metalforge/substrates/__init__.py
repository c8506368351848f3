"""Where work can run: a look at the machine, workload profiles, prices, and `route`, which places one on the other."""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand
from metalforge.core.substrate import discover

if TYPE_CHECKING:
    from .catalogue import WORKLOADS, load_workload, workload
    from .meters import ModelledMeter, NvmlMeter, RaplMeter
    from .placing import Decision, Policy, Rejection, route
    from .profiles import PROFILES, DeviceProfile, profile

__all__ = [
    "PROFILES",
    "WORKLOADS",
    "Decision",
    "DeviceProfile",
    "ModelledMeter",
    "NvmlMeter",
    "Policy",
    "RaplMeter",
    "Rejection",
    "discover",
    "load_workload",
    "profile",
    "route",
    "workload",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
