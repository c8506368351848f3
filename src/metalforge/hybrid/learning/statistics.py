"""What a trainer did, counted; host time measured, device time modelled, never added up."""

import msgspec

from metalforge.core.quantities import Measured, Modelled
from metalforge.substrates.npu.device import Statistics

__all__ = ["TrainerStatistics", "device_time"]


class TrainerStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts of a trainer. Pushes that changed no integer are not counted: nothing went over."""

    steps: int
    learned: int
    skipped_inputs: int
    """Rows whose input was not finite: not answered, the state stayed."""
    skipped_targets: int
    """Rows whose target was not finite: answered, not learned."""
    pushes: int
    bytes_pushed: int
    integers_changed: int
    push_failures: int
    """Attempts at a push that the device did not acknowledge; each was repeated."""
    rollbacks: int
    mended: int
    """Times that the device was found with other weights and was written again."""
    host: Measured
    learning: Measured
    """The part of it that loss, rule and guard took: no device, no emulation."""
    device: Modelled | None
    energy: Modelled | None
    schedule: str

    @property
    def host_rate(self) -> Measured:
        """Steps a second on this machine, the emulation of the device included."""
        return Measured(value=self.steps / max(self.host.value, 1e-12), unit="Hz", how=self.host.how)

    @property
    def device_rate(self) -> Modelled | None:
        """Steps a second of the device, if the host took no time."""
        if self.device is None or not self.device.value:
            return None
        return Modelled(value=self.steps / self.device.value, unit="Hz", profile=self.device.profile)


def device_time(before: Statistics, now: Statistics) -> tuple[Modelled | None, Modelled | None]:
    """Return the modelled seconds and joules between two looks at a device; None where there is no model."""
    return _less(now.busy, before.busy), _less(now.energy, before.energy)


def _less(now: Modelled | None, before: Modelled | None) -> Modelled | None:
    return None if now is None else now if before is None else now - before
