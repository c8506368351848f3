"""Chains of a theory that says how its arrays begin and how an update moves them: everything else is done here.

The random numbers of update n are those of the counter-based generator Philox with the key (seed and stream, n), so
that nothing of a generator need be kept, and a chain that goes on from a checkpoint gives the bits of one that was
never interrupted.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core import (
    ChainFaultError,
    CountedWarmUp,
    LoggedRun,
    Row,
    RowLog,
    RunNotes,
    SpecError,
    load_arrays,
    replacing,
    strangers_code,
)

from .chain_log import ChainLog
from .running.monitor import is_due
from .running.point import PointChain, Tools, Unsound
from .theory import Configuration, Place, Theory

BEGIN = 1 << 63
"""The update whose random numbers a start is made with: no chain comes so far."""
STATE, ROW = "state.", "row."
"""How the names of arrays in a checkpoint begin: those of the configuration, and the columns of its rows."""


class _Notes(RunNotes[CountedWarmUp], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a checkpoint says beside its arrays, with the digest of the chain's address."""

    chain: str


class ChainAddress(NamedTuple):
    """Names a chain of a theory: its point, and its random numbers."""

    theory: Theory
    place: Place
    seed: int
    stream: int

    def numbers(self, update: int) -> np.random.Generator:
        """Return the random numbers of an update."""
        return np.random.Generator(np.random.Philox(key=[self.seed | self.stream << 32, update]))

    @property
    def digest(self) -> str:
        """Identify it."""
        said = msgspec.json.encode(((self.theory.table(),), self.place, self.seed, self.stream))
        return hashlib.sha256(said).hexdigest()


class ArrayLook(NamedTuple):
    """A configuration as observables see it; they leave the arrays as they are."""

    arrays: Configuration
    place: Place


class ArrayRun(LoggedRun[CountedWarmUp]):
    """A chain that moves update by update, with its rows in `log`."""

    def __init__(self, address: ChainAddress, warmup: CountedWarmUp, *, arrays: Configuration | None = None) -> None:
        self.address = address
        theory, place = address.theory, address.place
        if arrays is None:
            with strangers_code(f"the theory `{theory.table()}` failed to begin a chain"):
                arrays = dict(theory.begin(place, address.numbers(BEGIN)))
        self.arrays = arrays
        self.measured_besides = theory.measured
        super().__init__(warmup, RowLog(theory.row_columns, fill=0.0, held=self.measured_besides.names))

    def step(self) -> Row:
        """Make one update and return its row."""
        theory, phase, update = self.address.theory, self.phase, self.log.end
        with strangers_code(f"the theory `{theory.table()}` failed in update {update}"):
            row = theory.update(self.arrays, self.address.place, self.address.numbers(update))
            values = {name: float(row[name]) for name in theory.columns()}
        values |= self.measured_besides.of(ArrayLook(self.arrays, self.address.place), update, phase)
        if not all(map(math.isfinite, values.values())):
            raise ChainFaultError(f"update {update} at {self.address.place.at:g} gave no finite observables")
        if phase == "warmup":
            self.warmup = msgspec.structs.replace(self.warmup, done=self.warmup.done + 1)
        made = Row(update, phase, values)
        self.log.add(made)
        return made

    def again(self) -> Row:
        """Return the next row, by a run that has nothing of this one but where it stands."""
        other = ArrayRun(self.address, self.warmup, arrays={name: x.copy() for name, x in self.arrays.items()})
        other._measuring = self._measuring
        other.log.first = self.log.end
        return other.step()

    def digest(self) -> str:
        """Identify the configuration."""
        seen = hashlib.sha256()
        for name in sorted(self.arrays):
            seen.update(name.encode() + np.ascontiguousarray(self.arrays[name]).tobytes())
        return seen.hexdigest()[:32]

    def save(self, path: Path, *, first: int | None = None) -> None:
        """Write a checkpoint with the rows from `first` on; an old one is replaced whole or not at all."""
        noted, rows = self._noted(first)
        notes = _Notes(chain=self.address.digest, **noted)
        rows = {ROW + name: values for name, values in rows.items() if values.size}  # a file holds no empty arrays
        state = {STATE + name: values for name, values in self.arrays.items()}
        said = np.frombuffer(msgspec.json.encode(notes), np.uint8)
        with replacing(path) as stream:
            np.savez(stream, allow_pickle=False, notes=said, **state, **rows)

    @classmethod
    def load(cls, path: Path, address: ChainAddress) -> "ArrayRun":
        """Return the run of a checkpoint; raises where it is not one of this chain."""
        found = load_arrays(path)
        try:
            notes = msgspec.json.decode(found["notes"].tobytes(), type=_Notes)
            rows = sum(count for _, count in notes.phases)
            names = address.theory.row_columns
            columns = {name: found[ROW + name] if rows or ROW + name in found else np.empty(0) for name in names}
        except (KeyError, ValueError) as error:
            raise SpecError(
                f"{path} is not the checkpoint of a chain of `{address.theory.table()}`: {error}"
            ) from error
        if notes.chain != address.digest:
            raise SpecError(f"{path} holds another chain than that of this campaign\nhint: delete it to recompute")
        arrays = {name.removeprefix(STATE): values for name, values in found.items() if name.startswith(STATE)}
        run = cls(address, notes.warmup, arrays={name: np.array(values) for name, values in arrays.items()})
        run._take_up(path, notes, columns)
        return run


class ArrayPoint(PointChain):
    """A chain of arrays in a campaign."""

    run: ArrayRun

    def __init__(self, known: ChainLog, tools: Tools, checkpoint: Path | None = None) -> None:
        theory = tools.spec.theory
        place = Place(known.system, known.coordinate, known.start)
        self._address = ChainAddress(theory, place, tools.spec.seed, known.stream)
        super().__init__(known, tools, checkpoint)

    def _new(self) -> ArrayRun:
        return ArrayRun(self._address, CountedWarmUp(total=self._spec.warmup.longest))

    def _read(self, path: Path) -> ArrayRun:
        return ArrayRun.load(path, self._address)

    def _look(self) -> None:
        """End the warm-up where that was decided, or may be decided now."""
        if self._is_decided("updates"):
            return
        if self.rows > self._known.rows and is_due(self._spec.warmup, self.run.warmup.done):
            self._end_if_settled(self.run.log.columns)

    def _second(self) -> Row:
        return self.run.again()

    def digest(self) -> str:
        """Identify the configuration."""
        return self.run.digest()

    def unsound(self, columns: Mapping[str, Sequence[float]], *, looks: bool) -> Iterator[Unsound]:
        """Report a configuration that the theory calls impossible."""
        if looks and (why := self.theory.unsound(self.run.arrays, self._address.place)):
            yield Unsound(f"rule:{self.theory.table()}", self.rows, why)

    def evaluated(self) -> str:
        """Return what the last row of a flagged block is, in words."""
        last = ", ".join(f"{name} {column[-1]:.6g}" for name, column in self.run.log.columns.items() if column)
        return f"its last row is {last}"
