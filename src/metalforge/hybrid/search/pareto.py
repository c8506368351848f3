"""Candidates with their prices, and those of them that nothing beats in every respect.

A price is that of one step's product on the device, under one profile and one precision: modelled, and known from the
shape of the layer alone.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Modelled
from metalforge.hybrid.routing.precision import encoding_of
from metalforge.substrates.npu.costs import power_w, shape_seconds
from metalforge.substrates.profiles import DeviceProfile

from .optuna_ import FinishedTrial
from .space import Parameters

__all__ = ["Point", "SearchBudget", "front", "points", "price"]


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate in the plane of errors and prices; `error` is the NRMSE on validation data."""

    parameters: Parameters
    precision: str
    error: float
    latency: Modelled
    energy: Modelled


class SearchBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a step may take on the device; None is without limit."""

    latency_s: float | None = None
    energy_j: float | None = None

    def __post_init__(self) -> None:
        for name in ("latency_s", "energy_j"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise SpecError(f"`{name}` must be a finite number above 0. Got {value}")

    def allows(self, latency: Modelled, energy: Modelled) -> bool:
        """Return whether a step of this price is within the budget."""
        return latency.value <= (self.latency_s or float("inf")) and energy.value <= (self.energy_j or float("inf"))


def price(units: int, inputs: int, precision: str, profile: DeviceProfile) -> tuple[Modelled, Modelled]:
    """Return seconds and joules of a step's product, for a layer of all inputs and units on the device."""
    seconds = _seconds(units, inputs, precision, profile)
    joules = seconds * power_w(profile, profile.modes[0].name)
    return (
        Modelled(value=seconds, unit="s", profile=profile.name),
        Modelled(value=joules, unit="J", profile=profile.name),
    )


@lru_cache(maxsize=1024)
def _seconds(units: int, inputs: int, precision: str, profile: DeviceProfile) -> float:
    return shape_seconds(units + inputs, units, encoding_of(precision), 1, profile)


def points(finished: Iterable[FinishedTrial], inputs: int, precision: str, profile: DeviceProfile) -> list[Point]:
    """Return the candidates that saw all the data, priced at one precision."""
    found = []
    for trial in finished:
        if trial.error is not None:
            latency, energy = price(trial.parameters.units, inputs, precision, profile)
            found.append(
                Point(
                    parameters=trial.parameters,
                    precision=precision,
                    error=trial.error,
                    latency=latency,
                    energy=energy,
                )
            )
    return found


def front(candidates: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats or equals in error, latency and energy, the cheapest first.

    Of points that agree in all three the first one stays.
    """
    kept: list[Point] = []
    for point in sorted(candidates, key=lambda p: (p.latency.value, p.energy.value, p.error)):
        if not any(k.error <= point.error and k.energy.value <= point.energy.value for k in kept):
            kept.append(point)
    return kept
