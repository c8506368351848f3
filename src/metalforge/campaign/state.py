"""A campaign as its journal tells it: the fold of its records, the one source for resume, watch, replay and report."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from metalforge.core import BriefRepr, InternalError, MetalforgeError, SpecError

from .analysis.selection import PointSeries
from .chain_log import ChainLog, forked, series_of
from .spec import CampaignSpec
from .store import records
from .store.columns import Spool
from .store.records import Assigned, Decided, Estimated, Interrupted, Opened, Record, Rows, Screened, StoppedBy
from .theory import System
from .timeline import Timeline

PEAK_PRIOR = "peak-prior"
"""What is decided where a peak is expected before it is located."""
LAST_CHECKS, LAST_EVIDENCE = 10_000, 500
"""What is kept of checks, and of the evidence of estimates: all before is in the journal."""
LAST_COMMANDS, MOST_SAMPLES = 1000, 600
"""What is kept of commands, and of samples, of which every other one goes then."""
NO_JOURNAL = "not a campaign's journal: it must begin with an `opened` record"


class Drift(NamedTuple):
    """Configurations evaluated again in higher precision: how many, and the largest differences by what is measured."""

    precision: str
    substrate: str
    checks: int = 0
    largest: Mapping[str, float] = {}

    def with_check(self, check: records.Checked) -> "Drift":
        """Return it with one more."""
        largest = {name: max(self.largest.get(name, 0.0), abs(found)) for name, found in check.drift.items()}
        return Drift(self.precision, self.substrate, self.checks + 1, {**self.largest, **largest})


@dataclass(slots=True, repr=False)
class CampaignState(BriefRepr):
    """Everything the journal says."""

    opened: Opened
    chains: dict[str, ChainLog] = field(default_factory=dict)
    visits: list[Assigned] = field(default_factory=list)
    visited: Counter[System] = field(default_factory=Counter)
    """How many of them are on each volume."""
    open_visits: dict[int, int] = field(default_factory=dict)
    """Visits that were assigned and not completed, with the step at which each began."""
    decisions: list[Decided] = field(default_factory=list)
    estimates: list[Estimated] = field(default_factory=list)
    energy: dict[tuple[str, str], records.Energy] = field(default_factory=dict)
    checks: deque[records.Checked] = field(default_factory=lambda: deque(maxlen=LAST_CHECKS))
    """The last of them; `drift` has all."""
    drift: dict[tuple[str, str], Drift] = field(default_factory=dict)
    """By precision and substrate."""
    spool: Spool = field(default_factory=Spool)
    migrations: list[records.Migrated] = field(default_factory=list)
    topology: records.Topology | None = None
    """The graph that runs now, or ran last."""
    rewired: list[float] = field(default_factory=list)
    """When one graph took the place of another without the process ending."""
    samples: list[records.Sampled] = field(default_factory=list)
    """How its stages did, thinned: those of long ago stand further apart. The last one is always there."""
    timelines: dict[str, Timeline] = field(default_factory=dict)
    """When each substrate worked, and on what."""
    commands: deque[records.Commanded] = field(default_factory=lambda: deque(maxlen=LAST_COMMANDS))
    pause: records.Commanded | None = None
    """The command by which it pauses; None where it does not."""
    screen_held: records.Commanded | None = None
    """The last word of a person on where the screen is; None where that is left to its rule."""
    resumed: list[records.Resumed] = field(default_factory=list)
    extended: list[records.Extended] = field(default_factory=list)
    extended_at: int = 0
    """Visits that had been decided when it was last extended."""
    interrupted: list[Interrupted] = field(default_factory=list)
    finished: records.Finished | None = None
    last_at: float = 0.0
    seconds: float = 0.0
    """Wall time of the compute so far, over all processes that worked on it."""
    _since: float = 0.0

    @property
    def spec(self) -> CampaignSpec:
        """The resolved spec in force: the one it was opened with, or the one it was last extended to."""
        return self.extended[-1].spec if self.extended else self.opened.spec

    @property
    def checkpoints(self) -> str:
        """The address at which chains are kept; empty: in the campaign's directory."""
        moved = [one.checkpoints for one in self.extended if one.checkpoints is not None]
        return moved[-1] if moved else self.opened.checkpoints

    @property
    def trajectories(self) -> int:
        """Updates so far, warm-up too."""
        return sum(chain.rows for chain in self.chains.values())

    @property
    def ordering(self) -> str:
        """The ordering it was opened with; of `auto` the one that was chosen, once it was."""
        return self.opened.ordering if self.chosen is None else self.chosen.by

    @property
    def chosen(self) -> Decided | None:
        """The choice of an ordering by measurement, where there was one."""
        return next((d for d in reversed(self.decisions) if d.what == "ordering"), None)

    @property
    def stopped_by(self) -> StoppedBy | None:
        """What ended it; None where it has not ended by itself."""
        return None if self.finished is None else self.finished.stopped_by

    @property
    def heads(self) -> dict[str, Decided]:
        """What was said about every head, by its name."""
        return {d.by: d for d in self.decisions if d.what == "head"}

    @property
    def other_decisions(self) -> list[Decided]:
        """What was decided, without what was said about heads."""
        return [d for d in self.decisions if d.what != "head"]

    @property
    def interruption(self) -> Interrupted | None:
        """How it was interrupted, if that is the last thing that happened."""
        last = self.interrupted[-1] if self.interrupted else None
        return last if last is not None and last.at >= self.last_at else None

    def expected(self, system: System, *, by_heads: bool = True) -> Decided | None:
        """Return where a volume's peak was last said to be expected; `by_heads` False: by others than heads."""
        said = (d for d in reversed(self.decisions) if d.what == PEAK_PRIOR and d.system == system)
        return next((d for d in said if by_heads or not d.head), None)

    def prior(self, system: System, *, by_heads: bool = True) -> tuple[float, float] | None:
        """Return mean and width of the peak that is expected."""
        said = self.expected(system, by_heads=by_heads)
        return None if said is None or said.value is None or said.width is None else (said.value, said.width)

    def last_look(self, system: System) -> Estimated | None:
        """Return the last estimate of a system, whether it located anything or not."""
        return next((e for e in reversed(self.estimates) if e.system == system), None)

    def latest(self, system: System) -> Estimated | None:
        """Return the last estimate of a system that located a peak."""
        return next((e for e in reversed(self.estimates) if e.system == system and e.result is not None), None)

    def points(self, system: System) -> list[PointSeries]:
        """Return the measurements of a volume, in order, then chain.

        Those of a deterministic campaign end with its complete visits, so that no result depends on when it stopped.
        """
        complete = self.spec.running.deterministic
        chosen = [c for c in self.chains.values() if c.system == system and c.measured and not c.abandoned]
        theory = self.spec.theory
        series = [
            series_of(theory, one, complete=complete) for one in sorted(chosen, key=lambda c: (c.coordinate, c.id))
        ]
        return [point for point in series if len(point.energy)]

    def digest(self) -> str:
        """Identify what was computed and decided, without clocks: equal for campaigns that are bitwise the same."""
        seen = hashlib.sha256(self.opened.spec_sha256.encode())
        for extension in self.extended:
            seen.update(extension.spec.sha256.encode())
        for visit in self.visits:
            seen.update(f"{visit.visit} {visit.chain} {visit.coordinate!r} {visit.updates} {visit.reason}\n".encode())
        for name in sorted(self.chains):
            chain = self.chains[name]
            seen.update(
                f"{name} {chain.coordinate!r} {chain.system} {chain.step} {chain.digest} {chain.warmup}\n".encode()
            )
            for column in sorted(chain.columns):
                seen.update(chain.columns[column].array().astype("<f8").tobytes())
        return seen.hexdigest()

    def fork(self) -> "CampaignState":
        """Return a state that goes on by itself from here; they share records, which never change, and rows."""
        return forked(self, chains={name: forked(chain) for name, chain in self.chains.items()})

    def apply(self, record: Record) -> None:
        """Take one more record."""
        before, self.last_at = self.last_at, record.at
        match record:  # what most records are comes first
            case Rows():
                self._chain(record.chain).take(record)
            case records.BlockDone():
                chain = self._chain(record.chain)
                chain.close(record, self.resumed[-1].isa if self.resumed else self.opened.isa)
                if record.began:
                    self._worked(record.substrate, chain.id, record.began, record.at)
                if record.done:
                    self.open_visits.pop(record.visit, None)
            case Screened():
                chain = self._chain(record.chain)
                chain.screened.append(record)
                chain.flagged |= record.flagged
                if record.busy is not None:
                    self._worked(record.route, record.chain, record.at - record.busy.value, record.at)
            case Opened():
                raise SpecError("journal: a second `opened` record")
            case records.Resumed():
                # A process that was killed worked until its last record; one that was interrupted has said so.
                self._work_until(before)
                self.resumed.append(record)
                self._since, self.pause = record.at, None
            case records.Extended():
                self.extended.append(record)
                self.extended_at = len(self.visits)
                self.finished = None
            case Assigned():
                self._assign(record)
            case Decided():
                self.decisions.append(record)
                if record.chain:
                    self._chain(record.chain).decisions.append(record)
                if record.what == "abandoned":
                    self._give_up(self._chain(record.chain))
            case records.Migrated():
                self.migrations.append(record)
            case records.Checked():
                if self._chain(record.chain).check(record.step):
                    self.checks.append(record)
                    key = record.precision, record.substrate
                    self.drift[key] = self.drift.get(key, Drift(*key)).with_check(record)
            case Estimated():
                self.estimates.append(record)
                if len(self.estimates) > LAST_EVIDENCE:
                    old = self.estimates[-LAST_EVIDENCE - 1]
                    self.estimates[-LAST_EVIDENCE - 1] = msgspec.structs.replace(old, evidence=(), wants=())
            case records.Energy():
                self.energy[record.substrate, record.source] = record
            case records.Topology():
                if self.topology is not None and self.topology.at >= self._since:
                    self.rewired.append(record.at)
                self.topology = record
            case records.Sampled():
                self.samples.append(record)
                if len(self.samples) > MOST_SAMPLES:
                    del self.samples[-2::-2]
            case records.Commanded():
                self.commands.append(record)
                if record.accepted:
                    self._obey(record)
            case Interrupted():
                self.interrupted.append(record)
                self.seconds = record.seconds
                self._since, self.pause = record.at, None
            case records.Finished():
                self.finished = record
                self.seconds = record.seconds
                self._since, self.pause = record.at, None

    def _worked(self, substrate: str, chain: str, began: float, ended: float) -> None:
        self.timelines.setdefault(substrate, Timeline()).add(chain, began, ended)

    def _obey(self, command: records.Commanded) -> None:
        """Take what a command changes that no other record says."""
        if command.what == "pause":
            self._work_until(command.at)
            self.pause = command
        elif command.what == "resume":
            self._since, self.pause = command.at, None
        elif command.what == "rewire":
            self.screen_held = None if command.asked.get("screen") == "auto" else command

    def _work_until(self, at: float) -> None:
        """Count the seconds of compute until then: there are none in a pause."""
        self.seconds += 0.0 if self.pause else max(at - self._since, 0.0)

    def _give_up(self, chain: ChainLog) -> None:
        """Close the visits of a chain that is not continued; what was spent on it is spent."""
        chain.abandoned = True
        chain.complete = max(chain.complete, chain.step)
        for visit in [visit for visit in chain.visits if visit in self.open_visits]:
            del self.open_visits[visit]

    def elapsed(self, now: float) -> float:
        """Return seconds of compute until `now`: a pause, of it or between two processes, does not count."""
        if self.finished is not None or self.pause is not None:
            return self.seconds
        return self.seconds + max(now - self._since, 0.0)

    def _assign(self, record: Assigned) -> None:
        if not record.chain.isidentifier():  # its file has this name
            raise SpecError(f"journal: a chain's name must be letters and digits. Got {record.chain!r}")
        self.visits.append(record)
        self.visited[record.system] += 1
        if record.chain not in self.chains:
            self.chains[record.chain] = ChainLog(
                id=record.chain,
                stream=record.stream,
                system=record.system,
                coordinate=record.coordinate,
                substrate=record.substrate,
                start=record.start or self.spec.theory.start_of(record.stream),
                cheap=record.cheap,
                n_steps=record.n_steps,
                spool=self.spool,
            )
        chain = self.chains[record.chain]
        chain.visits.append(record.visit)
        self.open_visits[record.visit] = chain.step

    def _chain(self, name: str) -> ChainLog:
        if name not in self.chains:
            raise InternalError(f"journal: chain `{name}` has records but was never assigned")
        return self.chains[name]


