"""The price list: what a piece of work costs on a device, from a profile of it, in seconds and joules.

- A host or GPU: its roofline, max(flops / F, bytes / B) + the cost of starting a call (`Roofline`); an op of a model on
  the host by means of it (`HostModel`).
- An NPU: its device profile (`substrates.npu.costs`): calls of programs, updates, loads, an idle board.

All of it is `Modelled` and says from what. Prices add up and are shared out as `core.substrate.Cost` does it; `rank`
orders them. Who compares prices and places work by them: `placing`.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from metalforge.core import Cost, Modelled, Workload

Objective: TypeAlias = Literal["latency", "energy", "accuracy", "hw_only"]
NO_CLOCK = "the clock of this CPU could not be read"
NO_POWER = "no power figure for the host: give host_power_w"
HOST_STEPS = 4
"""Operations that encoding an input line, or joining a potential, takes on the host: multiply, round, clip, shift."""
DF64_OPERATIONS = 15
"""Of floats, for a multiply-add of double-floats (native/df64.hpp)."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of a device; every cost it gives is `Modelled` from `profile`."""

    profile: str
    flops_per_s: float
    bytes_per_s: float
    call_s: float
    power_w: float | None = None
    no_power: str = "no power figure"
    """Why there are no joules, where `power_w` is None."""

    def call(self, flops: float, moved: float) -> Cost:
        """Price one call of so many operations and bytes."""
        seconds = self.call_s + max(flops / self.flops_per_s, moved / self.bytes_per_s)
        latency = Modelled(value=seconds, unit="s", profile=self.profile)
        if self.power_w is None:
            return Cost(latency=latency, unknown=self.no_power)
        return Cost(latency=latency, energy=Modelled(value=seconds * self.power_w, unit="J", profile=self.profile))

    def cost(self, workload: Workload) -> Cost:
        """Price one call of `workload`."""
        return self.call(workload.flops, workload.bytes_moved)


class HostModel:
    """Prices calls on the host: by a roofline that is given, or by that of this machine's CPU.

    `cache_bytes` is what the host keeps near between two calls: the largest cache; 0 for a roofline that is given.
    """

    def __init__(self, roofline: Roofline | None = None, *, power_w: float | None = None) -> None:
        self._power_w, self.cache_bytes = power_w, 0
        self._roofline: Callable[[str], Roofline | None] = lambda _: roofline
        if roofline is None:
            from .cpu import CpuSubstrate

            cpu = CpuSubstrate()
            self._roofline = cpu.roofline
            self.cache_bytes = max(int(cpu.info.properties.get(name, 0)) for name in ("l2_bytes", "l3_bytes"))
        used = self._roofline("f32")
        self.profile = "unknown host" if used is None else used.profile

    def call(self, flops: float, moved: float, precision: str = "f32") -> Cost:
        """Price one call of so many operations and bytes."""
        roofline = self._roofline(precision)
        if roofline is None:
            return Cost(unknown=NO_CLOCK)
        cost = roofline.call(max(flops, 1.0), max(moved, 1.0))
        if cost.energy is not None or cost.latency is None:
            return cost
        if self._power_w is None:
            return Cost(latency=cost.latency, unknown=NO_POWER)
        profile = f"{roofline.profile} at {self._power_w:g} W"
        energy = Modelled(value=cost.latency.value * self._power_w, unit="J", profile=profile)
        return Cost(latency=cost.latency, energy=energy)


def rank(cost: Cost, objective: str) -> tuple[float, float]:
    """Return what is to be small: first whether there is no figure, then the figure."""
    quantity = cost.figure(objective)
    return (1.0, 0.0) if quantity is None else (0.0, quantity.value)
