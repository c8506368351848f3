"""Energy: one protocol for hardware counters and modelled profiles.

A meter is a counter of joules that only grows. What it cannot read it says (`unavailable`), and reading it then
raises; it never returns a silent zero.
"""

from typing import Protocol, runtime_checkable

from .quantities import Quantity


@runtime_checkable
class EnergyMeter(Protocol):
    """A growing counter of joules with a source."""

    @property
    def name(self) -> str:
        """For example ``rapl:package-0``, ``nvml:0`` or ``model:akd1000-published``."""
        ...

    def unavailable(self) -> str | None:
        """Return None when the counter can be read, else the reason and what would mend it."""
        ...

    def total(self) -> Quantity:
        """Return joules since this meter was made; raises `MeterUnavailableError` when it cannot be read."""
        ...


@runtime_checkable
class RecentMeter(EnergyMeter, Protocol):
    """A meter that is far away, and knows what it read last."""

    def recent(self) -> Quantity:
        """Return the last total that came, without waiting for another; raises as `total` does."""
        ...
