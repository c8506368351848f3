"""What travels in a campaign's graph: orders to producers, blocks of rows back, configurations to be checked."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.store.records import Record
from metalforge.lattice.rows import Segment

__all__ = ["Block", "Order", "Snapshot", "Start", "stage_of"]


def stage_of(substrate: str) -> str:
    """Return the name of the stage that produces on a logical substrate: `cpu:0` is `produce-cpu.0`."""
    return f"produce-{substrate.replace(':', '.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The first item: plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Move the chain of a visit by at most `updates`, until `until` of its updates are measured."""

    visit: int
    chain: str
    updates: int
    until: int
    substrate: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One configuration to be evaluated again, with what was measured on it."""

    chain: str
    step: int
    links: NDArray[np.complex128]
    precision: str
    plaquette: float
    polyakov: complex


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """What an order gave. `chi` is that of the chain's last measurements, and what filters look at."""

    visit: int
    chain: str
    beta: float
    segments: list[Segment]
    step: int
    measured: int
    done: bool
    links: str
    seconds: float
    substrate: str
    chi: float
    fault: str = ""
    snapshots: list[Snapshot] = field(default_factory=list)
    screened: list[Record] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows in it."""
        return sum(len(next(iter(s.columns.values()))) for s in self.segments)
