"""Energy: one protocol for hardware counters and modelled profiles.

A meter is a counter of joules that only grows. What it cannot read it says (`unavailable`), and reading it then
raises; it never returns a silent zero.
"""

from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from .errors import MetalforgeError
from .quantities import Quantity

__all__ = ["EnergyMeter", "EnergySpan"]


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


class EnergySpan:
    """The joules between entering and leaving a ``with`` block.

    >>> with EnergySpan(meter) as span:        # doctest: +SKIP
    ...     work()
    >>> print(span.energy)                     # doctest: +SKIP
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter = meter
        self._start: Quantity | None = None
        self._energy: Quantity | None = None

    def __enter__(self) -> Self:
        self._start = self._meter.total()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._start is not None:
            self._energy = self._meter.total() - self._start  # type: ignore[operator]  # one meter, one kind

    @property
    def energy(self) -> Quantity:
        """Joules used inside the block."""
        if self._energy is None:
            raise MetalforgeError("the span has not ended; read `energy` after the with block")
        return self._energy
