"""Where work can run: a look at the machine, workload profiles, prices, and `route`, which places one on the other."""

from metalforge.core.discovery import discover

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
