"""Where work can run: a look at the machine, workload profiles, prices, and `route`, which places one on the other."""

from typing import TYPE_CHECKING

from metalforge.core import discover, on_demand

if TYPE_CHECKING:
    from .catalogue import WORKLOADS, load_workload, workload
    from .cuda_ import fp64_choices
    from .meters import ModelledMeter, NvmlMeter, RaplMeter
    from .npu import costs, mesh, wire
    from .npu.akida_ import AkidaDevice, write_sdk_profile
    from .npu.certificate import overflow_certificate
    from .npu.compile import CompiledLinear, compile_linear, joined
    from .npu.conformance import compare
    from .npu.costs import BoardEnergy, board_energy, call_seconds, programs_cost, shape_seconds, update_cost
    from .npu.device import (
        DeviceGoneError,
        DeviceTimeoutError,
        NpuDevice,
        NpuError,
        ResourceError,
        Spent,
        Statistics,
        image_bytes,
    )
    from .npu.emulator import EmulatedDevice
    from .npu.exact import ExactMatrix, exact_loop
    from .npu.ladder import (
        Ladder,
        build_ladder,
        digit_limit,
        encode_unsigned,
        encode_zero_point,
        group_ranges,
        input_levels,
        join_digits,
        ladder_of,
        quantize_digits,
    )
    from .npu.mesh import Placement, side_by_side, units_on_chip
    from .npu.program import POTENTIAL_BITS, Activation, Encoding, FullyConnected, Program, ProgramError
    from .npu.quantize import Quantized, quantize
    from .npu.residency import DevicePrograms
    from .npu.sequence import SequenceLoop
    from .placing import Decision, Gain, Policy, Rejection, choose, route
    from .prices import HOST_STEPS, NO_POWER, HostModel, Objective, Roofline, rank
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
