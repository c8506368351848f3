"""Rows of a chain or a trajectory: one per update, by observable, each of a phase; what its runner keeps of it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from .errors import MetalforgeError, SpecError

Phase: TypeAlias = Literal["quench", "warmup", "measure"]
"""What an update of a chain belongs to, in one spelling for rows, journals, checkpoints, traces and features."""
PHASES: tuple[Phase, ...] = ("quench", "warmup", "measure")
"""Sweeps without sea quarks; updates that may be tuned and are not measured; updates with frozen parameters."""


class ChainFaultError(MetalforgeError):
    """A chain gave something that no chain may give; `rule` names the check that found it."""

    rule = "rule:finite"


class IrreproducibleError(ChainFaultError):
    """A recorded row was computed again and came out with other bits."""

    rule = "rule:journal"


class Row(NamedTuple):
    """What one update gave, counted from 0, by observable."""

    update: int
    phase: Phase
    values: dict[str, float]


class Segment(NamedTuple):
    """Rows of one phase, from update `first` on."""

    phase: Phase
    first: int
    columns: dict[str, tuple[float, ...]]


class Rowed(Protocol):
    """Rows from update 0 on that somebody wrote down: a journal's, or those of another run."""

    @property
    def phases(self) -> Sequence[Phase]:
        """The phase of every update."""

    @property
    def columns(self) -> Mapping[str, Sequence[float]]:
        """The numbers of every update, by observable."""


class RowLog:
    """Rows from update `first` on; `fill` stands where an update has no such number, and the phase tells.

    A column of `held` repeats its last number instead: what is not measured after every update.
    """

    def __init__(
        self, names: Iterable[str], *, first: int = 0, fill: float = math.nan, held: Iterable[str] = ()
    ) -> None:
        self.first, self.fill, self.held = first, fill, frozenset(held)
        self.phases: list[Phase] = []
        self.columns: dict[str, list[float]] = {name: [] for name in names}

    @property
    def end(self) -> int:
        """The update that comes next."""
        return self.first + len(self.phases)

    def add(self, row: Row) -> None:
        """Take the next row."""
        self.phases.append(row.phase)
        for name, column in self.columns.items():
            column.append(row.values.get(name, self._without(name)))

    def _without(self, name: str) -> float:
        """Return what stands in a row that has no number of this name."""
        column = self.columns[name]
        return column[-1] if name in self.held and column else self.fill

    def hold(self, name: str, count: int) -> None:
        """Add so many rows to a column whose number was not measured in them."""
        self.columns[name] += [self._without(name)] * count

    def forget(self, before: int) -> None:
        """Drop the rows before an update."""
        count = before - self.first
        del self.phases[:count]
        for column in self.columns.values():
            del column[:count]
        self.first = before

    def precede(self, earlier: Rowed, since: int = 0) -> None:
        """Put what somebody wrote down before the first row, so that all rows since some update are here."""
        self.phases[:0] = earlier.phases[since : self.first]
        for name, column in self.columns.items():
            column[:0] = earlier.columns.get(name, ())[since : self.first]
        self.first = since

    def rows(self) -> list[tuple[Phase, dict[str, float]]]:
        """Return every row with its phase."""
        return [(phase, {n: c[i] for n, c in self.columns.items()}) for i, phase in enumerate(self.phases)]

    def segments(self, begin: int) -> Iterator[Segment]:
        """Give the rows from an update on, phase by phase."""
        return segments_of(self.phases, self.columns, first=self.first, begin=begin)

    def verify(self, update: int, recorded: Rowed, rounding: float = 0.0) -> None:
        """Compare a row that was computed again with the recorded one.

        Numbers may differ by `rounding`, absolute and relative: by nothing where the same engine made both.

        Raises
        ------
        IrreproducibleError
            They differ.
        """
        at = update - self.first
        if (phase := self.phases[at]) != recorded.phases[update]:
            raise IrreproducibleError(
                f"update {update} cannot be reproduced: recorded as {recorded.phases[update]}, computed as {phase}"
            )
        for name, column in recorded.columns.items():
            was, now = column[update], self.columns[name][at]
            if was != now and not math.isclose(was, now, rel_tol=rounding, abs_tol=rounding):
                raise IrreproducibleError(
                    f"update {update} cannot be reproduced: `{name}` is recorded as {was!r} and computed as {now!r}"
                )


