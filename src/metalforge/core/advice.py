"""What a campaign asks a learned advisor, and what it gets: a value beside its baseline, and whether it is trusted.

    advisor.observe(chain, segments, place)      rows of a chain, in order; a place with its first rows
    advisor.advise(question)                     the answer; None where the advisor has none

An advisor never touches a chain. A campaign acts on an answer only where it is `trusted`, and runs without any advisor.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from .quantities import Quantity
from .rows import Segment

NOT_ACTED_ON = "recorded, not acted on: "
"""How the reason begins why a head that is read is not followed."""


class ChainPlace(NamedTuple):
    """What a chain is of, where it is, and where it began."""

    system: tuple[int, ...]
    coordinate: float
    start: str


class ExpectedPeak(NamedTuple):
    """Where a peak is expected before anything is measured, how far it may be off, and half its breadth."""

    mean: float
    error: float
    width: float
    source: str = ""


class SeenChain(Protocol):
    """A chain as a journal knows it; `cheap` of its first rows are of cheaper updates."""

    id: str
    coordinate: float
    start: str
    cheap: int
    screened: Any
    """Its last readings, oldest first; each has `heads`, the values by head."""

    @property
    def rows(self) -> int:
        """Rows written."""

    @property
    def columns(self) -> Mapping[str, Sequence[float]]:
        """The rows, by observable."""


class Reading(NamedTuple):
    """Asks for what the heads predict from the rows of a chain up to this one."""

    chain: str
    row: int


class PeakPlace(NamedTuple):
    """Asks where the peak is, by the readings of these chains. The baseline is where it is `expected`."""

    expected: ExpectedPeak
    chains: Sequence[SeenChain]


class CheapLength(NamedTuple):
    """Asks with how many cheaper updates, at most `most`, a new chain begins. The baseline is `usual`."""

    place: ChainPlace
    usual: int
    most: int
    chains: Sequence[SeenChain]
    """Of the same system and start."""


Question: TypeAlias = Reading | PeakPlace | CheapLength


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: the value of a head and its error, beside the baseline; of a `Reading`, the values of all heads."""

    head: str = ""
    value: float | None = None
    error: float | None = None
    baseline: float | None = None
    trusted: bool = False
    reason: str = ""
    readings: dict[str, float] = {}
    busy: Quantity | None = None
    """Device time of a reading, and `energy`; None in software."""
    energy: Quantity | None = None


class HeadStanding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether campaigns act on a head, why or why not, and its skill on held-out chains."""

    name: str
    acts: bool
    reason: str
    skill: float | None = None


class Advisor(Protocol):
    """Learned suggestions for one campaign."""

    device: Any
    """The emulated device that reads; None is software."""
    emulation_s: float
    """Processor time of its emulation."""
    trouble: str
    """The last error of a reading; empty for none."""

    @property
    def standings(self) -> Sequence[HeadStanding]:
        """Of every head, for the journal."""

    def observe(self, chain: str, segments: Sequence[Segment], place: ChainPlace | None = None) -> None:
        """Take rows of a chain, of which those known before are passed over; never waits."""

    def advise(self, question: Question) -> Advice | None:
        """Answer a question."""

    def close(self) -> None:
        """Give the device back."""
