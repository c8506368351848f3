"""CUDA GPUs, the one home of cupy and NVML. Discovery reads NVML, else cupy's device properties: no context is made."""

import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from metalforge.core import (
    GENERAL_PURPOSE,
    BatchInference,
    Cost,
    Discovery,
    EnergyMeter,
    Kind,
    MetalforgeError,
    Missing,
    Property,
    Substrate,
    SubstrateInfo,
    Trait,
    Workload,
)

from .meters import NvmlMeter

if TYPE_CHECKING:  # a machine without a GPU loads nothing of it
    from metalforge.native import CudaEngine

_REMEDY = "pip install 'metalforge[cuda]'"

FP32_LANES_AND_FP64_RATIO = msgspec.toml.decode(
    Path(__file__).with_name("cuda_rates.toml").read_bytes(), type=dict[str, tuple[int, int]]
)
"""FP32 lanes a multiprocessor, and FP32 rate / FP64 rate, by compute capability."""


class CudaSubstrate:
    """One CUDA device."""

    def __init__(self, index: int, model: str, properties: dict[str, Property]) -> None:
        self._index = index
        self.info = SubstrateInfo(
            kind=Kind.GPU,
            name=f"cuda:{index}",
            model=model,
            capabilities=(*GENERAL_PURPOSE, BatchInference(max_batch=2**16), Trait.PCIE_TRANSFER),
            properties=properties,
        )

    def cost(self, workload: Workload) -> Cost:
        """Price a call from the device's peak rates and power limit: a model, good to a factor of a few."""
        from .prices import DF64_OPERATIONS, Roofline

        known = {k: float(v) for k, v in self.info.properties.items() if isinstance(v, int | float)}
        if "fp32_flops_per_s" not in known or "bandwidth_bytes_per_s" not in known:
            return Cost(unknown="peak rates of this GPU are not known (compute capability or clocks not readable)")
        scale = {"f64": 1 / known["fp64_ratio"], "df64": 1 / DF64_OPERATIONS}.get(workload.precision, 1.0)
        return Roofline(
            profile="cuda-roofline",
            flops_per_s=known["fp32_flops_per_s"] * scale,
            bytes_per_s=known["bandwidth_bytes_per_s"],
            call_s=10e-6,  # a kernel launch and its wait
            power_w=known.get("power_limit_w"),
            no_power="the power limit could not be read (NVML)",
        ).cost(workload)

    def meter(self) -> EnergyMeter:
        """NVML's counter of this device, readable or not."""
        return NvmlMeter(self._index)

    def open_engine(self, *, threads: int | None = None, variant: str = "") -> "CudaEngine":
        """The kernels on this card, by a strategy of `Fp64Strategy`; threads are the host's, which it has one of."""
        from metalforge.native import cuda_engine

        return cuda_engine(self._index, variant or "native")


def fp64_choices(found: Sequence[Substrate]) -> dict[str, dict[str, object]]:
    """Measure how trajectories in double precision use each card; seconds, and more when kernels are compiled first.

    A card that cannot be measured has a `line` that says why, and nothing else.
    """
    from metalforge.native import cuda_engine

    measured: dict[str, dict[str, object]] = {}
    for one in found:
        if not isinstance(one, CudaSubstrate):
            continue
        try:
            choice = cuda_engine(one._index, "auto").fp64
        except MetalforgeError as error:
            reason = str(error).partition("\n")[0]
            measured[one.info.name] = {"line": f"not measured: {reason}"}
        else:
            names = ("strategy", "pair_share", "seconds", "line")
            measured[one.info.name] = {name: getattr(choice, name) for name in names}
    return measured


