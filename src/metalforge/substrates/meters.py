"""Energy meters: RAPL for CPUs, NVML for NVIDIA GPUs, a profile where nothing can be read.

Each says when it cannot be read instead of returning zero. Counters are per device, not per process: what else runs
on the device is in the figure, and `Measured.how` says so.
"""

import importlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metalforge.core import Measured, MeterUnavailableError, Modelled


class RaplMeter:
    """The package counters of Linux powercap (``energy_uj``), summed over sockets.

    The counter wraps at ``max_energy_range_uj`` (minutes to hours at full load); a wrap between two reads is undone,
    so read more often than that.
    """

    name = "rapl"

    def __init__(self, powercap: Path = Path("/sys/class/powercap")) -> None:
        # intel-rapl:0 is a package; intel-rapl:0:1 is a part of it and would be counted twice. AMD uses the same names.
        self._powercap = powercap
        self._zones = sorted(p for p in powercap.glob("intel-rapl:*") if p.name.count(":") == 1)
        self._last: dict[Path, int] = {}
        self._joules = 0.0
        if self.unavailable() is None:
            self._advance()
            self._joules = 0.0

    def unavailable(self) -> str | None:
        """None when every package can be read."""
        if not self._zones:
            return (
                f"no RAPL package under {self._powercap}: virtual machines, containers and ARM have none; "
                "on a bare x86 machine load the module with `modprobe intel_rapl_msr`"
            )
        for zone in self._zones:
            try:
                (zone / "energy_uj").read_text()
            except OSError as error:
                return (
                    f"{zone / 'energy_uj'} cannot be read ({error.strerror}): it is root-only on current kernels; "
                    "run as root or `chmod a+r` it"
                )
        return None

    def total(self) -> Measured:
        """Return joules of all packages since this meter was made."""
        if reason := self.unavailable():
            raise MeterUnavailableError(f"{self.name}: {reason}")
        self._advance()
        return Measured(value=self._joules, unit="J", how="RAPL package counters, whole socket")

    def _advance(self) -> None:
        for zone in self._zones:
            now = int((zone / "energy_uj").read_text())
            before = self._last.get(zone, now)
            wrapped = int((zone / "max_energy_range_uj").read_text()) if now < before else 0
            self._joules += (now + wrapped - before) * 1e-6
            self._last[zone] = now


class NvmlMeter:
    """NVML's total energy counter of one GPU, in millijoules since the driver was loaded (Volta or newer)."""

    def __init__(self, index: int = 0, nvml: Any = None) -> None:
        self.name = f"nvml:{index}"
        self._index = index
        self._nvml = nvml
        self._start_mj: int | None = None
        try:
            self._start_mj = self._read_mj()
            self._reason: str | None = None
        except Exception as error:  # no module, no driver, no counter: one answer to the reader
            self._reason = f"{type(error).__name__}: {error}".split("\n")[0]

    def unavailable(self) -> str | None:
        """None when the counter can be read."""
        return self._reason

    def total(self) -> Measured:
        """Return joules of the device since this meter was made."""
        if self._reason or self._start_mj is None:
            raise MeterUnavailableError(f"{self.name}: {self._reason}")
        try:
            joules = (self._read_mj() - self._start_mj) * 1e-3
        except Exception as error:  # the device vanished
            raise MeterUnavailableError(f"{self.name}: {type(error).__name__}: {error}") from error
        return Measured(value=joules, unit="J", how="NVML total energy counter, whole device")

    def _read_mj(self) -> int:
        if self._nvml is None:
            if find_spec("pynvml") is None:
                raise MeterUnavailableError("nvidia-ml-py is not installed; hint: pip install 'metalforge[cuda]'")
            self._nvml = importlib.import_module("pynvml")
        self._nvml.nvmlInit()
        handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))


class ModelledMeter:
    """Joules of a profile's power over the time that passes; for devices without a counter."""

    def __init__(self, *, profile: str, power_w: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = f"model:{profile}"
        self._profile, self._power_w, self._clock = profile, power_w, clock
        self._start = clock()

    def unavailable(self) -> None:
        """A model can always be read."""
        return

    def total(self) -> Modelled:
        """Return power times the time since this meter was made."""
        joules = self._power_w * (self._clock() - self._start)
        return Modelled(value=joules, unit="J", profile=self._profile)
