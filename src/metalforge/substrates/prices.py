"""The price list: what a piece of work costs on a device, from a profile of it, in seconds and joules.

- A host or GPU: its roofline, max(flops / F, bytes / B) + the cost of starting a call (`Roofline`); an op of a model on
  the host by means of it (`HostModel`).
- An NPU: its device profile (`substrates.npu.costs`): calls of programs, updates, loads, an idle board.

All of it is `Modelled` and says from what. Prices add up and are shared out as `core.substrate.Cost` does it; `rank`
orders them. Who compares prices and places work by them: `placing`.
"""

from typing import Literal, Protocol, TypeAlias

import msgspec

from metalforge.core import Cost, Modelled, Trait, Workload

Objective: TypeAlias = Literal["latency", "energy", "accuracy", "hw_only"]
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

    def cost(self, workload: Workload, *, unknown_energy: str = "no power figure") -> Cost:
        """Price one call of `workload`."""
        seconds = self.call_s + max(workload.flops / self.flops_per_s, workload.bytes_moved / self.bytes_per_s)
        latency = Modelled(value=seconds, unit="s", profile=self.profile)
        if self.power_w is None:
            return Cost(latency=latency, unknown=unknown_energy)
        return Cost(latency=latency, energy=Modelled(value=seconds * self.power_w, unit="J", profile=self.profile))


class Pricer(Protocol):
    """Something that prices a call: a substrate or a roofline."""

    def cost(self, workload: Workload) -> Cost:
        """Price one call of `workload`."""
        ...


class HostModel:
    """Prices calls on the host by means of a pricer; this machine's CPU unless another is given.

    `cache_bytes` is what the host keeps near between two calls: the largest cache.
    """

    def __init__(
        self, pricer: Pricer | None = None, *, power_w: float | None = None, cache_bytes: int | None = None
    ) -> None:
        if pricer is None:
            from .cpu import CpuSubstrate

            cpu = CpuSubstrate()
            caches = [cpu.info.properties.get(name, 0) for name in ("l2_bytes", "l3_bytes")]
            cache_bytes = max(int(size) for size in caches) if cache_bytes is None else cache_bytes
            pricer = cpu
        self._pricer = pricer
        self._power_w = power_w
        self.cache_bytes = cache_bytes or 0
        latency = self.call(1.0, 1.0).latency
        self.profile = latency.profile if isinstance(latency, Modelled) else "unknown host"

    def call(self, flops: float, moved: float, precision: str = "f32") -> Cost:
        """Price one call of so many operations and bytes."""
        cost = self._pricer.cost(
            Workload(
                name="op",
                summary="one op of a graph",
                needs=(Trait.F32,),
                size="one call",
                flops=max(flops, 1.0),
                bytes_moved=max(moved, 1.0),
                precision=precision,
            )
        )
        if cost.energy is not None or cost.latency is None:
            return cost
        if self._power_w is None:
            return Cost(latency=cost.latency, unknown=NO_POWER)
        profile = f"{getattr(cost.latency, 'profile', 'host')} at {self._power_w:g} W"
        energy = Modelled(value=cost.latency.value * self._power_w, unit="J", profile=profile)
        return Cost(latency=cost.latency, energy=energy)

    def nothing(self) -> Cost:
        """Price what takes no time at all."""
        return self.call(1.0, 1.0) * 0.0


def rank(cost: Cost, objective: str) -> tuple[float, float]:
    """Return what is to be small: first whether there is no figure, then the figure."""
    quantity = cost.figure(objective)
    return (1.0, 0.0) if quantity is None else (0.0, quantity.value)