def discover(proc: Path = Path("/proc")) -> Discovery:
    """Return the CUDA devices, asking NVML first and cupy second."""
    reasons = []
    for module, ask in (("pynvml", _from_nvml), ("cupy", _from_cupy)):
        if find_spec(module) is None:
            reasons.append(f"{module} is not installed")
            continue
        try:
            devices = ask(importlib.import_module(module))
        except Exception as error:  # no driver, no device, wrong version: all the same to a reader
            reasons.append(f"{module}: {type(error).__name__}: {error}".split("\n")[0])
            continue
        if devices:
            no_cupy = Missing(what="cupy", reason="a GPU is here, but kernels reach it through cupy", remedy=_REMEDY)
            return Discovery(substrates=tuple(devices), missing=() if find_spec("cupy") else (no_cupy,))
        reasons.append(f"{module} lists no device")
    driver = (proc / "driver/nvidia/version").exists()
    reason = "; ".join(reasons) + ("" if driver else "; no NVIDIA driver is loaded")
    remedy = _REMEDY if driver else f"on a machine with an NVIDIA GPU and driver: {_REMEDY}"
    return Discovery(missing=(Missing(what="CUDA GPU", reason=reason, remedy=remedy),))


def _rates(capability: str, multiprocessors: int, clock_hz: float) -> dict[str, float]:
    if capability not in FP32_LANES_AND_FP64_RATIO or not (multiprocessors and clock_hz):
        return {}
    lanes, ratio = FP32_LANES_AND_FP64_RATIO[capability]
    return {"fp32_flops_per_s": 2.0 * lanes * multiprocessors * clock_hz, "fp64_ratio": ratio}


def _from_nvml(nvml: Any) -> list[CudaSubstrate]:
    nvml.nvmlInit()
    try:
        return [_nvml_device(nvml, i) for i in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


def _nvml_device(nvml: Any, index: int) -> CudaSubstrate:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(query: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return query(handle, *arguments)
        except nvml.NVMLError:  # not every board answers every question
            return None

    properties: dict[str, Property] = {"found_by": "NVML"}
    if memory := ask(nvml.nvmlDeviceGetMemoryInfo):
        properties["memory_bytes"] = int(memory.total)
    if limit := ask(nvml.nvmlDeviceGetPowerManagementLimit):
        properties["power_limit_w"] = limit / 1e3
    capability = ask(nvml.nvmlDeviceGetCudaComputeCapability)
    cores = ask(nvml.nvmlDeviceGetNumGpuCores) or 0
    clock_mhz = ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM) or 0
    if capability:
        capability = properties["compute_capability"] = f"{capability[0]}.{capability[1]}"
        lanes = FP32_LANES_AND_FP64_RATIO.get(capability, (0, 0))[0]
        properties |= _rates(capability, cores // lanes if lanes else 0, clock_mhz * 1e6)
    bus_bits = ask(nvml.nvmlDeviceGetMemoryBusWidth)
    memory_mhz = ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM)
    if bus_bits and memory_mhz:
        properties["bandwidth_bytes_per_s"] = 2 * memory_mhz * 1e6 * bus_bits / 8
    name = nvml.nvmlDeviceGetName(handle)
    return CudaSubstrate(index, name.decode() if isinstance(name, bytes) else str(name), properties)


def _from_cupy(cupy: Any) -> list[CudaSubstrate]:
    devices = []
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        facts = cupy.cuda.runtime.getDeviceProperties(index)
        capability = f"{facts['major']}.{facts['minor']}"
        properties: dict[str, Property] = {
            "found_by": "cupy",
            "memory_bytes": int(facts["totalGlobalMem"]),
            "compute_capability": capability,
        }
        # CUDA 13 took the clocks out of the property record; they are device attributes now.
        attributes = cupy.cuda.Device(index).attributes
        clock_hz = 1e3 * float(attributes.get("ClockRate", 0))
        properties |= _rates(capability, int(facts["multiProcessorCount"]), clock_hz)
        bus_bits, memory_khz = int(facts["memoryBusWidth"]), float(attributes.get("MemoryClockRate", 0))
        if bus_bits and memory_khz:
            properties["bandwidth_bytes_per_s"] = 2 * memory_khz * 1e3 * bus_bits / 8
        name = facts["name"]
        devices.append(CudaSubstrate(index, name.decode() if isinstance(name, bytes) else str(name), properties))
    return devices
