"""One chain as the journal tells it: where it is and the rows it left."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metalforge.core import PHASES, BriefRepr, InternalError, Phase, Segment, segments_of

from .analysis.selection import PointSeries
from .store.columns import Column, Spool
from .store.records import BlockDone, Decided, Rows, Screened
from .theory import Start, System, Theory
from .timeline import Timeline

LAST_SCREENED = 200
"""What is kept of a chain's screen: all before is in the journal."""


def chain_name(number: int) -> str:
    """Return what a campaign calls its chain of this number, which is also its stream."""
    return f"c{number:04d}"


@dataclass(slots=True, repr=False)
class ChainLog(BriefRepr):
    """One chain: where it is, and the rows it left, update by update from the first."""

    id: str
    stream: int
    system: System
    coordinate: float
    substrate: str
    start: Start
    cheap: int = 0
    n_steps: int = 0
    """Steps of a trajectory that it began with; 0: those of the spec."""
    abandoned: bool = False
    """Whether it was given up."""
    by_phase: Counter[Phase] = field(default_factory=Counter)
    """Updates of each phase."""
    columns: dict[str, Column] = field(default_factory=dict)
    engines: set[str] = field(default_factory=set)
    """Names of the engines that made its rows."""
    spool: Spool = field(default_factory=Spool)
    """Where columns that are long go."""
    visits: list[int] = field(default_factory=list)
    made_on: Counter[str] = field(default_factory=Counter)
    """Updates by the lane that made them."""
    step: int = 0
    """The last update that was closed by a block."""
    complete: int = 0
    """Updates at the end of its last complete visit."""
    ends: dict[int, int] = field(default_factory=dict)
    """Updates at the end of each complete visit."""
    digest: str = ""
    """Of the configuration there."""
    seconds: float = 0.0
    decisions: list[Decided] = field(default_factory=list)
    screened: deque[Screened] = field(default_factory=lambda: deque(maxlen=LAST_SCREENED))
    """The last of what the screen said."""
    flagged: bool = False
    """Whether it ever flagged the chain."""
    promised: int = 0
    """Configurations that were to be evaluated again."""
    unchecked: set[int] = field(default_factory=set)
    """Those of them, by the number of updates that led there, of which that is not known."""
    checked_ahead: set[int] = field(default_factory=set)
    """Checks that came before their block."""

    @property
    def rows(self) -> int:
        """Updates whose rows are known."""
        return self.by_phase.total()

    @property
    def phases(self) -> list[Phase]:
        """The phase of every update."""
        return [phase for phase in PHASES for _ in range(self.by_phase[phase])]

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return next((phase for phase in reversed(PHASES) if self.by_phase[phase]), "warmup")

    @property
    def warmup(self) -> int:
        """Updates before measurement."""
        return self.rows - self.measured

    @property
    def measured(self) -> int:
        """Updates of measurement."""
        return self.by_phase["measure"]

    def column(self, name: str, *, measured: bool = True) -> NDArray[np.float64]:
        """Return one column, of the measurement or of all updates."""
        there = self.columns.get(name)
        return np.zeros(0) if there is None else there.array(self.warmup if measured else 0)

    @property
    def warmup_ends(self) -> int | None:
        """The updates of warm-up after which it was decided to measure; None before that."""
        return next((d.step for d in self.decisions if d.what == "warmup-ends"), None)

    def segments(self, end: int | None = None) -> Iterator[Segment]:
        """Give the rows before update `end`, or all, phase by phase."""
        return segments_of(self.phases, self.columns, end=end)

    def snapshot(self) -> "ChainLog":
        """Return a copy that a producer can be sent: rows that come later do not change it."""
        columns = {name: column.copy() for name, column in self.columns.items()}
        return forked(self, columns=columns, spool=Spool(), screened=deque())

    @property
    def settled(self) -> int:
        """Updates up to which no check is lacking: whoever goes on from there makes all that are."""
        return min(self.unchecked, default=self.step + 1) - 1

    def close(self, block: BlockDone, isa: str) -> None:
        """Take where the chain is, and what is to be checked on the way; `isa` is the build level of the cores."""
        device = block.substrate.partition(".")[0]
        self.engines.add(f"cpu:{isa}" if device.startswith("cpu") else device)
        if block.promised != "none":
            first = self.step + 1 if block.promised == "all" else block.step
            steps = set(range(first, block.step + 1))
            self.promised += len(steps)
            self.unchecked |= steps - self.checked_ahead
            self.checked_ahead -= steps
        self.made_on[block.substrate] += block.step - self.step
        self.step, self.substrate = block.step, block.substrate
        if block.done:
            self.complete, self.digest = block.step, block.digest
            self.ends[block.visit] = block.step

    def check(self, step: int) -> bool:
        """Take that a configuration was evaluated again; return whether that is news."""
        if step > self.step:
            known = step in self.checked_ahead
            self.checked_ahead.add(step)
        else:
            known = step not in self.unchecked
            self.unchecked.discard(step)
        return not known

    def take(self, rows: Rows) -> None:
        """Add rows; those that were there already must be the same, bit for bit."""
        count, there = len(next(iter(rows.columns.values()))), self.rows
        if rows.first > there:
            raise InternalError(
                f"journal: chain {self.id} goes on at update {rows.first}, but only {there} are there before it"
            )
        known = min(there - rows.first, count)
        for name, values in rows.columns.items():
            if (column := self.columns.get(name)) is None:
                column = self.columns[name] = Column(self.spool)
            if len(column) < rows.first:
                raise InternalError(
                    f"journal: chain {self.id} has no `{name}` before update {rows.first}, but has it there"
                )
            if known and column[rows.first : rows.first + known] != list(values[:known]):
                raise InternalError(
                    f"journal: chain {self.id} was computed again from update {rows.first} on and differs in `{name}`"
                )
            column.extend(values[known:] if known else values)
        self.by_phase[rows.phase] += count - known
        self.seconds += rows.seconds


def series_of(theory: Theory, chain: ChainLog, *, complete: bool = False) -> PointSeries:
    """Return the measurement of a chain; `complete` leaves out what a visit under way has added."""
    end = max(chain.complete - chain.warmup, 0) if complete else None
    return PointSeries(
        coordinate=chain.coordinate,
        system=chain.system,
        energy=theory.energy_of(chain),
        order=theory.order_of(chain.column),
        volume=theory.volume_of(chain.system),
        start=chain.start,
        chain=chain.id,
        order_name=theory.order.text,
    ).up_to(end)


Part = TypeVar("Part")


def forked(part: Part, **given: Any) -> Part:
    """Return a copy of a dataclass whose containers are its own, with these fields."""
    own: Any = {f.name: _own(getattr(part, f.name)) for f in fields(part) if f.name not in given}  # type: ignore[arg-type]
    return type(part)(**own, **given)


def _own(value: Any) -> Any:
    """Return a container that grows by itself, also where it stands in another one; anything else is shared."""
    if isinstance(value, Column | Timeline):
        return value.fork()
    if isinstance(value, list | set | deque):
        return value.copy()
    if isinstance(value, dict):
        copied = value.copy()
        for key, part in value.items():
            copied[key] = _own(part)
        return copied
    return value