def counted(phases: Sequence[Phase]) -> list[tuple[Phase, int]]:
    """Return how many updates of each phase there are, in the order in which a chain goes through them."""
    return [(phase, count) for phase in PHASES if (count := phases.count(phase))]


def segments_of(
    phases: Sequence[Phase],
    columns: Mapping[str, Sequence[float]],
    *,
    first: int = 0,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[Segment]:
    """Give rows from update `begin` to before `end`, phase by phase; the first that is there is update `first`."""
    at = max(begin, first)
    for phase, count in counted(phases[at - first : None if end is None else end - first]):
        until = at + count
        kept = slice(at - first, until - first)
        yield Segment(phase, at, {name: tuple(column[kept]) for name, column in columns.items()})
        at = until


class CountedWarmUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How far a warm-up of `total` updates has come."""

    total: int
    done: int = 0

    @property
    def finished(self) -> bool:
        """Whether the chain is frozen and measured from now on."""
        return self.done >= self.total

    @property
    def phase(self) -> Phase:
        """What the next of its updates belongs to."""
        return "warmup"


WarmingUp = TypeVar("WarmingUp", bound=CountedWarmUp)


class RunNotes(msgspec.Struct, Generic[WarmingUp], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a checkpoint says of a run, beside its configuration and rows; `job` is its owner's."""

    warmup: WarmingUp
    measuring: bool
    first: int
    phases: tuple[tuple[Phase, int], ...]
    """The phases of the rows and how many updates each has."""
    job: msgspec.Raw


class LoggedRun(ABC, Generic[WarmingUp]):
    """A chain or a trajectory that moves update by update: a warm-up, then frozen measurement, with its rows in `log`.

    A checkpoint holds where it stands, how far its warm-up has come and the rows since some update.
    """

    def __init__(self, warmup: WarmingUp, log: RowLog) -> None:
        self.warmup, self.log = warmup, log
        self.job = msgspec.Raw(b"null")
        """What the owner of the run wants back from a checkpoint, as JSON."""
        self._measuring = False

    @property
    def phase(self) -> Phase:
        """What the next update belongs to."""
        return "measure" if self._measuring or self.warmup.finished else self.warmup.phase

    @property
    def measured(self) -> int:
        """Updates of measurement made."""
        return self.log.end - self.warmup.done if self.phase == "measure" else 0

    def end_warmup(self) -> None:
        """Freeze the run here: from now on it is measured."""
        self._measuring = True

    def verify(self, update: int, recorded: Rowed, *, exact: bool = True) -> None:
        """Compare a row that was computed again with the recorded one; raises `IrreproducibleError`.

        One that is not `exact` was recorded on another engine.
        """
        self.log.verify(update, recorded)

    @abstractmethod
    def step(self) -> Row:
        """Make one update and return its row; one that fails raises and leaves the run where it was."""

    @abstractmethod
    def save(self, path: Path, *, first: int | None = None) -> None:
        """Write a checkpoint with the rows from `first` on; an old one is replaced whole or not at all."""

    def _noted(self, first: int | None) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
        """Return the fields of `RunNotes` for a checkpoint, and the rows from `first` on as arrays."""
        log = self.log
        first = log.first if first is None else first
        begin = first - log.first
        phases = tuple(counted(log.phases[begin:]))
        notes = {"warmup": self.warmup, "measuring": self.phase == "measure", "job": self.job}
        rows = {name: np.array(values[begin:], np.float64) for name, values in log.columns.items()}
        return notes | {"first": first, "phases": phases}, rows

    def _take_up(self, path: Path, notes: RunNotes[WarmingUp], rows: Mapping[str, NDArray[np.float64]]) -> None:
        """Go on from what a checkpoint holds; raises where its rows do not fit."""
        count = sum(count for _, count in notes.phases)
        if rows.keys() != self.log.columns.keys() or any(values.shape != (count,) for values in rows.values()):
            raise SpecError(f"{path} must hold {count} rows of {', '.join(self.log.columns)}. Got {', '.join(rows)}")
        self.log.first = notes.first
        self.log.phases = [phase for phase, count in notes.phases for _ in range(count)]
        self.log.columns = {name: rows[name].astype(np.float64).tolist() for name in self.log.columns}
        self.job, self._measuring = notes.job, notes.measuring
