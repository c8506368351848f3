"""Time and energy of a call from peak rates: max(flops / F, bytes / B) + the cost of starting it."""

import msgspec

from metalforge.core.quantities import Modelled
from metalforge.core.substrate import Cost
from metalforge.core.workload import Workload

__all__ = ["Roofline"]


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
