"""Messages of a campaign's graph: orders to producers, blocks of rows back, configurations to be checked.

All messages are data, so that a producer may be a thread, a process or another machine. An order has what the producer
needs from the journal, and a block has the producer's decisions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.store.records import Decided, Promise, Record
from metalforge.core import Segment

PRODUCE = "produce-"
"""How the names of stages that produce begin."""


def stage_of(substrate: str) -> str:
    """Return the name of the stage that produces on a logical substrate: `cpu:0` is `produce-cpu.0`."""
    return f"{PRODUCE}{substrate.replace(':', '.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Move the chain of a visit by at most `updates`, until `until` of its updates are measured.

    `known` is the chain as the journal knows it, with the other chains of its ladder; it comes with the first order to
    a producer that does not hold the chain. `release` is another order: write the chain to its file and forget it,
    since another producer will take it up.
    """

    visit: int
    chain: str
    updates: int
    until: int
    substrate: str
    known: tuple[ChainLog, ...] = ()
    release: bool = False


@dataclass(frozen=True, slots=True)
class Volley:
    """Orders for one producer that are run together, each for a chain or a ladder of its own."""

    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One configuration to be evaluated again, with what was measured on it."""

    chain: str
    step: int
    configuration: NDArray[Any]
    precision: str
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """The result of an order. Filters look at `chi`, which is computed from the last measurements of the chain."""

    visit: int
    chain: str
    substrate: str
    step: int = 0
    coordinate: float = 0.0
    segments: list[Segment] = field(default_factory=list)
    done: bool = False
    digest: str = ""
    seconds: float = 0.0
    began: float = 0.0
    """When its first update began, by the clock of the machine that made it, since the epoch."""
    chi: float = 0.0
    fault: str = ""
    decisions: list[Decided] = field(default_factory=list)
    """What was decided of the chain on the way; the journal dates them."""
    rung: int = 0
    """Its place in a ladder, whose first chain comes last and speaks for all of them."""
    took: bool = False
    """Whether the chain was taken up with this order: rows that the journal has may be computed again."""
    saved: bool = False
    """Whether a checkpoint was written."""
    released: bool = False
    """The chain is in its file and free for another producer."""
    missing: bool = False
    """The producer does not hold the chain (its process was replaced): the order must come again with the chain."""
    snapshots: list[Snapshot] = field(default_factory=list)
    promised: Promise = "none"
    """Which of its configurations are checked; snapshots of earlier ones may come with them."""
    screened: list[Record] = field(default_factory=list)
    passed_screen: bool = False
    """Whether it came through a screen, which told whoever hears of blocks."""
    more: int = 0
    """Blocks of the same volley that come after it."""
    lost: str = ""
    """Why the producer cannot run anything any more: what it held goes on elsewhere, from files."""

    @property
    def rows(self) -> int:
        """Rows in it."""
        return sum(len(next(iter(s.columns.values()))) for s in self.segments)

    @property
    def comes_anywhere(self) -> bool:
        """Whether it has rows, or ends a visit: one of a chain that was given up, or whose rows the journal has."""
        return bool(self.segments) or self.done


Hear: TypeAlias = Callable[[Block], None]
"""Told of every block by the first stage after the producers."""


def pass_over(block: Block) -> None:
    """Ignore a block."""