class Fold:
    """Takes records one by one; the first must open the campaign. Long columns go to a file in `directory`, if any.

    What is wrong with one is said when the state is asked for: whoever reads a damaged file says so before.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._state: CampaignState | None = None
        self._problem: MetalforgeError | None = None
        self._spool = Spool(directory)

    def __call__(self, record: Record) -> None:
        """Take the next record."""
        try:
            if self._problem is None:
                self._take(record)
        except MetalforgeError as problem:
            self._problem = problem

    def _take(self, record: Record) -> None:
        if self._state is not None:
            self._state.apply(record)
            return
        if not isinstance(record, Opened):
            raise SpecError(NO_JOURNAL)
        if record.spec.sha256 != record.spec_sha256:
            raise SpecError("journal: the spec in it is not the one it was opened with (its hash differs)")
        self._state = CampaignState(opened=record, last_at=record.at, spool=self._spool)
        self._state._since = record.at

    def fork(self) -> "Fold":
        """Return a fold that goes on by itself from here."""
        other = Fold()
        other._state, other._problem, other._spool = self._state, self._problem, self._spool
        if self._state is not None:
            other._state = self._state.fork()
        return other

    @property
    def state(self) -> CampaignState:
        """What the records so far say."""
        if self._state is None or self._problem is not None:
            raise self._problem or SpecError(NO_JOURNAL)
        return self._state


def fold(written: Iterable[Record], directory: Path | None = None) -> CampaignState:
    """Return the state after these records; the first one must open the campaign."""
    folding = Fold(directory)
    for record in written:
        folding(record)
    return folding.state
