"""The CPU: always there, and first. Facts come from the operating system; nothing is timed here."""

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from metalforge import native
from metalforge.core import (
    GENERAL_PURPOSE,
    Capability,
    Cost,
    Discovery,
    EnergyMeter,
    Kind,
    MetalforgeError,
    Missing,
    PlacementError,
    Property,
    SubstrateInfo,
    Trait,
    Workload,
    memory_bytes,
)
from metalforge.native import CpuEngine, cpu_engine

from .meters import RaplMeter

if TYPE_CHECKING:
    from .prices import Roofline

_FLOPS_PER_CYCLE = {"portable": 4, "v2": 4, "v3": 16, "v4": 16}
"""Double-precision flops a core can start each cycle: two vector multiply-adds (v2: a multiply and an add).
Counted low for v4, where some cores have twice as much."""

_BYTES_PER_SECOND = 20e9
"""Assumed memory bandwidth: one channel of DDR4-2666 is 21 GB/s (JEDEC), the least a current machine has."""


class CpuSubstrate:
    """All cores of the machine as one substrate."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._sys = sys
        text = _read(proc / "cpuinfo")
        properties: dict[str, Property] = {"cores": _usable_cores(), "logical_cpus": os.cpu_count() or 1}
        if memory := memory_bytes():
            properties["memory_bytes"] = memory
        properties |= _caches(sys / "devices/system/cpu/cpu0/cache")
        if clock := _clock_hz(text, sys):
            properties["clock_hz"] = clock
        capabilities: list[Capability] = [*GENERAL_PURPOSE]
        try:
            properties["isa"] = native.level()
            properties["isa_supported"] = " ".join(native.supported_levels())
            properties["vector_bits"] = native.kernels().vector_bytes * 8
            if native.kernels().vector_bytes >= 32:
                capabilities.append(Trait.SIMD)
        except MetalforgeError as error:
            properties["isa"] = f"unavailable: {error}".split("\n")[0]
        self.info = SubstrateInfo(
            kind=Kind.CPU,
            name="cpu:0",
            model=_model(text),
            capabilities=tuple(capabilities),
            properties=properties,
        )

    def roofline(self, precision: str) -> "Roofline | None":
        """Return peak rates from core count, clock and vector width: a model, good to a factor of a few."""
        from .prices import DF64_OPERATIONS, Roofline

        known = self.info.properties
        if "clock_hz" not in known:
            return None
        flops = float(known["cores"]) * float(known["clock_hz"]) * _FLOPS_PER_CYCLE.get(str(known["isa"]), 4)
        scale = {"f64": 1.0, "f32": 2.0, "df64": 2.0 / DF64_OPERATIONS}.get(precision, 2.0)
        return Roofline(
            profile="cpu-roofline",
            flops_per_s=flops * scale,
            bytes_per_s=_BYTES_PER_SECOND,
            call_s=1e-6,
            no_power="no power figure: CPUs do not state their draw",
        )

    def cost(self, workload: Workload) -> Cost:
        """Price a call by the roofline."""
        from .prices import NO_CLOCK

        roofline = self.roofline(workload.precision)
        return Cost(unknown=NO_CLOCK) if roofline is None else roofline.cost(workload)

    def meter(self) -> EnergyMeter:
        """RAPL, readable or not."""
        return RaplMeter(self._sys / "class/powercap")

    def open_engine(self, *, threads: int | None = None, variant: str = "") -> CpuEngine:
        """The compiled kernels at the level in use."""
        if variant:
            raise PlacementError(
                f"{self.info.name} computes trajectories in doubles. Got the variant {variant}, which is for GPUs"
            )
        return cpu_engine(threads=threads)


def discover() -> Discovery:
    """Return the CPU, and what cannot be measured on it."""
    cpu = CpuSubstrate()
    missing = []
    if reason := cpu.meter().unavailable():
        missing.append(Missing(what="CPU energy counter (RAPL)", reason=reason))
    try:
        if not native.openmp():
            missing.append(
                Missing(
                    what="OpenMP",
                    reason="the kernels were built without it and run on one thread",
                    remedy="install libomp (macOS) or libgomp1 (Linux), then `make clean install`",
                )
            )
    except MetalforgeError as error:
        missing.append(Missing(what="compiled kernels", reason=str(error)))
    return Discovery(substrates=(cpu,), missing=tuple(missing))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _model(cpuinfo: str) -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _clock_hz(cpuinfo: str, sys: Path) -> float | None:
    """The highest clock the system states, in Hz; virtual machines only show the current one."""
    khz = _read(sys / "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if khz.isdecimal():
        return int(khz) * 1e3
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", cpuinfo, re.MULTILINE)
    return float(match[1]) * 1e6 if match else None


def _caches(folder: Path) -> dict[str, int]:
    """Sizes such as ``l1d_bytes``, ``l2_bytes``, ``l3_bytes`` of the first core."""
    sizes = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = (_read(index / name).strip() for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KM]?)", size)
        if not match or kind == "Instruction":
            continue
        name = f"l{level}{'d' if kind == 'Data' else ''}_bytes"
        sizes[name] = int(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]]
    return sizes
