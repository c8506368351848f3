"""Messages of a campaign's graph: volleys of orders to producers, answers with blocks of rows back.

All messages are data, so that a producer may be a thread, a process or another machine. An order has what the producer
needs from the journal, and a block has the producer's decisions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.store.records import Decided, Promise, Screened
from metalforge.core import Segment

PRODUCE = "produce-"
"""How the names of stages that produce begin."""


def stage_of(substrate: str) -> str:
    """Return the name of the stage that produces on a logical substrate: `cpu:0` is `produce-cpu.0`."""
    return f"{PRODUCE}{substrate.replace(':', '.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Move the chain of a visit by at most `updates`, until `until` of its updates are measured.

    `known` is the chain as the journal knows it: it comes with the first order to a producer that does not hold the
    chain. `release` is another order: write the chain to its file and forget it, since another producer takes it up.
    """

    visit: int
    chain: str
    updates: int = 0
    until: int = 0
    known: ChainLog | None = None
    release: bool = False


@dataclass(frozen=True, slots=True)
class Volley:
    """Orders for one producer that are run together, each for a chain of its own."""

    substrate: str
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
    """The result of an order: new rows of its chain, and where it is."""

    visit: int
    chain: str
    held: bool = True
    """Whether the producer holds the chain. One that does not, since its process was replaced or the rows must be
    computed again, has made nothing: the order must come again with what the journal knows."""
    released: bool = False
    """It was asked to release the chain, whose file is free for another producer."""
    took: bool = False
    """Whether the chain was taken up with this order: rows that the journal has may be computed again."""
    step: int = 0
    segments: Sequence[Segment] = ()
    done: bool = False
    digest: str = ""
    chi: float = 0.0
    """The susceptibility over its last measurements."""
    fault: str = ""
    """Why the chain must be given up."""
    decisions: Sequence[Decided] = ()
    """What was decided of the chain on the way; the journal dates them."""
    snapshots: Sequence[Snapshot] = ()
    promised: Promise = "none"
    """Which of its configurations are checked; snapshots of earlier ones may come with them."""
    saved: bool = False
    """Whether a checkpoint was written."""

    @property
    def is_news(self) -> bool:
        """Whether it has rows, or ends a visit: the chain was abandoned, or the journal has its rows."""
        return bool(self.segments) or self.done


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """The blocks of a volley, in the order of its orders, and what its producer says of itself."""

    substrate: str
    blocks: Sequence[Block] = ()
    chi: float = 0.0
    """The largest of all chains, by which a filter chooses what is checked."""
    seconds: float = 0.0
    began: float = 0.0
    """When the first update began, by the clock of the machine that made it, since the epoch."""
    said: Sequence[str] = ()
    """What the journal is to say of the lane."""
    lost: str = ""
    """Why the producer cannot run anything any more: what it held goes on elsewhere, from files."""
    screened: Mapping[str, Screened] | None = None
    """What the screen said of each chain; None where it did not come through a screen."""


Hear: TypeAlias = Callable[[Answer], None]
"""Told of every answer by the first stage after the producers."""


def pass_over(answer: Answer) -> None:
    """Ignore an answer."""
