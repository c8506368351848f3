"""A substrate: a piece of silicon with an identity, properties and capabilities.

`SubstrateInfo` is the record that travels (tables, JSON, journals); `Substrate` is the live object a plug-in hands
out, which can also price a workload, meter energy and open an engine, on which fields live. `Discovery` is what a
plug-in's `discover` returns: what it found and what it missed, with the reason and the command that adds it. A
`Workload` is a kind of work, described by what it needs and how much it is: what `route` places on a substrate.
`discover` asks every plug-in for what it finds on this machine.
"""

import os
import re
import resource
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable

import msgspec

from .capabilities import Capability
from .errors import PlacementError
from .plugins import load_plugins, warn_broken
from .quantities import EnergyMeter, Quantity

Property: TypeAlias = str | int | float | bool
GROUP = "metalforge.substrates"
"""Entry-point group; a plug-in is a function without arguments that returns a `Discovery`."""


class Kind(StrEnum):
    """The kinds of silicon."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"


class SubstrateInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a substrate without touching it.

    `name` is unique on the machine (``cpu:0``, ``cuda:0``, ``akd1000-emulated``); `model` is what the maker calls it.
    `properties` holds named facts with their unit in the name (``memory_bytes``, ``power_limit_w``).
    """

    kind: Kind
    name: str
    model: str
    capabilities: tuple[Capability, ...]
    properties: dict[str, Property] = {}

    def record(self) -> dict[str, object]:
        """Return this as plain JSON values, capabilities by label."""
        labels = [c.label for c in self.capabilities]
        return {**msgspec.structs.asdict(self), "kind": self.kind.value, "capabilities": labels}


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workload profile.

    `flops` and `bytes_moved` count one call at the reference size named in `size`; a cost model turns them into time
    and energy. `precision` is the arithmetic those operations use.
    """

    name: str
    summary: str
    needs: tuple[Capability, ...]
    prefer: Kind | None = None
    size: str
    flops: float
    bytes_moved: float
    precision: str = "f64"

    def __post_init__(self) -> None:
        if not self.needs:
            raise ValueError(f"workload `{self.name}` must need at least one capability")
        if not (self.flops > 0 and self.bytes_moved > 0):
            raise ValueError(f"`flops` and `bytes_moved` of workload `{self.name}` must be positive")


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of one call of a workload; None where there is no figure, and then `unknown` says why."""

    latency: Quantity | None = None
    energy: Quantity | None = None
    unknown: str = ""

    @classmethod
    def total(cls, parts: Iterable["Cost"]) -> "Cost":
        """Return the sum of at least one part; what is unknown in one part is unknown in the sum."""
        parts = list(parts)
        unknown = "; ".join(dict.fromkeys(part.unknown for part in parts if part.unknown))
        latency, energy = _sum([part.latency for part in parts]), _sum([part.energy for part in parts])
        return cls(latency=latency, energy=energy, unknown=unknown)

    def __mul__(self, part: float) -> "Cost":
        """Return a part, or a multiple, of the cost."""
        latency, energy = (None if figure is None else figure * part for figure in (self.latency, self.energy))
        return Cost(latency=latency, energy=energy, unknown=self.unknown)

    def __str__(self) -> str:
        """Return the figures there are, and why others are not."""
        return ", ".join(str(part) for part in (self.latency, self.energy, self.unknown) if part)

    def figure(self, objective: str) -> Quantity | None:
        """Return what an objective looks at: the joules for `energy`, else the seconds."""
        return self.energy if objective == "energy" else self.latency


def _sum(quantities: Sequence[Quantity | None]) -> Quantity | None:
    known = [quantity for quantity in quantities if quantity is not None]
    return reduce(add, known) if len(known) == len(quantities) and known else None  # mixing raises


@runtime_checkable
class Substrate(Protocol):
    """A live piece of silicon, as plug-ins provide it."""

    @property
    def info(self) -> SubstrateInfo:
        """Identity, properties, capabilities."""

    def cost(self, workload: Workload) -> Cost:
        """Price one call of `workload`; called only when the capabilities meet its needs."""

    def meter(self) -> EnergyMeter:
        """Return the best energy meter there is for this substrate, readable or not."""

    def open_engine(self, *, threads: int | None = None, variant: str = "") -> Any:
        """Return what fields live on here, a `metalforge.native.engine.Engine`; one without raises PlacementError.

        `variant` names another way in which it computes, where there are several.
        """


class NoEngine:
    """A substrate that fields cannot live on; inherit it where there is no engine."""

    info: SubstrateInfo

    def open_engine(self, *, threads: int | None = None, variant: str = "") -> NoReturn:
        """Say that there is none."""
        raise PlacementError(
            f"{self.info.name} ({self.info.model}) has no engine for chains\nhint: cpu:0 has one, everywhere"
        )


def spelled(name: str) -> str:
    """Return a substrate's name as it is written: people also type ``cpu0`` for ``cpu:0``."""
    return re.sub(r"^(cpu|cuda)(\d+)$", r"\1:\2", name)


class Missing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that could be here and is not: what, why, and what adds it."""

    what: str
    reason: str
    remedy: str = ""


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the machine found and missed."""

    substrates: tuple[Substrate, ...] = ()
    missing: tuple[Missing, ...] = ()

    def __add__(self, other: "Discovery") -> "Discovery":
        return Discovery(substrates=self.substrates + other.substrates, missing=self.missing + other.missing)


_ORDER = (Kind.CPU, Kind.GPU, Kind.NPU)


def discover() -> Discovery:
    """Return everything the plug-ins found, CPUs first, and everything they missed, with reasons.

    Never raises and initialises no device.
    """
    found = Discovery()
    for name, plugin in load_plugins(GROUP).items():
        try:
            part = plugin()
            if not isinstance(part, Discovery) or not all(isinstance(s, Substrate) for s in part.substrates):
                raise TypeError("discover() must return a metalforge.core.Discovery of substrates")
        except Exception as error:
            # One stranger's bug must not hide the rest of the machine.
            message = f"substrate plug-in `{name}` failed: {type(error).__name__}: {error}"
            warn_broken(message)
            part = Discovery(missing=(Missing(what=name, reason=message),))
        found += part
    ordered = sorted(found.substrates, key=lambda s: _ORDER.index(s.info.kind))
    return Discovery(substrates=tuple(ordered), missing=found.missing)


def memory_bytes() -> int | None:
    """Return the memory of this machine, or the limit of this process (`ulimit -v`) where that is less."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return installed if limit == resource.RLIM_INFINITY else min(installed, limit)


def check_memory(what: str, needed: int) -> None:
    """Return if so many bytes can be there at all; otherwise raise, naming what they are for."""
    here = memory_bytes()
    if here is not None and needed > here:
        raise PlacementError(f"{what} would take {needed / 2**30:,.1f} GiB of memory. Here are {here / 2**30:,.1f} GiB")
