"""One chain or trajectory of a campaign: a run whose warm-up may end early, in blocks, whatever physics it is of.

Rows that the journal has already are computed again and must come out the same, bit for bit; decisions that the
journal has are taken from there and not made again. So a chain that continues from an old checkpoint arrives where it
was. What moves it, and what no sound one gives, is its theory's own.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.orderings import Checks
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.chain_files import ChainFiles
from metalforge.campaign.store.records import Decided
from metalforge.core import InternalError, IrreproducibleError, LoggedRun, Phase, Row, Segment, SpecError
from metalforge.native import BatchEngine, Engine

from .monitor import WarmUpVerdict, verdict_on
from .orders import Snapshot

KEPT_BLOCKS = 3
"""Blocks whose rows a checkpoint holds: at most two are on their way to the journal."""
WITNESS = 256
"""Updates of a chain after which one is made twice."""
WIDE_WITNESS = 64
"""Times as rarely where a batch moves the chain: an update alone takes an engine of batches as long as many do."""
NOTHING = 0.0
"""Stands in rows for what an update does not have: JSON knows no NaN, and the phase tells."""

AnyRun: TypeAlias = LoggedRun[Any]
Columns: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tools:
    """The spec, engine and settings that a producer shares between its chains."""

    spec: CampaignSpec
    files: ChainFiles
    engine: Engine
    checks: Checks = "none"
    scratch: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """Room of the engine that looks at configurations need, by what it is for."""

    @property
    def wide(self) -> bool:
        """Whether the engine moves many chains at once."""
        return isinstance(self.engine, BatchEngine)


class Recorded(NamedTuple):
    """The rows of a chain that the journal had when the producer opened it."""

    phases: Sequence[Phase]
    columns: Columns


class Unsound(NamedTuple):
    """A sign of an unsound point: the rule that found it, the update, the reason and the number behind it."""

    by: str
    update: int
    reason: str
    figure: float | None = None


class PointChain(ABC):
    """A chain or a trajectory at some update, counted from 0; `update` moves it."""

    run: AnyRun
    witness_every: int = WITNESS
    n_steps: int | None = None
    """Steps of a trajectory; None where updates have none that are tuned."""
    saved_at = cost_s = 0.0
    """When its producer saved it last, and how long that took."""
    written: int | None = None
    """Its updates that are in the file that was written here."""
    took = True
    """Whether no block of it has been made since it was taken up."""

    def __init__(self, known: ChainLog, tools: Tools, checkpoint: Path | None = None) -> None:
        self.id, self.system, self.coordinate = known.id, known.system, known.coordinate
        self._known, self._tools, self._spec = known, tools, tools.spec
        self._recorded = Recorded(known.phases, known.columns)
        self.theory = tools.spec.theory
        self._decisions: list[Decided] = []
        self._snapshots: list[Snapshot] = []
        self._witness: Row | None = None
        self._witness_at = self._end_at = self._until = 0
        self._marks: deque[int] = deque(maxlen=KEPT_BLOCKS)
        self._exact = known.engines <= {tools.engine.name}
        self.emitted = self._known.rows
        """Rows that are in the journal, or on their way to it."""
        taken_up = None if checkpoint is None or not checkpoint.exists() else self._load(checkpoint)
        self._take_up(taken_up or self._begin())

    # -- what each physics says ----------------------------------------------------------------------------------------

    @abstractmethod
    def _new(self) -> AnyRun:
        """Return the run at update 0."""

    @abstractmethod
    def _read(self, path: Path) -> AnyRun:
        """Return the run of a checkpoint; raises where it is not one of this chain."""

    @abstractmethod
    def _look(self) -> None:
        """End the warm-up where that was decided, or may be decided now."""

    @abstractmethod
    def _second(self) -> Row | None:
        """Return the next row, by a run that has nothing of this one but where it stands; None where it has none."""

    @abstractmethod
    def digest(self) -> str:
        """Identify the configuration."""

    @abstractmethod
    def unsound(self, columns: Mapping[str, Sequence[float]], *, looks: bool) -> Iterator[Unsound]:
        """Give what is wrong with new rows and with the configuration, which is looked at where that is cheap."""

    @abstractmethod
    def evaluated(self) -> str:
        """Return what the configuration of a flagged block is, looked at once more, in words."""

    @property
    def kind(self) -> tuple[object, ...] | None:
        """The properties that chains of one batch share; None where the chain moves alone."""
        return None

    def absorb(self, columns: Any) -> None:
        """Take updates that a batch made."""
        raise SpecError(f"chains of `{self.theory.table()}` move alone")

    def update(self) -> None:
        """Make one update, whose row must be the one that the journal has if it has one."""
        self.take(self.run.step())

    def take(self, row: Row) -> None:
        """Take the update that was made last, alone or in a batch."""
        if row.update < self._known.rows:
            self._verify(row.update)
        if row.phase == "warmup":
            self._look()

    def recent_order(self, window: int) -> NDArray[np.float64]:
        """Return the order parameter of the last measurements, at most `window`; nothing where it has no peak."""
        log, begin = self.run.log, self.rows - min(window, self.measured)
        if self.theory.target != "peak":
            return np.zeros(0)
        return self.theory.order_of(lambda name: np.array(log.columns[name][begin - log.first :], np.float64))

    def room(self, until: int) -> int:
        """Return how many updates may be made of it at once."""
        return until - self.measured

    def snap(self) -> None:
        """Keep the configuration as it is, to be checked, where that can be done."""
        return

    # -- taking it up --------------------------------------------------------------------------------------------------

    def _take_up(self, run: AnyRun) -> None:
        """Go on with a run."""
        self.run = run
        self.taken_up_at = run.log.end
        """The update from which it is computed here."""
        wait = self._known.stream % WIDE_WITNESS if self._tools.wide else 1  # chains of a batch take turns
        self._witness, self._witness_at = None, run.log.end + wait * self.witness_every

    def _begin(self) -> AnyRun:
        self._marks.clear()
        return self._new()

    def _load(self, path: Path) -> AnyRun | None:
        """Return the chain of a checkpoint; None for one from which rows before it cannot be had."""
        run = self._read(path)
        if run.log.first > self._known.rows or (self._tools.checks != "none" and run.log.end > self._known.settled):
            # The journal lost its end (a power cut), or configurations before it are to be checked: from the start on
            # the chain comes out the same.
            return None
        if run.phase == "measure" and self._known.warmup_ends is None:
            if (decided := msgspec.json.decode(run.job, type=Decided | None)) is None:
                return None  # who ended its warm-up was not written down anywhere: it is decided again
            self._decisions.append(decided)
        self._marks.append(run.log.first)
        try:
            for update in range(run.log.first, min(self._known.rows, run.log.end)):
                run.verify(update, self._recorded, exact=self._exact)
        except IrreproducibleError:
            return None  # the checkpoint is not of the recorded chain; from the start on, every row is compared
        # A warm-up is looked at as a whole, a measurement at its end.
        since = min(run.log.first, max(run.log.end - self._spec.screening.window, 0)) if run.phase == "measure" else 0
        run.log.precede(self._recorded, since)
        return run

    @property
    def rows(self) -> int:
        """Updates made."""
        return self.run.log.end

    @property
    def measured(self) -> int:
        """Updates of measurement made."""
        return self.run.measured

    def begin(self, updates: int, until: int) -> None:
        """Take an order: at most so many updates beyond the journal, or until so many are measured.

        Checkpoints keep the rows of the last few blocks; now and then the first update of one has a witness.
        """
        if self.measured > until:
            # A checkpoint from beyond what the journal knows (it lost its end): decisions must be taken in order.
            self.begin_again()
        self._end_at, self._until = self.emitted + updates, until
        self._marks.append(self.rows)
        if self.run.phase == "measure" and self.rows >= max(self._witness_at, self.emitted):
            self._call_witness()

    @property
    def left(self) -> int:
        """Updates that are left of the order, as many as may be made at once; 0 where it has arrived."""
        return max(min(self._end_at - self.rows, self.room(self._until)), 0)

    def _call_witness(self) -> None:
        """Make the next update twice."""
        self._witness = self._second()
        self._witness_at = self.rows + self.witness_every * (WIDE_WITNESS if self._tools.wide else 1)

    def witnessed(self) -> tuple[int, str]:
        """Return the update that was made twice and the column in which it differs; no column where it does not."""
        row, self._witness = self._witness, None
        if row is None or row.update >= self.rows:
            return 0, ""
        at = row.update - self.run.log.first
        for name, value in row.values.items():
            if self.run.log.columns[name][at] != value:
                return row.update, name
        return row.update, ""

    def fresh(self) -> dict[str, list[float]]:
        """Return the rows that are not in the journal or on their way to it."""
        log = self.run.log
        return {name: column[max(self.emitted - log.first, 0) :] for name, column in log.columns.items()}

    @property
    def fresh_measured(self) -> int:
        """Those of them that are measured."""
        return min(self.measured, max(self.rows - self.emitted, 0))

    def begin_again(self) -> None:
        """Go back to update 0; decisions that the journal has are taken from there once more."""
        self._decisions.clear()
        self._take_up(self._begin())

    def take_segments(self) -> list[Segment]:
        """Return the rows that are not in the journal or on their way to it; from now on they are."""
        begin, self.emitted = self.emitted, max(self.rows, self.emitted)
        made = list(self.run.log.segments(begin))
        self._forget()
        return made

    def _forget(self) -> None:
        """Drop rows that the journal has and no check reads, so that memory does not grow with the chain."""
        log = self.run.log
        if self.run.phase == "measure":
            kept = min([*self._marks, self.rows - max(self._spec.screening.window, 1)])
            log.forget(max(kept, log.first))
        if self.rows >= self._known.rows:
            self._known = replace(self._known, by_phase=Counter(), columns={})
            self._recorded = Recorded((), {})

    def take_told(self) -> tuple[list[Decided], list[Snapshot]]:
        """Return what was decided, and the configurations to be checked that were met, since the last call."""
        told = self._decisions, self._snapshots
        self._decisions, self._snapshots = [], []
        return told

    def save(self, path: Path) -> None:
        """Write a checkpoint, with the rows that may not be in the journal yet."""
        self.run.save(path, first=self._marks[0] if self._marks else self.rows)

    def _verify(self, update: int) -> None:
        """Compare a row that was computed again with the recorded one.

        On the engine that made it a difference is a fault of this chain. On another engine it concerns every chain, so
        the campaign ends and keeps what it has.
        """
        try:
            self.run.verify(update, self._recorded, exact=self._exact)
        except IrreproducibleError as error:
            if self._exact:
                raise
            made_by = ", ".join(sorted(self._known.engines))
            raise InternalError(
                f"{self.id}: rows of {made_by} are not those of {self._tools.engine.name}: {error}"
                "\nhint: nothing was changed; resume where the campaign ran before"
            ) from error

    def _end_if_settled(self, columns: Columns) -> None:
        """End the warm-up if its rows so far say that it is over."""
        if (verdict := verdict_on(self._spec.warmup, *self.theory.warmup_columns(columns))).ends:
            self._end(verdict)

    def _is_decided(self, unit: str) -> bool:
        """End the warm-up where the journal says so or it is the longest; return whether nothing is left to decide."""
        warmup, ends = self.run.warmup, self._known.warmup_ends
        if ends is not None:
            if warmup.done >= ends:
                self.run.end_warmup()
            return True
        if warmup.finished:
            reason = f"{warmup.total} {unit} are the longest warm-up"
            self._end(WarmUpVerdict(ends=True, by="rule:longest", reason=reason))
            return True
        return False

    def _end(self, verdict: WarmUpVerdict) -> None:
        # The tuning is over with it: what is decided here holds for the whole measurement.
        tuned = "" if self.n_steps is None else f"; {self.n_steps} steps per trajectory from now on"
        decided = Decided(
            what="warmup-ends",
            chain=self.id,
            step=self.run.warmup.done,
            by=verdict.by,
            reason=verdict.reason + tuned,
            baseline=verdict.rule,
            done=f"measured from update {self.run.warmup.done} on",
        )
        self._decisions.append(decided)
        # A checkpoint may be written before the journal has it.
        self.run.job = msgspec.Raw(msgspec.json.encode(decided))
        self.run.end_warmup()
