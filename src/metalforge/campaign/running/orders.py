"""What travels in a campaign's graph: orders to producers, blocks of rows back, configurations to be checked.

All of it is data, so that a producer may be a thread, a process or another machine: whatever it needs of the journal
comes with an order, and whatever it decides goes back in a block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from metalforge.campaign.state import ChainLog
from metalforge.campaign.store.records import THROWN_AWAY, Decided, Promise, Record
from metalforge.campaign.theory import Start as StartOfChain
from metalforge.campaign.theory import System
from metalforge.conductor.trust import JudgedPair
from metalforge.core.rows import Phase, Segment, segments_of

PRODUCE = "produce-"
"""How the names of stages that produce begin."""


def stage_of(substrate: str) -> str:
    """Return the name of the stage that produces on a logical substrate: `cpu:0` is `produce-cpu.0`."""
    return f"{PRODUCE}{substrate.replace(':', '.')}"


Flagged: TypeAlias = tuple[int, str, float | None, float | None]
"""The update, by whom, and the figures of head and rule."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Brief:
    """A chain as the journal knows it, for a producer that takes it up: what it is, its rows, what was decided."""

    id: str
    stream: int
    system: System
    coordinate: float
    start: StartOfChain
    cheap: int
    n_steps: int = 0
    """Steps of a trajectory that it begins with; 0: those of the spec."""
    phases: Sequence[Phase] = ()
    columns: dict[str, Sequence[float]] = field(default_factory=dict)
    warmup_ends: int | None = None
    engines: Sequence[str] = ()
    """The engines on which its rows were made, by name."""
    unchecked: frozenset[int] = frozenset()
    """Updates whose configurations are to be checked and were not."""
    checked_ahead: frozenset[int] = frozenset()
    """Updates beyond `closed` whose configurations were checked."""
    closed: int = 0
    """Updates for which the journal says what is to be checked."""
    settled: int = 0
    """Updates from which the chain may go on so that no check is left out."""
    others: Sequence["Brief"] = ()
    """The other chains of its ladder, in order of their couplings, where it has one."""
    exchanges: bool = False
    """Whether it belongs to a ladder."""
    thrown_away: frozenset["Flagged"] = frozenset()
    """What blocks were thrown away for before."""

    @property
    def rows(self) -> int:
        """Updates whose rows are in the journal."""
        return len(self.phases)

    @property
    def measured(self) -> int:
        """Those of them that are measured."""
        return self.phases.count("measure")

    def segments(self, end: int | None = None) -> Iterator[Segment]:
        """Give the rows before update `end`, or all, phase by phase."""
        return segments_of(self.phases, self.columns, end=end)

    @classmethod
    def of(cls, log: ChainLog, engines: Sequence[str] = ()) -> "Brief":
        """Return what is known of a chain now; rows that come later do not change it."""
        ends = [d.step for d in log.decisions if d.what == "warmup-ends"]
        return cls(
            id=log.id,
            stream=log.stream,
            system=log.system,
            coordinate=log.coordinate,
            start=log.start,
            cheap=log.cheap,
            n_steps=log.n_steps,
            phases=log.phases,
            columns={name: values.copy() for name, values in log.columns.items()},
            warmup_ends=ends[0] if ends else None,
            engines=tuple(engines),
            unchecked=frozenset(log.unchecked),
            checked_ahead=frozenset(log.checked_ahead),
            closed=log.step,
            settled=log.settled,
            exchanges=bool(log.ladder),
            thrown_away=frozenset(
                (d.step, d.by, d.value, d.baseline) for d in log.decisions if d.done.startswith(THROWN_AWAY)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Move the chain of a visit by at most `updates`, until `until` of its updates are measured.

    `brief` comes with the first order of a chain that the producer does not hold. `release` is another order: write
    the chain to its file and forget it, since another producer will take it up.
    """

    visit: int
    chain: str
    updates: int
    until: int
    substrate: str
    brief: Brief | None = None
    release: bool = False
    settled: int = 0
    """Updates of the chain that the journal has with all their checks."""


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
    """What an order gave. `chi` is that of the chain's last measurements, and what filters look at."""

    visit: int
    chain: str
    substrate: str
    step: int = 0
    coordinate: float = 0.0
    segments: list[Segment] = field(default_factory=list)
    measured: int = 0
    done: bool = False
    digest: str = ""
    seconds: float = 0.0
    began: float = 0.0
    """When its first update began, by the clock of the machine that made it, since the epoch."""
    chi: float = 0.0
    fault: str = ""
    decisions: list[Decided] = field(default_factory=list)
    """What was decided of the chain on the way; the journal dates them."""
    judged: list[JudgedPair] = field(default_factory=list)
    """What heads and baselines said beside what was, where the heads were read in the producer's own process."""
    rung: int = 0
    """Its place in a ladder, whose first chain comes last and speaks for all of them."""
    took: Brief | None = None
    """The brief with which the chain was taken up."""
    saved: bool = False
    """Whether a checkpoint was written."""
    released: bool = False
    """The chain is in its file and free for another producer."""
    missing: bool = False
    """The producer does not hold the chain (its process was replaced): the order must come again with a brief."""
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
    seal: bytes = b""
    """Digest of what passed the gate (`seals`)."""

    @property
    def rows(self) -> int:
        """Rows in it."""
        return sum(len(next(iter(s.columns.values()))) for s in self.segments)

    @property
    def comes_anywhere(self) -> bool:
        """Whether it has rows, or ends a visit: one of a chain that was given up, or whose rows the journal has."""
        return bool(self.segments) or self.done


Hear: TypeAlias = Callable[[Block], None]
"""Told of every block by the first stage after the producers, where these read the heads in processes of their own."""


def pass_over(block: Block) -> None:
    """Tell nobody of a block."""
