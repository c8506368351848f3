"""Numbers that say where they come from: `Measured` (and how) or `Modelled` (and from which profile).

The two are different types. Adding, subtracting, comparing or dividing one with the other is a type error, for mypy
and at run time; so is mixing units. A report can therefore never show a number that is half of each.

A meter (`EnergyMeter`) is a counter of joules that only grows, of hardware or of a modelled profile. It says why it
cannot be read (`unavailable`); reading it then raises, and never returns a silent zero.
"""

import math
from typing import ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import msgspec

_PREFIXES = {-12: "p", -9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T"}


def _engineering(value: float, unit: str) -> str:
    """Return three digits with an SI prefix: ``650 us``, ``1.4 uJ``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    power = min(max(3 * math.floor(math.log10(abs(value)) / 3), -12), 12)
    return f"{value / 10.0**power:.3g} {_PREFIXES[power]}{unit}"


class _Sourced(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="source"):
    """A value, its unit, and in the subclass where it comes from."""

    value: float
    unit: str

    _origin: ClassVar[str]
    """The field that says how it was measured, or the profile it was modelled from."""

    def _with(self, value: float, other: Self | None = None) -> Self:
        origins = dict.fromkeys(getattr(one, self._origin) for one in (self, other) if one is not None)
        return msgspec.structs.replace(self, value=value, **{self._origin: "; ".join(origins)})

    def _check(self, other: object, verb: str) -> None:
        if not isinstance(other, _Sourced):
            raise TypeError(
                f"cannot {verb} `{self}` and a plain {type(other).__name__}: "
                "say whether it is Measured(...) or Modelled(...)"
            )
        if type(other) is not type(self):
            raise TypeError(
                f"cannot {verb} a measured and a modelled quantity: `{self}` and `{other}`. "
                "Report them side by side instead"
            )
        if other.unit != self.unit:
            raise TypeError(f"cannot {verb} quantities of different units: `{self}` and `{other}`")

    def __add__(self, other: Self) -> Self:
        self._check(other, "add")
        return self._with(self.value + other.value, other)

    def __sub__(self, other: Self) -> Self:
        self._check(other, "subtract")
        return self._with(self.value - other.value, other)

    def __mul__(self, factor: float) -> Self:
        if not isinstance(factor, int | float):
            raise TypeError("multiply a quantity by a plain number; for products of units build the new quantity")
        return self._with(self.value * factor)

    __rmul__ = __mul__

    def ratio(self, other: Self) -> float:
        """Return ``self / other`` as a plain number; both must be of one kind and unit."""
        self._check(other, "divide")
        return self.value / other.value

    def __lt__(self, other: Self) -> bool:
        self._check(other, "compare")
        return self.value < other.value

    def __le__(self, other: Self) -> bool:
        self._check(other, "compare")
        return self.value <= other.value

    def __str__(self) -> str:
        kind = type(self).__name__.lower()
        return f"{_engineering(self.value, self.unit)} ({kind}: {getattr(self, self._origin)})"


class Measured(_Sourced, frozen=True, kw_only=True, tag="measured"):
    """A number read off something real; `how` names the instrument or procedure."""

    _origin = "how"
    how: str


class Modelled(_Sourced, frozen=True, kw_only=True, tag="modelled"):
    """A number computed from a device profile; `profile` names it."""

    _origin = "profile"
    profile: str


Quantity: TypeAlias = Measured | Modelled


@runtime_checkable
class EnergyMeter(Protocol):
    """A growing counter of joules with a source."""

    @property
    def name(self) -> str:
        """For example ``rapl:package-0``, ``nvml:0`` or ``model:akd1000-published``."""

    def unavailable(self) -> str | None:
        """Return None when the counter can be read, else the reason and what would mend it."""

    def total(self) -> Quantity:
        """Return joules since this meter was made; raises `MeterUnavailableError` when it cannot be read."""


@runtime_checkable
class RecentMeter(EnergyMeter, Protocol):
    """A meter that is far away, and knows what it read last."""

    def recent(self) -> Quantity:
        """Return the last total that came, without waiting for another; raises as `total` does."""
